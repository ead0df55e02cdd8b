"""A PushTopic that is quiet for longer than its replay IDs can be read: nothing is lost, nothing comes twice."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest

from airflow_provider_sfstream.drain.drain import drain
from airflow_provider_sfstream.drain.limits import DrainLimits
from airflow_provider_sfstream.exceptions import ReplayIdLostError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.protocol.events import EventBatch
from airflow_provider_sfstream.protocol.streams import ReplayWindow, RunIdentity, Stream
from airflow_provider_sfstream.reading.recovery import OnInvalidReplay
from airflow_provider_sfstream.reading.source import StartFrom
from airflow_provider_sfstream.runs.incremental import WindowRequest, drain_window
from airflow_provider_sfstream.runs.landed_stream import LandedStream
from airflow_provider_sfstream.stores.table.store import TableReplayStore
from tests.support.scripted_source import Deliver, Event, FakeTime, ScriptedSource, Silence, avro_payload, replay_id

STREAM = Stream("00Dxx0000001gPLEAY", "streaming", "/topic/Orders")
MONDAY = datetime(2026, 11, 16, tzinfo=UTC)
RETENTION = timedelta(hours=24)


class StreamingSource(ScriptedSource):
    """Names no replay ID in a silence, as the Streaming API does not; a poll that it may hold tells of the end."""

    confirms_positions: ClassVar[bool] = False

    def subscribe(self, *start: Any, answer_within: float | None = None, **more: Any) -> Iterator[EventBatch | None]:
        if answer_within is not None:
            self.script = [Deliver(100), Silence(), Silence(1)]
        return super().subscribe(*start, **more)

    def _batch(self, part: list[Event], latest: bytes, pending: int) -> EventBatch:
        return super()._batch(part, latest if part else b"", pending)


class QuietOrg:
    """An org that keeps events for 24 hours, and hourly runs of one DAG."""

    def __init__(self, folder: Path) -> None:
        self.catalog = LandingCatalog(Landing.from_url(str(folder / "landing")))
        self.now = MONDAY
        self.store = TableReplayStore(f"sqlite:///{folder / 'store.db'}", clock=lambda: self.now)
        self.events: list[Event] = []
        self.starts: list[bytes | StartFrom] = []
        self.numbers = count(1)
        self.time = FakeTime()

    def publish(self, time: datetime) -> bytes:
        milliseconds = int(time.timestamp() * 1000)
        self.events.append(Event(replay_id(next(self.numbers)), avro_payload(milliseconds), milliseconds))
        return self.events[-1].replay_id

    def run(self, at: datetime, on_invalid_replay: OnInvalidReplay = "fail") -> ReplayWindow:
        self.now = at
        kept_since = (at - RETENTION).timestamp() * 1000
        gone = sum(event.time is not None and event.time < kept_since for event in self.events)
        source = StreamingSource(self.events, [], self.time, gone)
        run = RunIdentity("orders", "drain", f"run-{at.isoformat()}", at)
        request = WindowRequest(run, DrainLimits(), on_invalid_replay=on_invalid_replay)
        try:
            outcome = drain_window(
                LandedStream(STREAM, self.catalog, self.store), request, source=source, now=lambda: at
            )
        finally:
            self.starts = source.starts
        return outcome.manifest.window

    def position(self) -> bytes | None:
        return self.store.read(STREAM).replay_id


@pytest.fixture
def org(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QuietOrg:
    made = QuietOrg(tmp_path)
    monkeypatch.setitem(drain.__kwdefaults__, "clock", made.time.clock)
    return made


def hours(number: float) -> datetime:
    return MONDAY + timedelta(hours=number)


def test_a_quiet_stream_goes_on_for_days_and_lands_what_comes_then_once(org: QuietOrg) -> None:
    first = org.publish(hours(0.5))
    org.run(hours(1))
    for hour in range(2, 60):
        window = org.run(hours(hour))
        assert (window.event_count, window.gap) == (0, None)
    assert org.starts == [first, StartFrom.EARLIEST]
    assert org.position() == first
    second = org.publish(hours(59.5))
    window = org.run(hours(60))
    assert (window.event_count, window.through, window.gap) == (1, second, None)
    assert org.store.gaps(STREAM) == []
    org.run(hours(61))
    assert org.starts == [second]


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_a_silence_is_no_loss_where_losses_are_accepted(org: QuietOrg, policy: OnInvalidReplay) -> None:
    org.publish(hours(0.5))
    windows = [org.run(hours(hour), policy) for hour in range(1, 40)]
    assert [window.gap for window in windows] == [None] * len(windows)
    second = org.publish(hours(39.5))
    window = org.run(hours(40), policy)
    assert (window.event_count, window.through, window.gap) == (1, second, None)


def test_the_spans_of_its_windows_do_not_overlap(org: QuietOrg) -> None:
    org.publish(hours(0.5))
    windows = [org.run(hours(hour)) for hour in range(1, 40)]
    assert [w.covered_from for w in windows[1:]] == [w.covered_until or w.covered_from for w in windows[:-1]]
    assert windows[-1].covered_until == hours(32), "confirmed every eight hours"


def test_a_stream_that_nobody_looked_at_for_its_retention_is_lost(org: QuietOrg) -> None:
    org.publish(hours(-2.5))
    org.run(hours(-2))
    assert org.run(hours(0.5)).covered_until == hours(0.5), "the first drain of a day confirms"
    with pytest.raises(ReplayIdLostError, match="on_invalid_replay"):
        org.run(hours(26))
    assert org.store.gaps(STREAM) == []


def test_a_position_whose_event_is_young_was_not_lost_to_age(org: QuietOrg) -> None:
    org.publish(hours(-2.5))
    org.run(hours(-2))
    assert org.run(hours(0.5)).covered_until == hours(0.5)
    org.events.clear()  # the stream was reset
    org.publish(hours(1.5))
    with pytest.raises(ReplayIdLostError, match="on_invalid_replay"):
        org.run(hours(2))


def test_a_position_that_was_set_by_hand_has_no_window_to_vouch_for_it(org: QuietOrg) -> None:
    org.publish(hours(0.5))
    org.run(hours(1))
    org.store.reset(STREAM, replay_id(77), reason="a test", updated_by="a test")
    with pytest.raises(ReplayIdLostError, match="on_invalid_replay"):
        org.run(hours(2))
