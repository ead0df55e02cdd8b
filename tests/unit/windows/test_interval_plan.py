"""The plan of an interval: by example, against a model minute by minute, and on a simulated event bus."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import strategies as st

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.protocol.streams import Gap, ReplayWindow, Span
from airflow_provider_sfstream.windows.interval_plan import BusDrain, IntervalPlan, plan_interval
from tests.support.examples import for_examples
from tests.support.recorded_windows import HOUR, MINUTE, at, recorded_gap, recorded_window, span

LONG_AGO = -10_000


def plan(
    windows: list[ReplayWindow],
    *,
    interval: tuple[int, int] = (0, 60),
    grace: int = 5,
    gaps: list[Gap] | None = None,
    horizon: int = LONG_AGO,
) -> IntervalPlan:
    return plan_interval(span(*interval), grace=grace * MINUTE, windows=windows, gaps=gaps or [], horizon=at(horizon))


def ids(result: IntervalPlan) -> list[str]:
    return [window.window_id for window in result.landed]


def test_an_interval_of_which_nothing_is_known_is_drained_from_the_earliest_event():
    assert plan([]) == IntervalPlan((), (BusDrain(span(0, 65), None),), ())


def test_landed_windows_that_cover_interval_and_grace_are_all_that_is_needed():
    windows = [
        recorded_window("w1", (-30, 30), (-20, 29), through=b"1"),
        recorded_window("w2", (30, 50), through=b"2", after=b"1", previous="w1"),
        recorded_window("w3", (50, 90), (59, 80), through=b"3", after=b"2", previous="w2"),
        recorded_window("w4", (90, 120), (90, 110), through=b"4", after=b"3", previous="w3"),
    ]
    result = plan(windows)
    assert (ids(result), result.drains, result.missing) == (["w1", "w3"], (), ())


def test_windows_that_touch_the_interval_without_holding_its_events_are_not_returned():
    windows = [
        recorded_window("before", (-30, 0), (-20, -1), through=b"0"),
        recorded_window("whole", (0, 60), (0, 59), through=b"1", previous="before"),
        recorded_window("tail", (60, 90), (60, 80), through=b"2", previous="whole"),
    ]
    assert ids(plan(windows)) == ["whole"]
    late = replace(windows[2], first_event_time=at(59))
    assert ids(plan([*windows[:2], late])) == ["whole", "tail"]


def test_a_hole_is_drained_from_the_position_before_it_however_small_it_is():
    second = timedelta(seconds=1)
    windows = [
        recorded_window("w1", (0, 30), (0, 20), through=b"1"),
        replace(recorded_window("w2", (30, 90), (40, 80), through=b"2"), covered_from=at(30) + second),
    ]
    assert plan(windows).drains == (BusDrain(Span(at(30), at(30) + second), b"1"),)
    assert plan([windows[0], replace(windows[1], covered_from=at(30))]).drains == ()


def test_drains_on_both_sides_of_a_landed_window_stay_apart():
    windows = [
        recorded_window("w0", (-60, 0), (-50, -1), through=b"0"),
        recorded_window("w2", (20, 40), (20, 39), through=b"2"),
    ]
    result = plan(windows)
    assert result.drains == (BusDrain(span(0, 20), b"0"), BusDrain(span(40, 65), b"2"))


def test_a_window_without_a_stretch_is_returned_and_answers_for_nothing():
    result = plan([recorded_window("w1", events=(10, 50), through=b"1")])
    assert (ids(result), result.drains) == (["w1"], (BusDrain(span(0, 65), None),))
    only_until = recorded_window("w1", (None, 30), (10, 20), through=b"1")
    assert plan([only_until], interval=(30, 60)).drains == (BusDrain(span(30, 65), b"1"),)


def test_a_window_whose_events_tell_no_time_is_returned_for_its_stretch():
    windows = [
        recorded_window("w1", (0, 61), event_count=3, through=b"1"),
        recorded_window("w2", (61, 65), event_count=3, through=b"2", previous="w1"),
        recorded_window("w3", (65, 90), event_count=3, through=b"3", previous="w2"),
        recorded_window("w4", event_count=3, through=b"4", previous="w3"),
    ]
    assert ids(plan(windows)) == ["w1", "w2"]


def test_only_the_tail_is_drained_if_only_the_tail_is_open_and_it_is_never_missing():
    windows = [recorded_window("w1", (0, 62), (0, 61), through=b"1")]
    assert plan(windows).drains == (BusDrain(span(62, 65), b"1"),)
    expired = plan(windows, horizon=70)
    assert (ids(expired), expired.drains, expired.missing) == (["w1"], (), ())
    assert plan([], horizon=70).missing == (span(0, 60),)
    assert plan([], horizon=63) == IntervalPlan((), (BusDrain(span(63, 65), None),), (span(0, 60),))


def test_a_part_that_straddles_the_horizon_is_split_there():
    windows = [recorded_window("w1", (10, 20), (10, 19), through=b"1")]
    assert plan(windows, horizon=40).missing == (span(0, 10), span(20, 40))
    assert plan(windows, horizon=40).drains == (BusDrain(span(40, 65), None),)


def test_what_a_gap_lost_is_missing_unless_a_window_has_it():
    windows = [recorded_window("backfill", (20, 30), (20, 29), through=b"b", kind="backfill")]
    result = plan(windows, gaps=[recorded_gap(10, 40)])
    assert result.missing == (span(10, 20), span(30, 40))
    assert [drain.span for drain in result.drains] == [span(0, 10), span(40, 65)]


def test_a_gap_of_unknown_beginning_reaches_back_for_ever_and_one_that_ends_before_it_begins_loses_nothing():
    assert plan([], gaps=[recorded_gap(None, 40)]).missing == (span(0, 40),)
    assert plan([], gaps=[recorded_gap(40, 30)]).missing == ()


def test_the_gap_that_a_window_carries_counts_though_the_store_forgot_it():
    window = recorded_window("w1", (40, 90), (40, 80), gap=recorded_gap(10, 40))
    assert plan([window]).missing == (span(10, 40),)


def test_a_position_that_has_aged_out_is_not_drained_from():
    windows = [
        recorded_window("w1", (-60, -30), (-50, -40), through=b"1"),
        recorded_window("w2", (-30, 0), through=b"1", after=b"1", previous="w1"),
    ]
    assert plan(windows, horizon=-41).drains == (BusDrain(span(0, 65), b"1"),)
    assert plan(windows, horizon=-40).drains == (BusDrain(span(0, 65), None),)
    confirmed = replace(windows[1], through=b"2")
    assert plan([windows[0], confirmed], horizon=-40).drains == (BusDrain(span(0, 65), b"2"),)


def test_a_gap_ends_where_the_window_that_went_on_after_it_begins_to_answer():
    gap = recorded_gap(10, 600)
    windows = [
        recorded_window("before", (-60, 20), (-60, 10)),
        recorded_window("after", (40, 50), (40, 49), gap=gap),
    ]
    for gaps in ([], [gap]):
        result = plan(windows, gaps=gaps)
        assert result.missing == (span(20, 40),)
        assert [part.span for part in result.drains] == [span(50, 65)]


def test_a_position_that_a_gap_names_and_those_before_it_are_not_drained_from():
    windows = [
        recorded_window("w1", (-60, -30), (-50, -40), through=b"1"),
        recorded_window("w2", (-30, 0), (-20, -5), through=b"2", previous="w1"),
    ]
    assert plan(windows, gaps=[recorded_gap(-5, 0, b"2")]).drains == (BusDrain(span(0, 65), None),)
    assert plan(windows[:1], gaps=[recorded_gap(-40, -1)]).drains == (BusDrain(span(0, 65), None),)
    assert plan(windows[:1], gaps=[recorded_gap(-41, -1)]).drains == (BusDrain(span(0, 65), b"1"),)
    assert plan(windows, gaps=[recorded_gap(None, -1, b"2")]).drains == (BusDrain(span(0, 65), b"1"),)


def test_of_positions_at_one_time_the_last_one_given_counts():
    windows = [
        recorded_window("w1", (-60, 0), (-50, -1), through=b"1"),
        recorded_window("w2", (0, 0), (0, 0), through=b"2", previous="w1"),
    ]
    assert plan(windows).drains == (BusDrain(span(0, 65), b"2"),)
    assert plan(windows[::-1]).drains == (BusDrain(span(0, 65), b"2"),)


def test_a_backfill_window_that_adds_nothing_to_live_windows_is_left_out():
    live = recorded_window("live", (-60, 90), (-50, 80), through=b"1")
    backfill = recorded_window("backfill", (0, 65), (0, 64), through=b"b", kind="backfill")
    assert ids(plan([backfill, live])) == ["live"]
    short = replace(live, covered_until=at(62))  # late events may be in the backfill window alone
    assert ids(plan([backfill, short])) == ["live", "backfill"]


def test_of_backfill_windows_that_have_the_same_events_one_is_enough():
    windows = [
        recorded_window(f"b{end}", (-60, end), (-60, end - 1), through=bytes([end]), kind="backfill")
        for end in (70, 80, 90)
    ]
    assert ids(plan(windows)) == ["b70"]
    assert ids(plan(windows, interval=(0, 75))) == ["b80"]


def test_live_windows_are_in_chain_order_with_backfill_windows_between_by_time():
    windows = [
        recorded_window("a", (40, 90), (40, 80), previous="b"),
        recorded_window("b", (10, 20), (30, 31), previous="c"),
        recorded_window("c", (0, 10), (5, 9)),
        recorded_window("d", (20, 40), (20, 39), kind="backfill"),
    ]
    assert ids(plan(windows)) == ["c", "b", "d", "a"]
    late = recorded_window("a", events=(1, 80), previous="b")  # begins with an event that came late
    assert ids(plan([late, *windows[1:]])) == ["c", "b", "a", "d"]


def test_of_two_windows_that_follow_one_the_earlier_comes_first():
    windows = [
        recorded_window("b", (40, 90), (40, 80), previous="c"),
        recorded_window("a", (20, 40), (20, 39), previous="c"),
        recorded_window("c", (0, 20), (5, 9)),
    ]
    assert ids(plan(windows)) == ["c", "a", "b"]


def test_a_chain_whose_links_run_in_a_circle_still_gives_every_window():
    windows = [
        recorded_window("a", (0, 30), (0, 29), previous="b"),
        recorded_window("b", (30, 90), (30, 59), previous="a"),
    ]
    assert sorted(ids(plan(windows))) == ["a", "b"]


def test_local_time_in_the_hour_that_comes_twice_is_planned_in_utc():
    berlin = ZoneInfo("Europe/Berlin")
    start = datetime(2026, 10, 25, 2, 30, tzinfo=berlin)
    end = datetime(2026, 10, 25, 3, 0, tzinfo=berlin)  # an hour and a half later
    result = plan_interval(Span(start, end), grace=MINUTE, windows=[], gaps=[], horizon=at(-100_000))
    (drain,) = result.drains
    assert drain.span == Span(datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 25, 2, 1, tzinfo=UTC))


def test_a_negative_grace_is_refused():
    with pytest.raises(ConfigurationError, match="grace"):
        plan([], grace=-1)


# Against a model that looks at each minute.

LAST = 60
minutes = st.integers(0, LAST)
lengths = st.integers(0, 15)


@dataclass(frozen=True)
class Case:
    """What a plan is made from; all times are whole minutes, so that a minute is covered whole or not at all."""

    interval: tuple[int, int]
    grace: int
    windows: list[ReplayWindow]
    gaps: list[Gap]
    horizon: int


@st.composite
def drawn_windows(draw: st.DrawFn) -> list[ReplayWindow]:
    windows: list[ReplayWindow] = []
    now, position, previous = draw(st.integers(-10, 10)), None, None
    for number in range(draw(st.integers(0, 7))):
        begin = now
        now += draw(lengths)
        sort = draw(st.sampled_from(["known", "known", "unknown", "until only", "hole"]))
        if sort == "hole":
            continue
        covered = {"known": (begin, now), "unknown": (None, None), "until only": (None, now)}[sort]
        moved = draw(st.booleans())
        through = f"live-{number}".encode() if moved else position
        window = recorded_window(
            f"live-{draw(st.integers(0, 9))}-{number}",
            covered,
            draw(drawn_events(begin, now)),
            after=position,
            through=through,
            previous=previous,
        )
        windows.append(window)
        position, previous = through, window.window_id
    for number in range(draw(st.integers(0, 3))):
        begin, length = draw(minutes), draw(lengths)
        windows.append(
            recorded_window(
                f"backfill-{number}",
                (begin, begin + length) if draw(st.booleans()) else (None, None),
                draw(drawn_events(begin, begin + length)),
                through=f"backfill-{number}".encode(),
                kind="backfill",
            )
        )
    return windows


@st.composite
def drawn_events(draw: st.DrawFn, begin: int, end: int) -> tuple[int, int] | None:
    if draw(st.booleans()):
        return None
    first, last = sorted((draw(st.integers(begin - 3, end + 3)), draw(st.integers(begin - 3, end + 3))))
    return first, last


@st.composite
def drawn_cases(draw: st.DrawFn) -> Case:
    start = draw(minutes)
    windows = draw(drawn_windows())
    names = st.sampled_from([None, *(window.through for window in windows)])
    gaps = st.builds(recorded_gap, st.none() | minutes, minutes, names)
    return Case(
        interval=(start, start + draw(st.integers(1, 30))),
        grace=draw(st.integers(0, 6)),
        windows=windows,
        gaps=draw(st.lists(gaps, max_size=2)),
        horizon=draw(st.integers(-20, LAST + 20)),
    )


def plan_of(case: Case) -> IntervalPlan:
    return plan(case.windows, interval=case.interval, grace=case.grace, gaps=case.gaps, horizon=case.horizon)


def held(minute: int, stretch: Span | BusDrain) -> bool:
    stretch = stretch.span if isinstance(stretch, BusDrain) else stretch
    return stretch.start <= at(minute) < stretch.end


def answers(window: ReplayWindow, minute: int) -> bool:
    if window.covered_from is None or window.covered_until is None:
        return False
    return window.covered_from <= at(minute) < window.covered_until


def is_readable(case: Case, minute: int) -> bool:
    lost = any((gap.since is None or gap.since <= at(minute)) and at(minute) < gap.detected_at for gap in case.gaps)
    return at(minute) >= at(case.horizon) and not lost


@for_examples(drawn_cases(), few=40, many=400)
def test_each_minute_is_landed_or_drained_or_missing_and_only_one_of_them(case):
    result = plan_of(case)
    start, end = case.interval
    for minute in range(start - 20, end + case.grace + 20):
        drained = sum(held(minute, drain) for drain in result.drains)
        missing = sum(held(minute, lost) for lost in result.missing)
        open_ = start <= minute < end + case.grace and not any(answers(window, minute) for window in case.windows)
        assert drained == (open_ and is_readable(case, minute))
        assert missing == (open_ and minute < end and not is_readable(case, minute))


@for_examples(drawn_cases(), few=40, many=400)
def test_every_window_with_events_of_the_interval_is_landed_unless_others_have_them(case):
    result = plan_of(case)
    start, end = (at(minute) for minute in case.interval)
    assert len(set(ids(result))) == len(result.landed)
    with_events = {
        window.window_id: window
        for window in case.windows
        if window.event_count and window.first_event_time < end and window.last_event_time >= start
    }
    assert set(ids(result)) <= set(with_events)
    left_out = set(with_events) - set(ids(result))
    others = [window for window in case.windows if window.window_id not in left_out]
    for window in (with_events[window_id] for window_id in left_out):
        assert window.kind == "backfill"
        first, last = max(window.first_event_time, start), min(window.last_event_time, end - MINUTE)
        time = first - case.grace * MINUTE
        while time <= last + case.grace * MINUTE:
            assert any(answers(other, (time - HOUR) // MINUTE) for other in others)
            time += MINUTE


@for_examples(drawn_cases(), few=40, many=400)
def test_a_drain_begins_at_the_nearest_position_that_can_be_read(case):
    for drain in plan_of(case).drains:
        eligible = [
            window
            for window in case.windows
            if window.through is not None
            and window.covered_until is not None
            and window.covered_until <= drain.span.start
            and position_is_readable(case, window.through)
        ]
        if drain.after is None:
            assert not eligible
        else:
            nearest = max(window.covered_until for window in eligible)
            assert drain.after in {window.through for window in eligible if window.covered_until == nearest}


def position_is_readable(case: Case, replay_id: bytes) -> bool:
    times = [
        window.last_event_time or window.covered_until
        for window in case.windows
        if window.through == replay_id and (window.event_count or window.after != replay_id)
    ]
    known = [time for time in times if time is not None]
    refused = any(
        gap.after == replay_id or (gap.since is not None and known and max(known) <= gap.since) for gap in case.gaps
    )
    return bool(known) and max(known) > at(case.horizon) and not refused


@for_examples(drawn_cases(), st.randoms(), few=30, many=200)
def test_the_order_of_what_is_given_changes_nothing(case, rng):
    windows, gaps = [*case.windows, *case.windows[:2]], list(case.gaps)
    rng.shuffle(windows)
    rng.shuffle(gaps)
    assert plan_of(replace(case, windows=windows, gaps=gaps)) == plan_of(case)


@for_examples(drawn_cases(), few=60, many=200)
def test_results_are_in_order(case):
    result = plan_of(case)
    assert list(result.missing) == sorted(result.missing)
    assert [drain.span for drain in result.drains] == sorted(drain.span for drain in result.drains)
    place = {window.window_id: place for place, window in enumerate(result.landed)}
    for window in result.landed:
        if window.kind == "live" and window.previous_window_id in place:
            assert place[window.previous_window_id] < place[window.window_id]


# On an event bus: events come late, windows are what drains made of them, and nothing may be lost unsaid.


@dataclass(frozen=True)
class Bus:
    """Events in the order that they came: each has the minute at which it happened."""

    times: list[int]

    def first_from(self, minute: int, begin: int = 0) -> int:
        """Return the place of the first event, from the place ``begin`` on, that happened at ``minute`` or later."""
        return next((place for place in range(begin, len(self.times)) if self.times[place] >= minute), len(self.times))

    def drained(self, name: str, covered: tuple[int, int], begin: int, end: int, **more: object) -> ReplayWindow:
        times = self.times[begin:end]
        return recorded_window(
            name,
            covered,
            (min(times), max(times)) if times else None,
            event_count=len(times),
            after=self.position(begin),
            through=self.position(end),
            **more,  # type: ignore[arg-type]
        )

    def position(self, place: int) -> bytes | None:
        """Return the replay ID of the last event before ``place``."""
        return str(place - 1).encode() if place else None

    def between(self, after: bytes | None, through: bytes | None) -> set[int]:
        return set(range(int(after or -1) + 1, int(through or -1) + 1))


@for_examples(st.integers(0, 2**32), st.integers(1, 6), st.integers(0, 2), st.integers(-20, 20), few=100, many=1000)
def test_no_event_of_the_interval_is_lost_unsaid_though_events_come_late(seed, grace, backfills, horizon):
    rng = random.Random(seed)  # evenly spread, where drawn values would crowd at the edges
    happened = [rng.randrange(-10, LAST + 30) for _ in range(rng.randrange(2, 150))]
    came = sorted((time + rng.randrange(grace), rng.random(), time) for time in happened)
    bus = Bus([time for _, _, time in came])
    windows = some_windows(rng, bus, grace, backfills)
    start = rng.randrange(LAST)
    case = Case((start, start + rng.randrange(1, 20)), grace, windows, [], horizon)
    result = plan_of(case)

    got: set[int] = set()
    for window in result.landed:
        got |= bus.between(window.after, window.through)
    for drain in result.drains:
        first, end = ((time - HOUR) // MINUTE for time in (drain.span.start, drain.span.end))
        begin = bus.first_from(horizon) if drain.after is None else int(drain.after) + 1
        begin = bus.first_from(first - grace, begin)
        got |= set(range(begin, bus.first_from(end, begin)))
    for place, time in enumerate(bus.times):
        if case.interval[0] <= time < case.interval[1] and place not in got:
            # It is lost, or it came late, among events that are lost.
            around = range(time, time + grace)
            covered = [any(answers(window, minute) for window in windows) for minute in around]
            assert not all(known or is_readable(case, minute) for known, minute in zip(covered, around, strict=True))


def some_windows(rng: random.Random, bus: Bus, grace: int, backfills: int) -> list[ReplayWindow]:
    """Return live windows with holes between, as drains that end at a time or a count make them, and backfills.

    What is not recorded ended at a time: an event at the very time at which an unrecorded window ended by its count
    cannot be told from the first events of the window after it.
    """
    windows = []
    by_time = [(minute, bus.first_from(minute)) for minute in (-11, *rng.sample(range(-10, LAST + 30), 5))]
    places = rng.sample(range(1, len(bus.times)), min(4, len(bus.times) - 1))
    by_count = [(max(bus.times[:place]), place) for place in places]
    cuts = sorted((*by_time, *by_count), key=lambda cut: (cut[1], cut[0]))
    for number, ((begin, first), (end, past)) in enumerate(pairwise(cuts)):
        if (end, past) not in by_time or rng.random() < 0.6:
            window = bus.drained(f"live-{number}", (begin, end), first, past, previous=f"live-{number - 1}")
            known = rng.random() < 0.9
            windows.append(window if known else replace(window, covered_from=None, covered_until=None))
    for number in range(backfills):
        begin = rng.randrange(-10, LAST)
        end = begin + rng.randrange(1, 40)
        place, past = bus.first_from(begin - grace), bus.first_from(end)
        windows.append(bus.drained(f"backfill-{number}", (begin, end), place, past, kind="backfill"))
    return windows
