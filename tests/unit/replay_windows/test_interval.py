"""Interval runs: windows from the landing and from the event bus, missing spans, and confirmations."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import compress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_sfstream.exceptions import IntervalNotEndedError, ReplayIdLostError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.replay_stores.document.store import DocumentReplayStore
from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
from airflow_provider_sfstream.replay_windows.incremental import WindowRequest, drain_window
from airflow_provider_sfstream.replay_windows.interval import IntervalOutcome, IntervalRequest, drain_interval
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.salesforce.events import CONFIRM_TIMEOUT
from airflow_provider_sfstream.salesforce.streams import Gap, RunIdentity, Span, Stream
from airflow_provider_sfstream.salesforce.topics import LONG_RETENTION, SHORT_RETENTION
from airflow_provider_sfstream.streams.drain.drain import Drain
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from airflow_provider_sfstream.streams.drain.result import ConfirmedEnd
from airflow_provider_sfstream.streams.source import StartFrom
from tests.support.killed import Killed, killed_at
from tests.support.scripted_source import (
    Deliver,
    Event,
    FakeTime,
    ScriptedSource,
    Silence,
    Step,
    avro_payload,
    replay_id,
)

STREAM = Stream("00Dxx0000001gPLEAY", "pubsub", "/event/Order__e")
MIDNIGHT = datetime(2026, 11, 20, tzinfo=UTC)
MINUTES = 12 * 60
TIMES = {replay_id(3 * n + 3): MIDNIGHT + timedelta(minutes=n) for n in range(MINUTES)}
EVENTS = [Event(id_, avro_payload(int(time.timestamp() * 1_000))) for id_, time in TIMES.items()]


class Variables:
    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def name(self, key: str) -> str:
        return key

    def get(self, key: str) -> str | None:
        return self.values.get(key)

    def set(self, key: str, value: str, description: str) -> None:
        self.values[key] = value


def hours(first: float, last: float) -> Span:
    return Span(MIDNIGHT + timedelta(hours=first), MIDNIGHT + timedelta(hours=last))


class World:
    """Stream with an event each minute, a landing, and a replay store. The clock does not move during a run."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.catalog = LandingCatalog(Landing.from_url(str(folder / "landing")))
        self.store: Any = (
            TableReplayStore(f"sqlite:///{folder / 'store.db'}", clock=lambda: self.now)
            if kind == "table"
            else DocumentReplayStore(catalog=self.catalog, variables=Variables(), clock=lambda: self.now)
        )
        self.now = MIDNIGHT
        self.expired = 0
        self.opened = 0
        self.confirms_end = True
        self.measures_time = True
        self.ahead = timedelta(0)
        self.stalled = timedelta(0)
        self.login = timedelta(0)
        self.retention: timedelta | None = LONG_RETENTION
        self.time = FakeTime()

    @contextmanager
    def source(self) -> Iterator[ScriptedSource]:
        self.opened += 1
        self.now += self.login
        published = [event for event in EVENTS if TIMES[event.replay_id] <= self.now - self.stalled]
        script: list[Step] = [*[Deliver(100)] * (len(published) // 100 + 1), Silence(), Silence()]
        source = ScriptedSource(published, [] if self.confirms_end else script, self.time, self.expired, began=self.now)
        source.reference = [source.stream[-1].replay_id, None] * 9 if self.confirms_end else []
        source.began, source.measures_time = self.now + self.ahead, self.measures_time
        yield source

    def incremental(self, hour: float, start_from: StartFrom = StartFrom.EARLIEST) -> None:
        """Drain all published events at ``hour``."""
        self.now = MIDNIGHT + timedelta(hours=hour)
        limits = DrainLimits(confirm_timeout=300.0, wait_for_confirmation=True)
        request = WindowRequest(self._run(f"incremental-{hour}"), limits, start_from)
        with self.source() as source:
            drain_window(self.landed, request, source=source, now=lambda: self.now)

    def interval(self, span: Span, run: str = "", *, backfill: bool = True, at: float, **more: Any) -> IntervalOutcome:
        """Run the interval ``span`` at the hour ``at``."""
        self.now = MIDNIGHT + timedelta(hours=at)
        request = IntervalRequest(
            run=self._run(run or f"{span}{backfill}", span.end),
            interval=span,
            backfill=backfill,
            limits=more.pop("limits", DrainLimits()),
            **more,
        )
        return drain_interval(self.landed, request, open_source=self.source, now=lambda: self.now)

    def _run(self, run_id: str, run_after: datetime | None = None) -> RunIdentity:
        return RunIdentity("orders", "drain", run_id, run_after or self.now)

    def events(self, outcome: IntervalOutcome) -> list[bytes]:
        """Return the replay IDs whose counting time is in the interval, with duplicates, as a job selects them."""
        found: list[bytes] = []
        for window in outcome.windows:
            folder = Path(self.catalog.landing.window_folder(STREAM, window.manifest.window.window_id))
            for file in window.manifest.files:
                rows = pq.read_table(folder / file.name, columns=["replay_id"])["replay_id"].to_pylist()
                begin = window.manifest.window.counts_from
                times = [max(TIMES[id_], begin or TIMES[id_]) for id_ in rows]
                inside = [outcome.interval.start <= time < outcome.interval.end for time in times]
                found += compress(rows, inside)
        return found

    @property
    def landed(self) -> LandedStream:
        return LandedStream(STREAM, self.catalog, self.store, lambda: self.retention)

    @property
    def position(self) -> bytes | None:
        return self.store.read(STREAM).replay_id  # type: ignore[no-any-return]


@pytest.fixture(params=["variable", "table"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path, request.param)
    monkeypatch.setitem(Drain.__init__.__kwdefaults__, "clock", made.time.clock)
    yield made
    made.store.close()


def of(span: Span) -> list[bytes]:
    return [id_ for id_, time in TIMES.items() if span.start <= time < span.end]


def facts(outcome: IntervalOutcome) -> Sequence[Any]:
    return [(each.manifest.window.window_id, each.origin) for each in outcome.windows], outcome.missing


def test_backfill_of_undrained_hours_reads_the_bus_and_moves_no_position(world: World) -> None:
    outcome = world.interval(hours(3, 4), at=6)
    assert world.events(outcome) == of(hours(3, 4))
    assert [each.origin for each in outcome.windows] == ["bus"]
    assert [each.manifest.window.kind for each in outcome.windows] == ["backfill"]
    assert outcome.confirmed_at == MIDNIGHT + timedelta(hours=6)
    assert world.position is None


def test_backfill_of_landed_windows_does_not_contact_salesforce(world: World) -> None:
    for hour in (2, 3.5, 5, 7):
        world.incremental(hour)
    position, opened = world.position, world.opened
    outcome = world.interval(hours(3, 4), at=8)
    assert world.events(outcome) == of(hours(3, 4))
    assert {each.origin for each in outcome.windows} == {"landed"}
    assert len(outcome.windows) == 2
    assert (world.position, world.opened) == (position, opened)


def test_a_backfill_reads_the_rest_of_a_half_landed_interval_from_the_bus(world: World) -> None:
    world.incremental(2)
    known = world.position
    world.incremental(3.5)
    position = world.position
    outcome = world.interval(hours(3, 5), at=6)
    assert sorted(set(world.events(outcome))) == of(hours(3, 5))
    assert [each.origin for each in outcome.windows] == ["landed", "bus"]
    assert world.position == position
    after = outcome.windows[1].manifest.window.after
    assert after == known, "the drain starts from the nearest known position, not from the earliest event"


def test_rerun_returns_the_same_windows_despite_later_landings(world: World) -> None:
    first = world.interval(hours(3, 4), at=6)
    world.incremental(7)
    opened = world.opened
    again = world.interval(hours(3, 4), at=8)
    assert facts(again) == facts(first)
    assert (first.drained, again.drained) == (True, False)
    assert world.opened == opened


def test_unconfirmed_interval_is_read_again(world: World) -> None:
    world.confirms_end = False
    first = world.interval(hours(3, 4), "the run", backfill=False, at=4.1)
    assert (first.confirmed_at, first.drained) == (None, True)
    assert set(of(hours(3, 4))) <= set(world.events(first)), "the run returns the available events"
    world.confirms_end = True
    again = world.interval(hours(3, 4), "the run", backfill=False, at=5)
    assert (again.confirmed_at, again.drained) == (MIDNIGHT + timedelta(hours=5), True)
    assert set(of(hours(3, 4))) <= set(world.events(again))
    assert not world.interval(hours(3, 4), "the run", backfill=False, at=6).drained, "now it is recorded"


def test_unconfirmed_backfill_is_read_again(world: World) -> None:
    """Salesforce responded without events, and the run ended idle."""
    world.confirms_end, world.stalled = False, timedelta(hours=5)
    first = world.interval(hours(3, 4), "the run", at=5)
    assert (world.events(first), first.confirmed_at, first.missing) == ([], None, ())
    world.confirms_end, world.stalled = True, timedelta(0)
    again = world.interval(hours(3, 4), "the run", at=6)
    assert (world.events(again), again.confirmed_at) == (of(hours(3, 4)), MIDNIGHT + timedelta(hours=6))
    assert not world.interval(hours(3, 4), "the run", at=7).drained


def test_interval_neither_landed_nor_retained_fails_and_records_nothing(world: World) -> None:
    with pytest.raises(ReplayIdLostError, match=r'can no longer be read.*on_expired="partial"'):
        world.interval(hours(3, 4), at=80)
    assert world.opened == 1, "the only contact reads Salesforce's time"
    assert world.store.gaps(STREAM) == []
    assert world.store.windows_overlapping(STREAM, MIDNIGHT, MIDNIGHT + timedelta(days=1)) == []


def test_events_that_expire_during_the_login_are_missing(world: World) -> None:
    """The hour is readable when the run begins, but its first minutes have expired when Salesforce responds."""
    world.login, world.expired = timedelta(minutes=12), 72
    with pytest.raises(ReplayIdLostError, match=r'01:00:00.*01:11:25.*on_expired="partial"'):
        world.interval(hours(1, 2), "fails", at=72.99)
    outcome = world.interval(hours(1, 2), "partial", at=72.99, on_expired="partial")
    (missing,) = outcome.missing
    assert missing == Span(MIDNIGHT + timedelta(hours=1), MIDNIGHT + timedelta(hours=1, minutes=11, seconds=25))
    assert sorted(set(world.events(outcome))) == of(Span(missing.end, MIDNIGHT + timedelta(hours=2)))
    assert outcome.confirmed_at is not None


def test_partial_returns_landed_windows_and_records_the_gap_once(world: World) -> None:
    world.incremental(4.5)
    position = world.position
    span = hours(4, 6)
    with pytest.raises(ReplayIdLostError):
        world.interval(span, at=90)
    outcome = world.interval(span, at=90, on_expired="partial")
    assert set(world.events(outcome)) == set(of(hours(4, 4.5 + 1 / 60)))
    assert [(missing.start, missing.end) for missing in outcome.missing] == [
        (MIDNIGHT + timedelta(hours=4.5), span.end)
    ]
    again = world.interval(span, at=91, on_expired="partial")
    assert facts(again) == facts(outcome)
    assert [gap.since for gap in world.store.gaps(STREAM)] == [MIDNIGHT + timedelta(hours=4.5)]
    assert world.position == position


def test_a_repeated_unconfirmed_run_records_its_growing_gap_once(world: World) -> None:
    world.confirms_end = False
    for minutes in range(0, 50, 10):
        world.expired = 4 * 60 + minutes
        outcome = world.interval(hours(4, 5), "the run", at=76 + minutes / 60, on_expired="partial")
        assert outcome.confirmed_at is None
    assert [(missing.start, missing.end > hours(4, 4.6).end) for missing in outcome.missing] == [
        (hours(4, 5).start, True)
    ]
    world.interval(hours(4, 6), "another interval", at=77, on_expired="partial")
    assert [gap.since for gap in world.store.gaps(STREAM)] == [hours(4, 5).start] * 2


def test_scheduled_intervals_move_the_position_and_hold_each_event_once(world: World) -> None:
    spans = [hours(hour, hour + 1) for hour in range(8)]
    outcomes = [world.interval(span, backfill=False, at=hour + 1 + 2 / 60) for hour, span in enumerate(spans)]
    for span, outcome in zip(spans, outcomes, strict=True):
        assert sorted(world.events(outcome)) == of(span)
        assert world.position is not None
    assert {each.manifest.window.kind for outcome in outcomes for each in outcome.windows} == {"live"}
    assert TIMES[world.position] == MIDNIGHT + timedelta(hours=8, minutes=2) if world.position else False


def test_scheduled_intervals_that_run_late_return_the_same_events(world: World) -> None:
    for hour in range(4):
        outcome = world.interval(hours(hour, hour + 1), backfill=False, at=9)
        assert sorted(world.events(outcome)) == of(hours(hour, hour + 1))
    opened = world.opened
    assert world.interval(hours(1, 2), "another", backfill=False, at=9.5).windows
    assert world.opened == opened, "the position is past the interval, and the interval is landed"


def test_backfill_beside_live_runs_does_not_affect_them(world: World) -> None:
    first = world.interval(hours(0, 1), backfill=False, at=2)
    backfilled = world.interval(hours(1, 3), at=4)
    second = world.interval(hours(1, 2), backfill=False, at=4)
    assert sorted(set(world.events(backfilled))) == of(hours(1, 3))
    assert sorted(set(world.events(second))) == of(hours(1, 2))
    ids = [each.manifest.window.window_id for each in (*first.windows, *backfilled.windows, *second.windows)]
    kinds = {
        each.manifest.window.window_id: each.manifest.window.kind for each in (*backfilled.windows, *second.windows)
    }
    assert "backfill" in kinds.values()
    assert len(world.store.windows_overlapping(STREAM, MIDNIGHT, MIDNIGHT + timedelta(days=1))) == len(set(ids))


def test_backfills_in_reverse_order_return_the_same_events(world: World) -> None:
    for hour in reversed(range(6)):
        outcome = world.interval(hours(hour, hour + 1), at=7)
        assert sorted(set(world.events(outcome))) == of(hours(hour, hour + 1))
    assert world.position is None


def test_interval_without_events_is_not_requested_again(world: World) -> None:
    outcome = world.interval(hours(20, 21), at=30)
    assert world.events(outcome) == []
    assert outcome.missing == ()
    opened = world.opened
    world.interval(hours(20, 21), "another run", at=31)
    assert world.opened == opened, "the empty interval is recorded"


def test_aged_position_does_not_fail_a_backfill(world: World) -> None:
    world.incremental(1)
    world.expired = 65
    outcome = world.interval(hours(6, 7), at=72.9)
    assert sorted(set(world.events(outcome))) == of(hours(6, 7))
    assert (outcome.missing, outcome.confirmed_at is None) == ((), False)


def test_a_refused_position_that_should_be_retained_shows_a_reset_of_the_stream(world: World) -> None:
    """A drain from the earliest event would claim hours whose events were lost in the reset."""
    world.incremental(1)
    world.expired = 5 * 60
    with pytest.raises(ReplayIdLostError, match="or the stream was reset"):
        world.interval(hours(2, 3), "fails", at=12)
    outcome = world.interval(hours(2, 3), "partial", at=12, on_expired="partial")
    assert (outcome.missing, world.events(outcome)) == ((hours(2, 3),), [])
    assert [gap.since for gap in world.store.gaps(STREAM)] == [hours(2, 3).start]


def test_backfill_claims_from_before_a_detected_gap_do_not_count(world: World) -> None:
    """No position before the hour is known, so the backfill cannot notice that the stream was reset."""
    world.expired = 5 * 60
    false = world.interval(hours(2, 3), "before", at=6)
    assert (false.missing, world.events(false)) == ((), [])
    gap = Gap(b"1", None, MIDNIGHT + timedelta(hours=1), MIDNIGHT + timedelta(hours=7), "replay ID invalid")
    world.store.record_gap(STREAM, gap)
    for run in ("before", "after"):
        with pytest.raises(ReplayIdLostError):
            world.interval(hours(2, 3), run, at=8)


@pytest.mark.parametrize("is_confirmed", [True, False])
@pytest.mark.parametrize("order", [(3, 4, 5), (5, 4, 3)], ids=["forwards", "backwards"])
def test_backfills_of_neighbouring_hours_return_the_events_of_their_own_hour(
    world: World, order: tuple[int, ...], is_confirmed: bool
) -> None:
    """The first window also has events from before its hour, and the next ones continue it. Each is read once."""
    world.incremental(2)
    known, windows = world.position, {}
    world.confirms_end = is_confirmed
    for number, hour in enumerate(order):
        outcome = world.interval(hours(hour, hour + 1), at=7 + number / 10)
        assert sorted(set(world.events(outcome))) == of(hours(hour, hour + 1))
        assert (outcome.confirmed_at is not None) == is_confirmed
        windows |= {manifest.window.window_id: manifest.window for manifest in outcome.own}
    last = MIDNIGHT + timedelta(hours=7 if is_confirmed else 7.2)
    delivered = sum(window.event_count for window in windows.values())
    assert delivered == len([time for id_, time in TIMES.items() if known is not None and id_ > known and time <= last])


@pytest.mark.parametrize("new_events", [True, False])
def test_end_confirmed_for_one_hour_confirms_the_hours_whose_windows_it_continues(
    world: World, new_events: bool
) -> None:
    world.confirms_end = False
    first = world.interval(hours(3, 4), at=6)
    world.confirms_end = True
    second = world.interval(hours(4, 5), at=6 + new_events)
    opened = world.opened
    for span in (hours(3, 4), hours(4, 5), hours(2, 3)):
        outcome = world.interval(span, f"again {span}", at=8)
        assert sorted(world.events(outcome)) == of(span)
        assert outcome.confirmed_at == second.confirmed_at != first.confirmed_at
    assert world.opened == opened


def test_late_event_of_a_backfill_counts_in_its_own_hour(world: World) -> None:
    """Salesforce delivered the rest of the hour after the window of its run had ended."""
    world.confirms_end, world.stalled = False, timedelta(hours=2.5)
    early = world.events(world.interval(hours(3, 4), at=6))
    assert early == of(hours(3, 3.5 + 1 / 60))
    world.stalled = timedelta(0)
    for hour in (4, 3):
        assert sorted(world.events(world.interval(hours(hour, hour + 1), at=6.1))) == of(hours(hour, hour + 1))


def test_aged_position_of_a_backfill_window_is_not_continued(world: World) -> None:
    world.confirms_end = False
    world.interval(hours(3, 4), at=6)
    world.expired = 7 * 60
    outcome = world.interval(hours(8, 9), at=77.5)
    assert sorted(world.events(outcome)) == of(hours(8, 9))
    assert outcome.missing == ()


def test_reset_after_a_window_is_found_when_it_is_continued(world: World) -> None:
    world.confirms_end = False
    world.interval(hours(3, 4), at=6)
    world.expired = 7 * 60
    with pytest.raises(ReplayIdLostError, match="or the stream was reset"):
        world.interval(hours(4, 5), at=8)


@pytest.mark.parametrize("retention", [SHORT_RETENTION, None], ids=["standard volume", "unknown"])
def test_hour_before_the_retention_of_its_events_is_missing(world: World, retention: timedelta | None) -> None:
    world.retention, world.expired = retention, MINUTES
    with pytest.raises(ReplayIdLostError, match="Salesforce retains its events for 24 hours"):
        world.interval(hours(3, 4), "fails", at=33)
    outcome = world.interval(hours(3, 4), "partial", at=33, on_expired="partial")
    assert (outcome.missing, outcome.windows, outcome.confirmed_at) == ((hours(3, 4),), (), None)


def test_backfill_from_the_earliest_event_checks_the_recorded_position(world: World) -> None:
    """No position before the hour is known. Only the recorded position shows that the stream was reset."""
    world.incremental(5, StartFrom.LATEST)
    world.expired = 7 * 60
    with pytest.raises(ReplayIdLostError, match="or the stream was reset"):
        world.interval(hours(2, 3), "fails", at=8)
    outcome = world.interval(hours(2, 3), "partial", at=8, on_expired="partial")
    assert (outcome.missing, world.events(outcome), outcome.confirmed_at) == ((hours(2, 3),), [], None)


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_recorded_position_of_unknown_age_confirms_only_when_it_is_read(world: World, is_refused: bool) -> None:
    """The position may have aged out, so its refusal neither proves nor disproves a reset of the stream."""
    world.measures_time = False
    world.incremental(5, StartFrom.LATEST)
    world.measures_time = True
    world.expired = 7 * 60 if is_refused else 0
    outcome = world.interval(hours(2, 3), at=8)
    assert (outcome.missing, world.events(outcome)) == ((), [] if is_refused else of(hours(2, 3)))
    assert outcome.confirmed_at == (None if is_refused else MIDNIGHT + timedelta(hours=8))


def test_recorded_position_is_checked_within_the_longest_retention(world: World) -> None:
    """An unknown retention is assumed to be a day, but a position of 30 hours is not too old to check."""
    world.retention = None
    world.incremental(5, StartFrom.LATEST)
    world.expired = MINUTES
    outcome = world.interval(hours(20, 21), at=35)
    assert (outcome.missing, outcome.confirmed_at) == ((), None)


def test_event_time_of_a_year_ago_does_not_age_the_recorded_position(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.incremental(5, StartFrom.LATEST)
    year_ago = int((MIDNIGHT - timedelta(days=365)).timestamp() * 1_000)
    misdated = [replace(event, payload=avro_payload(year_ago)) if n == 301 else event for n, event in enumerate(EVENTS)]
    monkeypatch.setitem(globals(), "EVENTS", misdated)
    world.incremental(5 + 1 / 60)
    world.expired = 7 * 60
    outcome = world.interval(hours(2, 3), at=8)
    assert (outcome.missing, outcome.confirmed_at) == ((), None)


def test_readable_recorded_position_confirms_a_backfill(world: World) -> None:
    world.incremental(5, StartFrom.LATEST)
    outcome = world.interval(hours(2, 3), at=8)
    assert (sorted(world.events(outcome)), outcome.missing) == (of(hours(2, 3)), ())
    assert outcome.confirmed_at == MIDNIGHT + timedelta(hours=8)


def test_drain_starts_from_a_position_confirmed_in_the_future(world: World) -> None:
    """The position was confirmed while Salesforce's clock was fast."""
    world.ahead = timedelta(hours=2.5)
    world.interval(hours(1, 2), backfill=False, at=2.1)
    world.ahead = timedelta(0)
    for hour in (2, 3, 4):
        opened = world.opened
        outcome = world.interval(hours(hour, hour + 1), backfill=False, at=hour + 1.1)
        assert sorted(world.events(outcome)) == of(hours(hour, hour + 1))
        assert (outcome.drained, world.opened) == (True, opened + 1)


def test_covered_span_in_the_future_does_not_count(world: World) -> None:
    world.ahead = timedelta(hours=2.5)
    world.interval(hours(1, 2), backfill=False, at=2.1)
    world.ahead = timedelta(0)
    outcome = world.interval(hours(2, 3), at=3.1)
    assert sorted(set(world.events(outcome))) == of(hours(2, 3))
    assert outcome.confirmed_at == MIDNIGHT + timedelta(hours=3.1)


def test_a_live_run_returns_the_late_events_of_its_own_window(world: World) -> None:
    """Salesforce delivered the events after the run of their hour had ended. The window has no other events."""
    world.confirms_end = False
    world.stalled = timedelta(hours=0.5)
    first = world.interval(hours(3, 4), backfill=False, at=4.1)
    assert (set(of(hours(3.7, 4))) & set(world.events(first)), first.confirmed_at) == (set(), None)
    world.stalled = timedelta(hours=1.2)
    second = world.interval(hours(4, 5), backfill=False, at=5.1)
    (late,) = (each.manifest for each in second.windows if each.origin == "bus")
    assert (late.window.last_event_time, late.window.event_count) == (MIDNIGHT + timedelta(hours=3.9), 18)
    assert late.late_before == first.windows[-1].manifest.window.contact_at


def test_result_recorded_in_the_future_does_not_count(world: World) -> None:
    """The result was recorded while a clock was fast."""
    first = world.interval(hours(3, 4), at=9)
    opened = world.opened
    again = world.interval(hours(3, 4), at=6)
    assert (first.drained, again.drained, world.opened) == (True, True, opened + 1)


def test_result_recorded_without_evidence_does_not_count(world: World) -> None:
    """No run writes such a record; a user may have edited it."""
    world.interval(hours(3, 4), at=6)
    landing = world.landed.catalog.landing
    (path,) = landing.filesystem.find(f"{landing.stream_folder(world.landed.stream)}/intervals")
    document = json.loads(landing.filesystem.cat_file(path))
    landing.filesystem.pipe_file(path, json.dumps({**document, "confirmed_at": None}).encode())
    assert world.interval(hours(3, 4), at=6).drained


def test_an_interval_that_has_not_ended_by_salesforces_clock_fails(world: World) -> None:
    run = world._run("fast", MIDNIGHT)
    request = IntervalRequest(run=run, limits=DrainLimits(), interval=hours(5, 6), backfill=False)
    world.now = MIDNIGHT + timedelta(hours=3.5)
    with pytest.raises(IntervalNotEndedError, match="Salesforce's clock shows 2026-11-20T03:30"):
        drain_interval(
            world.landed, request, open_source=world.source, now=lambda: world.now + timedelta(hours=2, minutes=31)
        )
    assert sorted(world.events(world.interval(hours(3, 4), backfill=False, at=4.1))) == of(hours(3, 4))


def test_without_salesforces_time_nothing_is_claimed(world: World) -> None:
    world.measures_time = False
    outcome = world.interval(hours(3, 4), backfill=False, at=5)
    assert outcome.confirmed_at is None
    assert set(of(hours(3, 4))) <= set(world.events(outcome))
    times = {(each.manifest.window.contact_at, each.manifest.window.covered_until) for each in outcome.windows}
    assert times == {(None, None)}


def test_interval_is_read_whole_despite_limits(world: World) -> None:
    limits = DrainLimits(max_seconds=0.000_001, max_events=1, max_bytes=1)
    assert world.events(world.interval(hours(3, 9), at=10, limits=limits)) == of(hours(3, 9))
    assert sorted(world.events(world.interval(hours(0, 1), backfill=False, at=10, limits=limits))) == of(hours(0, 1))


@pytest.mark.parametrize("waits", [False, True])
def test_an_interval_waits_for_the_end_of_the_stream_only_if_requested(world: World, waits: bool) -> None:
    world.confirms_end = False
    limits = DrainLimits(wait_for_confirmation=waits)
    assert world.interval(hours(3, 4), backfill=False, at=4.1, limits=limits).confirmed_at is None
    assert (world.time.seconds >= CONFIRM_TIMEOUT) == waits


@pytest.mark.parametrize("offset", [-3, 0, 3])
def test_an_end_that_a_trigger_confirmed_counts_only_for_the_recorded_position(world: World, offset: int) -> None:
    """A reset or another run may have moved the position since: events that the trigger has not seen may follow it."""
    world.incremental(2.5)
    after = replay_id(3 * 150 + 3 + offset)
    end = ConfirmedEnd(after, after, *(MIDNIGHT + timedelta(hours=hour) for hour in (3.1, 3.2)))
    opened = world.opened

    outcome = world.interval(hours(2, 3), backfill=False, at=3.5, confirmed_end=end)

    assert world.opened == opened + (offset != 0)
    assert sorted(world.events(outcome)) == of(hours(2, 3) if offset else hours(2, 2.5 + 1 / 60))


def side_effects(world: World) -> list[tuple[Any, str]]:
    """Return every call by which a run changes state outside its process."""
    filesystem = world.catalog.landing.filesystem
    names = ("makedirs", "open", "pipe_file", "mv", "rm_file", "rm", "mkdir")
    stored = ("advance", "record_backfill", "record_gap")
    calls: list[tuple[Any, str]] = [(filesystem, name) for name in names]
    return [*calls, (world.catalog, "write_manifest"), *((world.store, name) for name in stored)]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("sort", ["scheduled", "backfill", "continued"])
@pytest.mark.parametrize("kind", ["variable", pytest.param("table", marks=pytest.mark.extended)])
def test_retry_of_a_killed_interval_run_equals_an_undisturbed_run(
    kind: str, sort: str, after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half_landed(folder: str) -> World:
        (tmp_path / folder).mkdir()
        made = World(tmp_path / folder, kind)
        monkeypatch.setitem(Drain.__init__.__kwdefaults__, "clock", made.time.clock)
        made.incremental(3.5)
        if sort == "continued":
            made.confirms_end = False
            made.interval(hours(4, 5), at=6)
        return made

    def run(made: World) -> IntervalOutcome:
        if sort == "continued":
            return made.interval(hours(5, 7), at=8)
        # The interval is partly expired, partly landed, and partly still on the bus.
        return made.interval(hours(-70, 5), backfill=sort == "backfill", at=73.2, on_expired="partial")

    expected = half_landed("undisturbed")
    outcome = run(expected)
    assert bool(outcome.missing) == (sort != "continued")
    nth = 0
    while True:
        nth += 1
        world = half_landed(f"killed-{nth}")
        with killed_at(side_effects(world), nth, after=after) as made, suppress(Killed):
            run(world)
        if made() < nth:
            break
        again = run(world)
        assert (facts(again)[0], again.missing) == (facts(outcome)[0], outcome.missing), f"killed at change {nth}"
        assert world.events(again) == expected.events(outcome)
        assert world.position == expected.position
        assert len(world.store.gaps(STREAM)) == len(expected.store.gaps(STREAM))
        world.store.close()
    assert nth > 5
    expected.store.close()
