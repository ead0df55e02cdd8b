"""Streaming API positions that expire in an idle stream: a possible loss of events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import ClassVar

import pytest

from airflow_provider_sfstream.exceptions import PositionAgedOutError, ReplayIdLostError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
from airflow_provider_sfstream.replay_windows.incremental import WindowRequest, drain_window
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.replay_windows.lost_positions import accept_loss, listed_losses
from airflow_provider_sfstream.salesforce.events import EventBatch
from airflow_provider_sfstream.salesforce.server_time import ServerTime
from airflow_provider_sfstream.salesforce.streams import Gap, ReplayWindow, RunIdentity, Stream
from airflow_provider_sfstream.streams.drain.drain import Drain
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from airflow_provider_sfstream.streams.recovery import OnInvalidReplay
from airflow_provider_sfstream.streams.source import StartFrom
from tests.support.scripted_source import Deliver, Event, FakeTime, ScriptedSource, avro_payload, replay_id

PUSH_TOPIC = Stream("00Dxx0000001gPLEAY", "streaming", "/topic/Orders")
PLATFORM = Stream("00Dxx0000001gPLEAY", "streaming", "/event/Order__e")
MONDAY = datetime(2026, 11, 16, tzinfo=UTC)


class StreamingSource(ScriptedSource):
    """Source whose empty responses have Salesforce's time but no replay ID."""

    confirms_positions: ClassVar[bool] = False
    salesforce_time: datetime = MONDAY

    def server_time(self, clock: Callable[[], float]) -> ServerTime | None:
        return ServerTime(self.salesforce_time, clock(), clock()) if self.measures_time else None

    def _batch(self, part: list[Event], latest: bytes, pending: int) -> EventBatch:
        return super()._batch(part, latest if part else b"", pending)


class QuietOrg:
    """Org that retains events for 24 hours, with hourly runs on a worker whose clock may be wrong."""

    def __init__(self, folder: Path, stream: Stream = PUSH_TOPIC) -> None:
        self.stream = stream
        self.retention: timedelta | None = timedelta(hours=24)
        self.catalog = LandingCatalog(Landing.from_url(str(folder / "landing")))
        self.now = MONDAY
        self.store = TableReplayStore(f"sqlite:///{folder / 'store.db'}", clock=lambda: self.now)
        self.landed = LandedStream(stream, self.catalog, self.store, lambda: self.retention)
        self.events: list[Event] = []
        self.starts: list[bytes | StartFrom] = []
        self.numbers = count(1)
        self.time = FakeTime()
        self.measures_time = True
        self.worker_ahead = timedelta(0)

    def publish(self, time: datetime) -> bytes:
        milliseconds = int(time.timestamp() * 1000)
        self.events.append(Event(replay_id(next(self.numbers)), avro_payload(milliseconds), milliseconds))
        return self.events[-1].replay_id

    def source(self, at: datetime) -> StreamingSource:
        retained_since = (at - timedelta(hours=24)).timestamp() * 1000
        gone = sum(event.time is not None and event.time < retained_since for event in self.events)
        source = StreamingSource(self.events, [], self.time, gone, measures_time=self.measures_time)
        source.salesforce_time = at
        return source

    def run(self, at: datetime, on_invalid_replay: OnInvalidReplay = "fail", accept: bool = False) -> ReplayWindow:
        self.now = at + self.worker_ahead
        source = self.source(at)
        run = RunIdentity("orders", "drain", f"run-{at.isoformat()}", at)
        request = WindowRequest(run, DrainLimits(), on_invalid_replay=on_invalid_replay, accept_quiet_aging=accept)
        try:
            outcome = drain_window(self.landed, request, source=source, now=lambda: self.now)
        finally:
            self.starts = source.starts
        assert outcome.manifest.window.covered_until is None, "the Streaming API never confirms an end"
        return outcome.manifest.window

    def position(self) -> bytes | None:
        return self.store.read(self.stream).replay_id


