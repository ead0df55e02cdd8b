"""Interval plans: examples, a comparison with a model minute by minute, and a simulated event bus."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from airflow_provider_sfstream.landing.manifest import Manifest, WindowFile
from airflow_provider_sfstream.replay_windows.interval_plan import (
    BusDrain,
    IntervalPlan,
    least_events,
    may_count_in,
    plan_interval,
)
from airflow_provider_sfstream.salesforce.streams import Gap, ReplayWindow, Span, Stream
from tests.support.examples import for_examples
from tests.support.recorded_windows import HOUR, MINUTE, at, recorded_gap, recorded_window, span

LONG_AGO = -10_000


def plan(
    windows: list[ReplayWindow],
    *,
    interval: tuple[int, int] = (0, 60),
    gaps: list[Gap] | None = None,
    horizon: int = LONG_AGO,
    live: bool = False,
    breaks: list[Span] | None = None,
) -> IntervalPlan:
    return plan_interval(
        span(*interval), windows=windows, gaps=gaps or [], horizon=at(horizon), live=live, breaks=breaks or []
    )


def ids(result: IntervalPlan) -> list[str]:
    return [window.window_id for window in result.landed]


def test_interval_without_known_windows_is_drained_from_the_earliest_event():
    assert plan([]) == IntervalPlan((), (BusDrain(span(0, 60), None),), (), ())


def test_interval_covered_by_landed_windows_needs_no_drain():
    windows = [
        recorded_window("w1", (-30, 30), (-20, 29), through=b"1"),
        recorded_window("w2", (30, 50), through=b"2", after=b"1", previous="w1"),
        recorded_window("w3", (50, 90), (59, 80), through=b"3", after=b"2", previous="w2"),
        recorded_window("w4", (90, 120), (90, 110), through=b"4", after=b"3", previous="w3"),
    ]
    result = plan(windows)
    assert (ids(result), result.drains, result.missing, result.unconfirmed) == (["w1", "w3"], (), (), ())


def test_event_times_do_not_decide_the_interval_of_a_window():
    windows = [
        recorded_window("before", (-30, -1), (5, 50_000), through=b"0"),
        recorded_window("whole", (-1, 61), (-9_000, 90_000), through=b"1", previous="before"),
        recorded_window("tail", (61, 90), (-500, 20), through=b"2", previous="whole"),
    ]
    assert ids(plan(windows)) == ["whole"]


def test_window_counts_until_its_last_contact_even_after_a_confirmed_end():
    long = recorded_window("w1", (-60, -10), (-50, -5), through=b"1", contact=3)
    rest = recorded_window("w2", (-10, 70), (-5, 60), through=b"2", previous="w1")
    assert ids(plan([long, rest])) == ["w1", "w2"]
    assert ids(plan([long, rest], interval=(4, 60))) == ["w2"]


def test_drain_estimate_counts_landed_events_from_its_span_on():
    windows = [
        recorded_window("before", (-30, 10), through=b"0"),
        recorded_window("first", (10, 30), (11, 12), through=b"1", previous="before"),
        recorded_window("second", (30, 90), (31, 32), through=b"2", previous="first", event_count=5),
        recorded_window("beside", (30, 90), (31, 32), through=b"2", kind="backfill"),
    ]
    counts = {window.window_id: window.event_count for window in windows}
    after_ten = counts["first"] + counts["second"]
    assert after_ten > counts["second"] > 0
    assert least_events([BusDrain(span(10, 30), b"0")], windows) == after_ten
    both = [BusDrain(span(10, 30), b"0"), BusDrain(span(30, 60), b"1")]
    assert least_events(both, windows) == after_ten + counts["second"], "each drain reads to the end of the stream"
    assert least_events([BusDrain(span(95, 99), None)], windows) == 0
    assert least_events([], windows) == 0


def test_hole_of_any_size_is_drained_from_the_position_before_it():
    second = timedelta(seconds=1)
    windows = [
        recorded_window("w1", (0, 30), (0, 20), through=b"1"),
        replace(recorded_window("w2", (30, 90), (40, 80), through=b"2"), covered_from=at(30) + second),
    ]
    assert plan(windows).drains == (BusDrain(Span(at(30), at(30) + second), b"1"),)
    assert plan([windows[0], replace(windows[1], covered_from=at(30))]).drains == ()


def test_drains_on_both_sides_of_a_landed_window_are_separate():
    windows = [
        recorded_window("w0", (-60, 0), (-50, -1), through=b"0"),
        recorded_window("w2", (20, 40), (20, 39), through=b"2"),
    ]
    assert plan(windows).drains == (BusDrain(span(0, 20), b"0"), BusDrain(span(40, 60), b"2"))


def test_unconfirmed_time_is_drained_by_backfills_but_not_by_live_runs():
    windows = [
        recorded_window("w1", (-30, 20), (-20, 19), through=b"1"),
        recorded_window("w2", (20, 20), (21, 59), through=b"2", previous="w1", contact=61),
    ]
    live = plan(windows, live=True)
    assert (ids(live), live.drains, live.unconfirmed) == (["w1", "w2"], (), (span(20, 60),))
    backfill = plan(windows)
    assert (backfill.drains, backfill.unconfirmed) == ((BusDrain(span(20, 60), b"1"),), ())
    expired = plan(windows, live=True, horizon=100)
    assert (expired.missing, expired.unconfirmed) == ((), (span(20, 60),)), "the live windows may hold the events"


def test_a_hole_before_the_live_windows_is_drained_by_a_live_run_too():
    first = recorded_window("w1", (30, None), (31, 40), through=b"1", contact=61)
    result = plan([first], live=True)
    assert (result.drains, result.unconfirmed) == ((BusDrain(span(0, 30), None),), (span(30, 60),))
    broken = recorded_window("w0", (0, 10), (1, 2), through=b"0")
    assert plan([broken, first], live=True).drains == (BusDrain(span(10, 30), b"0"),)
    gap = recorded_window("w2", (45, None), (46, 50), previous="w1", gap=recorded_gap(35, 44), contact=61)
    result = plan([first, gap], live=True)
    assert (result.missing, result.unconfirmed) == ((span(35, 45),), (span(45, 60),))


def test_window_without_a_covered_span_is_returned_but_covers_no_time():
    result = plan([recorded_window("w1", events=(10, 50), through=b"1")])
    assert (ids(result), result.drains) == (["w1"], (BusDrain(span(0, 60), None),))
    only_until = recorded_window("w1", (None, 30), (10, 20), through=b"1")
    assert plan([only_until], interval=(30, 60)).drains == (BusDrain(span(30, 60), b"1"),)


def test_window_without_known_times_is_returned_where_its_events_may_count():
    assert ids(plan([recorded_window("w1", event_count=3, through=b"1")])) == ["w1"]
    assert ids(plan([recorded_window("w1", event_count=3, through=b"1", contact=-1)])) == []


def test_part_across_the_horizon_is_split():
    windows = [recorded_window("w1", (10, 20), (10, 19), through=b"1")]
    assert plan(windows, horizon=40).missing == (span(0, 10), span(20, 40))
    assert plan(windows, horizon=40).drains == (BusDrain(span(40, 60), None),)


def test_span_of_a_gap_is_missing_unless_a_window_covers_it():
    windows = [recorded_window("backfill", (20, 30), (20, 29), through=b"b", kind="backfill")]
    result = plan(windows, gaps=[recorded_gap(10, 40)])
    assert result.missing == (span(10, 20), span(30, 40))
    assert [drain.span for drain in result.drains] == [span(0, 10), span(40, 60)]


def test_gap_without_a_start_is_unlimited_and_a_reversed_gap_loses_nothing():
    assert plan([], gaps=[recorded_gap(None, 40)]).missing == (span(0, 40),)
    assert plan([], gaps=[recorded_gap(40, 30)]).missing == ()


def test_gap_of_a_window_counts_without_a_record_in_the_store():
    window = recorded_window("w1", (40, 90), (40, 80), gap=recorded_gap(10, 40))
    assert plan([window]).missing == (span(10, 40),)


def test_gap_lasts_until_the_next_window_begins():
    gap = recorded_gap(10, 30)
    windows = [
        recorded_window("before", (-60, 20), (-60, 10)),
        recorded_window("after", (40, 50), (40, 49), gap=gap),
    ]
    for gaps in ([], [gap]):
        result = plan(windows, gaps=gaps)
        assert result.missing == (span(20, 40),)
        assert [part.span for part in result.drains] == [span(50, 60)]


def test_aged_position_is_not_used_for_a_drain():
    windows = [
        recorded_window("w1", (-60, -30), (-50, -40), through=b"1"),
        recorded_window("w2", (-30, 0), through=b"1", after=b"1", previous="w1"),
    ]
    assert plan(windows, horizon=-41).drains == (BusDrain(span(0, 60), b"1"),)
    assert plan(windows, horizon=-40).drains == (BusDrain(span(0, 60), None),)
    confirmed = replace(windows[1], through=b"2")
    assert plan([windows[0], confirmed], horizon=-40).drains == (BusDrain(span(0, 60), b"2"),)


def test_future_event_time_does_not_change_the_age_of_a_position():
    ahead = recorded_window("w1", (-60, -30), (-50, 40_000), through=b"1")
    assert plan([ahead], horizon=-31).drains == (BusDrain(span(0, 60), b"1"),)
    assert plan([ahead], horizon=-30).drains == (BusDrain(span(0, 60), None),)


def test_position_is_used_only_if_its_drain_ended_before_the_span():
    window = recorded_window("w1", (-60, -10), (-50, -40), through=b"1", contact=5)
    assert plan([window]).drains == (BusDrain(span(0, 60), None),), "an event of minute 3 may precede the position"
    assert plan([window], interval=(5, 60)).drains == (BusDrain(span(5, 60), b"1"),)


def test_positions_up_to_a_gap_are_not_used_for_a_drain():
    windows = [
        recorded_window("w1", (-60, -30), (-50, -40), through=b"1"),
        recorded_window("w2", (-30, 0), (-20, -5), through=b"2", previous="w1"),
    ]
    assert plan(windows, gaps=[recorded_gap(-5, 0, b"2")]).drains == (BusDrain(span(0, 60), None),)
    assert plan(windows[:1], gaps=[recorded_gap(-40, -1)]).drains == (BusDrain(span(0, 60), None),)
    assert plan(windows[:1], gaps=[recorded_gap(-41, -1)]).drains == (BusDrain(span(0, 60), b"1"),)
    assert plan(windows, gaps=[recorded_gap(None, -1, b"2")]).drains == (BusDrain(span(0, 60), b"1"),)


def test_last_of_several_positions_at_one_time_is_used():
    windows = [
        recorded_window("w1", (-60, 0), (-50, -1), through=b"1"),
        recorded_window("w2", (0, 0), (0, 0), through=b"2", previous="w1"),
    ]
    assert plan(windows).drains == (BusDrain(span(0, 60), b"2"),)
    assert plan(windows[::-1]).drains == (BusDrain(span(0, 60), b"2"),)


def sibling(window_id: str, covered: tuple[int | None, int | None], contact: int, **more: Any) -> ReplayWindow:
    """Return a backfill window with events; its name is its last replay ID."""
    more = {"events": (0, contact), "through": window_id.encode(), "counts": -5_000} | more
    return recorded_window(window_id, covered, kind="backfill", contact=contact, **more)


def test_backfill_window_of_a_sibling_run_is_continued():
    first = sibling("1", (-100, None), 90)
    second = sibling("2", (-100, None), 95, after=b"1", previous="1")
    for windows in ([first, second], [second, first]):
        result = plan(windows)
        assert (ids(result), result.drains) == (["1", "2"], (BusDrain(span(0, 60), b"2"),))
        position = result.drains[0].position
        assert position is not None
        assert (position.continued_id, position.contact_at, position.published_from) == ("2", at(95), at(-5_000))
    live = recorded_window("live", (92, None), (93, 99), event_count=5)
    assert least_events(plan([first]).drains, [live]) == 5
    assert least_events(plan([first, second]).drains, [live]) == 0, "it began before the end of the second window"


def test_backfill_window_is_not_continued_if_events_after_the_start_may_precede_it():
    earliest = BusDrain(span(0, 60), None)
    begun_later = sibling("1", (5, None), 90, after=b"0")
    assert plan([begun_later]).drains == (earliest,)
    assert plan([begun_later], interval=(5, 60)).drains == (BusDrain(span(5, 60), b"1"),)
    unproven = sibling("1", (None, None), 90)
    assert plan([unproven]).drains == (BusDrain(span(0, 60), b"1"),), "it began at the earliest event"
    assert plan([replace(unproven, after=b"0")]).drains == (earliest,)
    second = sibling("2", (-100, None), 95, after=b"1", previous="1")
    assert plan([second]).drains == (earliest,), "the first window is missing"
    proven = sibling("1", (-100, None), 90)
    assert plan([proven], breaks=[span(70, 90)]).drains == (BusDrain(span(0, 60), b"1"),)
    assert plan([proven], breaks=[span(70, 91)]).drains == (earliest,)
    assert plan([proven, second], breaks=[span(70, 91)]).drains == (earliest,)
    assert plan([proven], gaps=[recorded_gap(70, 95, b"1")]).drains == (earliest,)


def test_coverage_of_a_backfill_window_needs_the_windows_that_it_continues():
    first = sibling("1", (-100, None), 90)
    for second in (
        sibling("2", (-100, 94), 95, after=b"1", previous="1"),
        sibling("2", (-100, 94), 95, after=b"1", previous="1", events=None),
    ):
        read = ["1", "2"] if second.event_count else ["1"]
        for windows in ([first, second], [second, first]):
            assert (ids(plan(windows)), plan(windows).drains) == (read, ())
        assert [drain.span for drain in plan([second]).drains] == [span(0, 60)]
        inside = plan([first, second], breaks=[span(50, 93)])
        assert [drain.span for drain in inside.drains] == [span(50, 60)], "the first window was drained before its end"
    live = recorded_window("live", (-60, 99), (-50, 80), through=b"3")
    assert ids(plan([first, second, live])) == ["live"]


def test_redundant_backfill_window_is_left_out():
    live = recorded_window("live", (-60, 90), (-50, 80), through=b"1")
    backfill = recorded_window("backfill", (0, 65), (0, 64), through=b"b", kind="backfill")
    assert ids(plan([backfill, live])) == ["live"]
    short = replace(live, covered_until=at(58))
    assert ids(plan([backfill, short])) == ["live", "backfill"]


def test_one_of_several_equal_backfill_windows_is_returned():
    windows = [
        recorded_window(f"b{end}", (-60, end), (-60, end - 1), through=bytes([end]), kind="backfill")
        for end in (70, 80, 90)
    ]
    assert ids(plan(windows)) == ["b70"]
    assert ids(plan(windows, interval=(0, 75))) == ["b80"]


def test_live_windows_are_in_chain_order_with_backfill_windows_between_by_time():
    windows = [
        recorded_window("a", (40, 90), (40, 80), previous="b"),
        recorded_window("b", (45, 50), (45, 49), previous="c"),  # recorded with a fast clock
        recorded_window("c", (0, 10), (5, 9)),
        recorded_window("d", (20, 40), (20, 39), kind="backfill"),
    ]
    assert ids(plan(windows)) == ["c", "d", "b", "a"]


def test_earlier_of_two_successors_of_a_window_is_first():
    windows = [
        recorded_window("b", (40, 90), (40, 80), previous="c"),
        recorded_window("a", (20, 40), (20, 39), previous="c"),
        recorded_window("c", (0, 20), (5, 9)),
    ]
    assert ids(plan(windows)) == ["c", "a", "b"]


def test_circular_chain_still_returns_every_window():
    windows = [
        recorded_window("a", (0, 30), (0, 29), previous="b"),
        recorded_window("b", (30, 90), (30, 59), previous="a"),
    ]
    assert sorted(ids(plan(windows))) == ["a", "b"]
    assert sorted(ids(plan(windows, live=True))) == ["a", "b"]


def test_repeated_local_hour_is_planned_in_utc():
    berlin = ZoneInfo("Europe/Berlin")
    start = datetime(2026, 10, 25, 2, 30, tzinfo=berlin)
    end = datetime(2026, 10, 25, 3, 0, tzinfo=berlin)  # an hour and a half later
    result = plan_interval(Span(start, end), windows=[], gaps=[], horizon=at(-100_000), live=False)
    (drain,) = result.drains
    assert drain.span == Span(datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 25, 2, 0, tzinfo=UTC))


# Comparison with a model of single minutes.

LAST = 60
minutes = st.integers(0, LAST)
lengths = st.integers(0, 15)


@dataclass(frozen=True)
class Case:
    """Input of a plan. All times are whole minutes, so that each minute is covered completely or not at all."""

    interval: tuple[int, int]
    windows: list[ReplayWindow]
    gaps: list[Gap]
    horizon: int
    live: bool
    breaks: list[Span]


@st.composite
def drawn_windows(draw: st.DrawFn) -> list[ReplayWindow]:
    windows: list[ReplayWindow] = []
    now, position, previous = draw(st.integers(-10, 10)), None, None
    for number in range(draw(st.integers(0, 7))):
        begin = now
        now += draw(lengths)
        sort = draw(st.sampled_from(["known", "known", "unknown", "until only", "from only", "hole"]))
        if sort == "hole":
            continue
        covered = {
            "known": (begin, now),
            "unknown": (None, None),
            "until only": (None, now),
            "from only": (begin, None),
        }
        through = f"live-{number}".encode() if draw(st.booleans()) else position
        window = recorded_window(
            f"live-{draw(st.integers(0, 9))}-{number}",
            covered[sort],
            draw(drawn_events(begin, now)),
            after=position,
            through=through,
            previous=previous,
            contact=draw(st.none() | st.integers(now, now + 5)),
        )
        windows.append(window)
        position, previous = through, window.window_id
    names = [None, "missing"]
    for number in range(draw(st.integers(0, 4))):
        begin, length = draw(minutes), draw(lengths)
        covered = draw(
            st.sampled_from([(begin, begin + length), (begin - 40, begin + 40), (begin, None), (None, None)])
        )
        previous = draw(st.sampled_from(names))
        windows.append(
            recorded_window(
                f"backfill-{number}",
                covered,
                draw(drawn_events(begin, begin + length)),
                after=None if previous is None and draw(st.booleans()) else b"after",
                through=f"backfill-{number}".encode(),
                previous=previous,
                kind="backfill",
                contact=draw(st.none() | st.integers(begin + length, begin + 60)),
            )
        )
        names.append(windows[-1].window_id)
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
        windows=windows,
        gaps=draw(st.lists(gaps, max_size=2)),
        horizon=draw(st.integers(-20, LAST + 20)),
        live=draw(st.booleans()),
        breaks=draw(st.lists(st.builds(span, st.integers(-20, 0), st.integers(1, LAST)), max_size=1)),
    )


def plan_of(case: Case) -> IntervalPlan:
    return plan(
        case.windows,
        interval=case.interval,
        gaps=case.gaps,
        horizon=case.horizon,
        live=case.live,
        breaks=case.breaks,
    )


def held(minute: int, span: Span | BusDrain) -> bool:
    span = span.span if isinstance(span, BusDrain) else span
    return span.start <= at(minute) < span.end


def continued(case: Case, window: ReplayWindow) -> list[ReplayWindow | None]:
    """Return a backfill window and those that it continues; ``None`` for a missing one."""
    if window.previous_window_id is None:
        return [window]
    (before,) = [each for each in case.windows if each.window_id == window.previous_window_id] or [None]
    return [window, *([None] if before is None else continued(case, before))]


def is_before_break(window: ReplayWindow | None, end: datetime) -> bool:
    return window is None or window.contact_at is None or window.contact_at < end


def answers(case: Case, window: ReplayWindow, minute: int) -> bool:
    if window.covered_from is None or window.covered_until is None:
        return False
    if window.kind == "backfill":
        chain = continued(case, window)
        voids = [break_ for break_ in case.breaks if any(is_before_break(each, break_.end) for each in chain)]
        if None in chain or any(held(minute, break_) for break_ in voids):
            return False
    return window.covered_from <= at(minute) < window.covered_until


def is_continuable(case: Case, window: ReplayWindow, start: datetime) -> bool:
    """Return whether a drain for the time from ``start`` on may begin where a backfill window ended."""
    chain = continued(case, window)
    if window.kind == "live" or any(is_before_break(each, break_.end) for break_ in case.breaks for each in chain):
        return False
    if window.covered_from is None:
        return chain[-1] is not None and chain[-1].after is None
    return None not in chain and window.covered_from <= start


def is_readable(case: Case, minute: int) -> bool:
    lost = any((gap.since is None or gap.since <= at(minute)) and at(minute) < gap.detected_at for gap in case.gaps)
    return at(minute) >= at(case.horizon) and not lost


@for_examples(drawn_cases(), few=40, many=400)
def test_each_minute_is_either_landed_drained_missing_or_unconfirmed(case):
    result = plan_of(case)
    start, end = case.interval
    for minute in range(start - 20, end + 20):
        drained = sum(held(minute, drain) for drain in result.drains)
        missing = sum(held(minute, lost) for lost in result.missing)
        unconfirmed = sum(held(minute, span) for span in result.unconfirmed)
        open_ = start <= minute < end and not any(answers(case, window, minute) for window in case.windows)
        assert drained + missing + unconfirmed == open_
        assert case.live or not unconfirmed
        if not unconfirmed:
            assert drained == (open_ and is_readable(case, minute))
            assert missing == (open_ and not is_readable(case, minute))
    assert all(span.end == at(end) for span in result.unconfirmed[-1:]) or any(
        answers(case, window, end - 1) for window in case.windows
    ), "an unconfirmed span extends to the end of the interval"


@for_examples(drawn_cases(), few=40, many=400)
def test_windows_with_countable_events_are_returned_unless_other_windows_hold_them(case):
    result = plan_of(case)
    start, end = (at(minute) for minute in case.interval)
    assert len(set(ids(result))) == len(result.landed)

    def may_count(window: ReplayWindow) -> bool:
        first, last = window.counts_from, window.contact_at
        if first is not None and last is not None:
            last = max(first, last)
        return bool(window.event_count) and (first is None or first < end) and (last is None or last >= start)

    holding = {window.window_id for window in case.windows if may_count(window)}
    assert set(ids(result)) <= holding
    left_out = holding - set(ids(result))
    others = [window for window in case.windows if window.window_id not in left_out]
    for window in (window for window in case.windows if window.window_id in left_out):
        assert window.kind == "backfill"
        first, last = (
            max(window.counts_from or start, start),
            min(window.contact_at or end, end),
        )
        for minute in range((first - HOUR) // MINUTE, (last - HOUR) // MINUTE):
            assert any(
                answers(case, other, minute)
                and not left_out & {each.window_id for each in continued(case, other) if each}
                for other in others
            )


@for_examples(drawn_cases(), few=40, many=400)
def test_a_drain_begins_at_the_nearest_position_that_can_be_read(case):
    for drain in plan_of(case).drains:
        eligible = [
            window
            for window in case.windows
            if window.through is not None
            and window.contact_at is not None
            and (window.contact_at <= drain.span.start or is_continuable(case, window, drain.span.start))
            and position_is_readable(case, window.through)
        ]
        if drain.after is None:
            assert not eligible
        else:
            nearest = max(window.contact_at for window in eligible)
            assert drain.after in {window.through for window in eligible if window.contact_at == nearest}


def position_is_readable(case: Case, replay_id: bytes) -> bool:
    known = []
    for window in (window for window in case.windows if window.through == replay_id):
        times = [time for time in (window.last_event_time, window.contact_at) if time is not None]
        if window.event_count:
            known += [min(times)] if times else []
        elif window.after != replay_id and window.contact_at is not None:
            known.append(window.contact_at)
    refused = any(
        gap.after == replay_id or (gap.since is not None and known and max(known) <= gap.since) for gap in case.gaps
    )
    return bool(known) and max(known) > at(case.horizon) and not refused


@for_examples(drawn_cases(), st.randoms(), few=30, many=200)
def test_order_of_the_input_does_not_change_the_plan(case, rng):
    windows, gaps = [*case.windows, *case.windows[:2]], list(case.gaps)
    rng.shuffle(windows)
    rng.shuffle(gaps)
    assert plan_of(replace(case, windows=windows, gaps=gaps)) == plan_of(case)


@for_examples(drawn_cases(), few=60, many=200)
def test_plan_results_are_sorted(case):
    result = plan_of(case)
    assert list(result.missing) == sorted(result.missing)
    assert list(result.unconfirmed) == sorted(result.unconfirmed)
    assert [drain.span for drain in result.drains] == sorted(drain.span for drain in result.drains)
    place = {window.window_id: place for place, window in enumerate(result.landed)}
    for window in result.landed:
        if window.kind == "live" and window.previous_window_id in place:
            assert place[window.previous_window_id] < place[window.window_id]


# Event bus with wrong event times: every landed event counts in one interval, and every loss is reported.


@dataclass(frozen=True)
class Event:
    """Event with the minutes of its publication, of its receipt, and of its stated time."""

    published: int
    received: int
    happened: int


@for_examples(st.integers(0, 2**32), few=100, many=1000)
def test_each_landed_event_counts_once_over_the_intervals_of_a_day(seed):
    rng = random.Random(seed)  # spread evenly: drawn values would cluster at the edges
    published = sorted(rng.randrange(LAST) for _ in range(rng.randrange(60)))
    windows, landed = drained_at_times(rng, published)
    borders = [-2_000, *sorted(rng.sample(range(1, LAST), 3)), LAST + 100]
    counted: list[Event] = []
    for interval in pairwise(borders):
        for window in plan(windows, interval=interval, live=True).landed:
            counted += [
                event for event in landed[window.window_id] if interval[0] <= counts_at(event, window) < interval[1]
            ]
    assert sorted(counted, key=repr) == sorted((event for part in landed.values() for event in part), key=repr)


@for_examples(st.integers(0, 2**32), few=100, many=1000)
def test_an_interval_without_anything_unconfirmed_is_complete(seed):
    rng = random.Random(seed)
    published = sorted(rng.randrange(LAST) for _ in range(rng.randrange(60)))
    windows, landed = drained_at_times(rng, published)
    start = rng.randrange(LAST)
    interval = (start, start + rng.randrange(1, 20))
    result = plan(windows, interval=interval, live=True)
    assert not result.drains
    if not result.unconfirmed:
        has = sum(len(part) for part in landed.values())
        assert all(minute < interval[0] or minute >= interval[1] for minute in published[has:])


def counts_at(event: Event, window: ReplayWindow) -> int:
    begin = -10_000 if window.counts_from is None else (window.counts_from - HOUR) // MINUTE
    return max(min(event.happened, event.received), begin)


def drained_at_times(rng: random.Random, published: list[int]) -> tuple[list[ReplayWindow], dict[str, list[Event]]]:
    """Return the windows of a stream that is drained at random times, and their events. Responses may be slow."""
    windows: list[ReplayWindow] = []
    landed: dict[str, list[Event]] = {}
    place, known, now = 0, -1_000, 0
    while now < LAST:
        started = now
        now += rng.randrange(1, 15)  # duration of the drain
        there = sum(minute < rng.randrange(started, now + 1) for minute in published)
        place, begin = max(place, there), place
        is_confirmed = rng.random() < 0.5
        if is_confirmed:
            place = max(place, sum(minute < started for minute in published))
        elif begin < place and rng.random() < 0.5:
            place = rng.randrange(begin, place + 1)  # the drain reached a limit
        name = f"live-{len(windows)}"
        landed[name] = [
            Event(at_minute, min(now, at_minute + rng.randrange(5)), at_minute + rng.choice([0, 0, 0, -900, 900]))
            for at_minute in published[begin:place]
        ]
        times = [event.happened for event in landed[name]]
        until = started if is_confirmed else known
        windows.append(
            recorded_window(
                name,
                (known, until),
                (min(times), max(times)) if times else None,
                event_count=len(times),
                through=str(place).encode(),
                previous=windows[-1].window_id if windows else None,
                contact=now,
            )
        )
        known = max(known, until)
        now += rng.randrange(10)
    return windows, landed


def manifest_of(window: ReplayWindow, *, untimed: int | None, started: int) -> Manifest:
    stream = Stream("00Dxx0000001gPLEAY", "pubsub", "/event/Order__e")
    files = (WindowFile("part-0.parquet", window.event_count, 1, "00"),)
    return Manifest(stream, window, 0, files, {}, 0, "idle", at(started), at(started + 1), "0", untimed_events=untimed)


def test_window_of_events_without_times_may_count_in_any_interval() -> None:
    drained_at_90 = {"through": b"1", "contact": 91}
    without_times = recorded_window("w", (0, None), event_count=3, **drained_at_90)
    assert may_count_in(span(0, 10), manifest_of(without_times, untimed=None, started=90)), (
        "the number of untimed events is unknown"
    )
    assert may_count_in(span(0, 10), manifest_of(without_times, untimed=3, started=90)), (
        "the start of the window has only a worker's time"
    )
    counting = replace(without_times, counts_from=at(89))
    assert not may_count_in(span(0, 10), manifest_of(counting, untimed=3, started=90)), (
        "untimed events count at their receipt"
    )
    assert may_count_in(span(90, 95), manifest_of(without_times, untimed=3, started=90))
    with_times = recorded_window("w", (0, None), (20, 30), **drained_at_90)
    assert not may_count_in(span(0, 10), manifest_of(with_times, untimed=0, started=90))
    assert may_count_in(span(30, 40), manifest_of(with_times, untimed=0, started=90))
    assert not may_count_in(span(40, 50), manifest_of(with_times, untimed=0, started=90))
    assert may_count_in(span(85, 95), manifest_of(with_times, untimed=1, started=90)), "one event has no time"
    late = recorded_window("w", (80, None), (20, 30), **drained_at_90)
    assert may_count_in(span(80, 81), manifest_of(late, untimed=0, started=90)), (
        "events count from the beginning of the window"
    )
    assert not may_count_in(span(20, 31), manifest_of(late, untimed=0, started=90))
    ahead = recorded_window("w", (80, None), (500, 600), **drained_at_90)
    assert may_count_in(span(90, 92), manifest_of(ahead, untimed=0, started=90)), (
        "events count at their receipt at the latest"
    )