@pytest.fixture
def org(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[QuietOrg]:
    made = QuietOrg(tmp_path)
    monkeypatch.setitem(Drain.__init__.__kwdefaults__, "clock", made.time.clock)
    yield made
    made.store.close()


def hours(number: float) -> datetime:
    return MONDAY + timedelta(hours=number)


def quiet_for(org: QuietOrg, last: int) -> bytes:
    """Publish and land one event, then run without new events. The last run is at hour ``last``."""
    event = org.publish(hours(0.5))
    for hour in (1, last / 2, last):
        org.run(hours(hour))
    return event


def test_a_position_that_aged_out_is_a_possible_loss(org: QuietOrg) -> None:
    event = quiet_for(org, 24)
    with pytest.raises(PositionAgedOutError) as failed:
        org.run(hours(25))
    text = str(failed.value)
    assert f"the position {event.hex()} aged out: nothing is known to be lost; 24 hours without an event" in text
    assert "Salesforce last answered 60 minutes ago" in text
    assert "accept_quiet_aging=True" in text
    assert "Pub/Sub" not in text
    assert (org.position(), org.store.gaps(PUSH_TOPIC)) == (event, [])


def test_error_recommends_the_pubsub_api_if_it_supports_the_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    org = QuietOrg(tmp_path, PLATFORM)
    monkeypatch.setitem(Drain.__init__.__kwdefaults__, "clock", org.time.clock)
    quiet_for(org, 24)
    with pytest.raises(PositionAgedOutError, match=r"over the Pub/Sub API instead.*remove api='streaming'"):
        org.run(hours(25))
    org.store.close()


def test_accepted_aging_continues_from_the_earliest_event_with_an_uncertain_gap(org: QuietOrg) -> None:
    event = quiet_for(org, 24)
    window = org.run(hours(25), accept=True)
    assert org.starts == [event, StartFrom.EARLIEST]
    assert window.gap is not None
    assert (window.gap.after, window.gap.uncertain, window.gap.since) == (event, True, hours(0.5))
    assert "nothing is known to be lost; 24 hours without an event" in window.gap.reason
    assert org.store.gaps(PUSH_TOPIC) == [window.gap]


def test_one_gap_is_recorded_per_retention_period(org: QuietOrg) -> None:
    quiet_for(org, 24)
    gaps = [org.run(hours(hour), accept=True).gap for hour in range(25, 75, 4)]
    assert [25 + 4 * n for n, gap in enumerate(gaps) if gap is not None] == [25, 49, 73]
    assert len(org.store.gaps(PUSH_TOPIC)) == 3


def test_events_after_an_aged_position_are_landed_once(org: QuietOrg) -> None:
    first = quiet_for(org, 24)
    for hour in (25, 36, 47, 59):
        assert org.run(hours(hour), accept=True).event_count == 0
    assert org.position() == first
    second = org.publish(hours(59.5))
    window = org.run(hours(60), accept=True)
    assert (window.event_count, window.through) == (1, second)
    assert org.run(hours(61), accept=True).event_count == 0
    assert org.starts == [second]


def test_the_gap_ends_at_the_first_event_that_is_read(org: QuietOrg) -> None:
    quiet_for(org, 24)
    second = org.publish(hours(24.5))
    window = org.run(hours(25), accept=True)
    assert window.gap is not None
    assert (window.through, window.gap.resumed_at, window.gap.uncertain) == (second, second, True)


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_invalid_replay_policy_accepts_a_possible_loss_and_skips_nothing(
    org: QuietOrg, policy: OnInvalidReplay
) -> None:
    event = quiet_for(org, 24)
    second = org.publish(hours(24.5))
    window = org.run(hours(25), policy)
    assert (window.event_count, window.through) == (1, second)
    assert window.gap is not None
    assert (window.gap.after, window.gap.uncertain) == (event, True)


def test_a_loss_that_an_operator_accepted_is_uncertain_too(org: QuietOrg) -> None:
    quiet_for(org, 24)
    accepted = accept_loss(
        org.landed, org.source(hours(25)), start_from="earliest", reason="a test", accepted_by="a test", now=hours(25)
    )
    assert accepted.uncertain
    window = org.run(hours(26))
    assert window.gap is not None
    assert window.gap.uncertain
    assert window.gap.reason.startswith("aged out on a quiet stream")
    assert window.gap.reason.endswith("accepted by a test, to go on from earliest: a test")
    assert len(org.store.gaps(PUSH_TOPIC)) == 2
    assert listed_losses(org.store.gaps(PUSH_TOPIC)) == [accepted]


def test_an_accepted_loss_is_listed_once_as_accepted() -> None:
    accepted = Gap(b"1", None, hours(5), hours(8), "accepted by ada, to go on from earliest: known")
    drained = Gap(b"1", b"2", hours(-60), hours(9), accepted.reason)
    other = Gap(b"2", b"3", None, hours(10), "replay ID invalid, on_invalid_replay='earliest'")
    again = Gap(b"2", b"4", None, hours(11), "replay ID invalid, on_invalid_replay='earliest'")
    assert listed_losses([other, drained, accepted, again]) == [replace(accepted, resumed_at=b"2"), other, again]


@pytest.mark.parametrize("accept", [False, True])
def test_refusal_of_a_young_position_is_a_loss(org: QuietOrg, accept: bool) -> None:
    quiet_for(org, 12)
    org.events.clear()  # the stream was reset
    with pytest.raises(ReplayIdLostError, match="on_invalid_replay") as failed:
        org.run(hours(13), accept=accept)
    assert not isinstance(failed.value, PositionAgedOutError)
    assert org.store.gaps(PUSH_TOPIC) == []


def test_refusal_after_an_accepted_position_is_a_loss(org: QuietOrg) -> None:
    """Salesforce accepts the position, although its age would explain a refusal, and refuses the next replay ID."""
    quiet_for(org, 24)
    source = org.source(hours(25))
    source.retained_from = 0
    org.publish(hours(24.5))
    source.script = [Deliver(1), ReplayIdLostError("The Replay ID validation failed.")]
    request = WindowRequest(RunIdentity("orders", "drain", "r", hours(25)), DrainLimits(), accept_quiet_aging=True)
    with pytest.raises(ReplayIdLostError, match=org.events[-1].replay_id.hex()):
        drain_window(org.landed, request, source=source, now=lambda: hours(25))
    assert StartFrom.EARLIEST not in source.starts


@pytest.mark.parametrize("ahead", [timedelta(hours=-30), timedelta(hours=30)], ids=["slow", "fast"])
def test_worker_clock_does_not_affect_the_result(org: QuietOrg, ahead: timedelta) -> None:
    org.worker_ahead = ahead
    quiet_for(org, 12)
    org.events, retained = [], org.events
    with pytest.raises(ReplayIdLostError) as failed:
        org.run(hours(12.5))
    assert not isinstance(failed.value, PositionAgedOutError)
    org.events = retained
    with pytest.raises(PositionAgedOutError):
        org.run(hours(25))


def test_refusal_without_a_measured_age_is_a_loss(org: QuietOrg) -> None:
    org.measures_time = False
    quiet_for(org, 24)
    with pytest.raises(ReplayIdLostError, match="on_invalid_replay") as failed:
        org.run(hours(25), accept=True)
    assert not isinstance(failed.value, PositionAgedOutError)


def test_unknown_last_contact_is_reported_as_unknown(org: QuietOrg) -> None:
    org.publish(hours(0.5))
    org.run(hours(1))
    org.measures_time = False
    org.run(hours(2))
    org.measures_time = True
    with pytest.raises(PositionAgedOutError, match="Salesforce last answered at an unknown time"):
        org.run(hours(26))


def test_unknown_retention_allows_aging_only_after_the_longest_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    org = QuietOrg(tmp_path, PLATFORM)
    monkeypatch.setitem(Drain.__init__.__kwdefaults__, "clock", org.time.clock)
    org.retention = None
    quiet_for(org, 24)
    with pytest.raises(ReplayIdLostError, match="on_invalid_replay"):
        org.run(hours(25), accept=True)
    with pytest.raises(PositionAgedOutError, match="Salesforce retains events for at most 72 hours"):
        org.run(hours(74))
    org.store.close()


def test_a_position_that_was_set_by_hand_has_no_age(org: QuietOrg) -> None:
    org.publish(hours(0.5))
    org.run(hours(1))
    org.store.reset(PUSH_TOPIC, replay_id(77), reason="a test", updated_by="a test")
    with pytest.raises(ReplayIdLostError, match="on_invalid_replay") as failed:
        org.run(hours(40), accept=True)
    assert not isinstance(failed.value, PositionAgedOutError)
