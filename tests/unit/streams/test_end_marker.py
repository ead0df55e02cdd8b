"""Second subscription of a drain: when it is opened, its faults, and when its evidence is discarded."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from airflow_provider_sfstream.exceptions import QuotaExceededError, ReplayIdLostError, ServiceUnavailableError
from airflow_provider_sfstream.salesforce.server_time import ServerTime
from airflow_provider_sfstream.streams.drain.drain import Drain
from airflow_provider_sfstream.streams.drain.limits import DrainLimits, StopReason
from airflow_provider_sfstream.streams.drain.result import DrainResult
from airflow_provider_sfstream.streams.end_of_stream import TipProbe
from airflow_provider_sfstream.streams.source import EventBatch, StartFrom
from tests.support.scripted_source import (
    BEGAN,
    Deliver,
    FakeTime,
    Keepalive,
    ListSink,
    ScriptedSource,
    Silence,
    events,
    replay_id,
)

TOPIC = "/event/Order__e"
CONFIRMING = DrainLimits(idle_timeout=10, confirm_timeout=300)
WAITING = DrainLimits(idle_timeout=10, confirm_timeout=300, wait_for_confirmation=True)
CUT = ServiceUnavailableError("the second subscription was cut")


def run(source: ScriptedSource, after: bytes | StartFrom = StartFrom.EARLIEST, **arguments: Any) -> DrainResult:
    options: dict[str, Any] = {
        "limits": CONFIRMING,
        "event_times": lambda ids, payloads: [None] * len(ids),
        "clock": source.time.clock,
        "sleep": source.time.sleep,
        "random": lambda: 0.5,
        **arguments,
    }
    sink, limits = options.pop("sink", ListSink()), options.pop("limits")
    return Drain(source, sink, TOPIC, after, limits, **options).run()


class StreamingSource(ScriptedSource):
    """Source of the Streaming API, whose empty responses contain no position."""

    confirms_positions: ClassVar[bool] = False


# -- opening ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limits", [DrainLimits(), DrainLimits(max_events=2), DrainLimits(wait_for_confirmation=True)], ids=str
)
def test_drain_without_confirmation_opens_no_second_subscription(limits: DrainLimits) -> None:
    source = ScriptedSource(events(3))
    result = run(source, limits=limits)
    assert (source.references, result.confirmed_at) == (0, None)
    assert result.stop_reason in (StopReason.IDLE, StopReason.MAX_EVENTS)


@pytest.mark.parametrize("limits", [CONFIRMING, DrainLimits(to_the_end=True)], ids=["confirm_timeout", "to_the_end"])
def test_drain_with_confirmation_opens_and_closes_one_second_subscription(limits: DrainLimits) -> None:
    source = ScriptedSource(events(3))
    result = run(source, limits=limits)
    assert (result.stop_reason, result.confirmed_at) == (StopReason.CAUGHT_UP, BEGAN)
    assert (source.references, source.open_references, source.open_subscriptions) == (1, 0, 0)


@pytest.mark.parametrize("limits", [CONFIRMING, DrainLimits(to_the_end=True)], ids=["confirm_timeout", "to_the_end"])
def test_drain_of_a_streaming_api_topic_confirms_no_end(limits: DrainLimits) -> None:
    script = [Deliver(3), Keepalive(), Silence(400)]
    source = StreamingSource(events(3), script)
    result = run(source, limits=limits)
    assert (result.stop_reason, result.confirmed_at, source.references) == (StopReason.IDLE, None, 0)
    assert source.time.seconds < 30, "the drain does not wait for a confirmation"


def test_error_of_the_drain_closes_the_second_subscription() -> None:
    source = ScriptedSource(events(3), [QuotaExceededError("used up")], reference=())
    with pytest.raises(QuotaExceededError):
        run(source)
    assert (source.references, source.open_references) == (1, 0)


# -- time of the confirmed end ---------------------------------------------------------------------------------------


def test_end_is_confirmed_for_a_lower_bound_of_the_time_of_the_request() -> None:
    time = FakeTime(100.0)
    marker = TipProbe(ScriptedSource(events(1), time=time), TOPIC, time.clock)
    marker.open(ServerTime(BEGAN, sent=90.0, received=94.0))
    marker.took([events(1)[0].replay_id])
    assert marker.opened_at == BEGAN + timedelta(seconds=100 - 94)
    assert marker.is_reached


def test_later_response_does_not_change_the_confirmed_time() -> None:
    time = FakeTime(100.0)
    source = ScriptedSource(events(1), time=time, reference=[None, None, events(1)[0].replay_id])
    marker = TipProbe(source, TOPIC, time.clock)
    measured = ServerTime(BEGAN, 100.0, 100.0)
    marker.open(measured)
    time.seconds += 250
    marker.open(measured)
    marker.read_available()
    marker.read_available()
    marker.took([events(1)[0].replay_id])
    assert (marker.is_reached, marker.opened_at, source.references) == (True, BEGAN, 1)


def test_end_has_no_confirmed_time_if_salesforces_time_was_not_measured() -> None:
    marker = TipProbe(ScriptedSource(events(1)), TOPIC, FakeTime().clock)
    marker.open(None)
    marker.took([events(1)[0].replay_id])
    assert (marker.is_reached, marker.opened_at) == (True, None)


@pytest.mark.parametrize(
    ("script", "reference"),
    [
        ([Silence(7)], [None, None, None, replay_id(9)]),
        ([Keepalive(pending=0), Silence(2), CUT, Silence(7)], [None, None, CUT, None, None, replay_id(9)]),
    ],
    ids=["its only answer", "its last answer"],
)
def test_contact_at_is_after_confirmed_at(script: list[Any], reference: list[Any]) -> None:
    """A drain that starts at the end may stop before its own subscription receives a response."""
    source = ScriptedSource(events(3), script, reference=reference)
    result = run(source, replay_id(9))
    assert (result.stop_reason, result.event_count) == (StopReason.CAUGHT_UP, 0)
    assert result.confirmed_at is not None
    assert result.contact_at is not None
    assert result.contact_at > result.confirmed_at
    assert result.contact_at == BEGAN + timedelta(seconds=source.time.seconds + 1)


# -- faults ----------------------------------------------------------------------------------------------------------


def test_fault_of_the_second_subscription_neither_ends_nor_reconnects_the_drain(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    source, sink = ScriptedSource(events(3), reference=[CUT]), ListSink()
    result = run(source, sink=sink)
    assert (result.stop_reason, result.event_count, result.reconnects) == (StopReason.IDLE, 3, 0)
    assert (result.confirmed_at, source.open_references) == (None, 0)
    assert f"{TOPIC}: the subscription that looks for the end of the stream failed: {CUT}" in caplog.text


def test_reconnect_reopens_a_failed_second_subscription_with_a_later_time() -> None:
    script = [Deliver(1), Silence(4), ServiceUnavailableError("cut"), Deliver(2)]
    source = ScriptedSource(events(3), script, reference=[None, CUT, events(3)[2].replay_id])
    result = run(source, limits=WAITING)
    assert (result.stop_reason, result.reconnects, source.references) == (StopReason.CAUGHT_UP, 1, 2)
    assert result.confirmed_at == BEGAN + timedelta(seconds=4 + sum(source.time.sleeps))


def test_failed_second_subscription_is_reopened_while_the_drain_waits() -> None:
    """One broken connection ends both subscriptions; the drain may notice the end of the second one only afterwards."""
    source = ScriptedSource(events(3), [Deliver(3), Silence(20)], reference=[None, CUT, events(3)[2].replay_id])
    result = run(source, limits=WAITING)
    assert (result.stop_reason, result.reconnects, source.references) == (StopReason.CAUGHT_UP, 0, 2)
    assert result.confirmed_at is not None
    assert result.confirmed_at >= BEGAN + timedelta(seconds=5)


def test_lasting_fault_of_the_second_subscription_costs_a_call_each_five_seconds() -> None:
    source = ScriptedSource(events(3), [Deliver(3), Silence(400)], reference=[CUT] * 1_000)
    result = run(source, limits=WAITING)
    assert (result.stop_reason, result.confirmed_at) == (StopReason.IDLE, None)
    assert 300 / 6 <= source.references <= (source.time.seconds / 5) + 1


def test_refused_second_subscription_is_not_reopened_while_the_drain_waits() -> None:
    refused = QuotaExceededError("used up")
    source = ScriptedSource(events(3), [Deliver(3), Silence(400)], reference=[refused, *[None] * 2_000])
    result = run(source, limits=WAITING)
    assert (result.stop_reason, result.confirmed_at, source.references) == (StopReason.IDLE, None, 1)


def test_second_subscription_that_failed_after_its_replay_id_is_not_reopened_while_the_drain_waits() -> None:
    """Its evidence is complete: the next answer of the drain's own subscription confirms the end."""
    reference = [None, events(3)[2].replay_id, CUT, None, *[None] * 2_000]
    source = ScriptedSource(events(3), [Deliver(2), Silence(30), Deliver(1), Silence(30)], reference=reference)
    result = run(source, limits=WAITING)
    assert (result.stop_reason, result.confirmed_at, source.references) == (StopReason.CAUGHT_UP, BEGAN, 1)


def test_evidence_of_a_failed_subscription_does_not_count_for_the_next_one() -> None:
    """A replay ID from the first one proves nothing about the time at which the second one was opened."""
    script = [Silence(1), ServiceUnavailableError("cut"), Deliver(1), Silence(400)]
    source = ScriptedSource(events(3), script, reference=[events(3)[0].replay_id, CUT, None, *[None] * 2_000])
    result = run(source)
    assert (source.references, result.stop_reason, result.confirmed_at) == (2, StopReason.IDLE, None)


def test_reconnect_does_not_open_another_second_subscription() -> None:
    script = [Deliver(1), ServiceUnavailableError("cut"), Deliver(2)]
    source = ScriptedSource(events(3), script)
    result = run(source)
    assert (result.stop_reason, result.confirmed_at, source.references) == (StopReason.CAUGHT_UP, BEGAN, 1)


def test_second_subscription_ends_with_its_event_and_is_not_reopened() -> None:
    script = [Deliver(1), ServiceUnavailableError("cut"), Silence(30), Deliver(2)]
    source = ScriptedSource(events(3), script, reference=[1])
    sink = ListSink()
    result = run(source, sink=sink, limits=WAITING)
    assert (result.stop_reason, result.confirmed_at, source.references) == (StopReason.CAUGHT_UP, BEGAN, 1)
    assert sink.replay_ids[-1] == replay_id(9), "the drain stores the whole batch that contains the event"


# -- a lost position -------------------------------------------------------------------------------------------------


def test_a_lost_position_discards_the_evidence() -> None:
    """The stream was reset: its replay IDs start again, so earlier ones prove nothing."""
    stream = events(6)
    lost = ReplayIdLostError("The Replay ID validation failed.")
    script = [Deliver(2), ServiceUnavailableError("cut"), Silence(5), lost, Deliver(6), Silence(400)]
    named_before = stream[3].replay_id
    source = ScriptedSource(stream, script, reference=[named_before, None])
    sink = ListSink()
    result = run(source, sink=sink, on_invalid_replay="earliest")
    assert result.gap is not None
    assert named_before in sink.replay_ids
    assert (source.references, result.stop_reason, result.confirmed_at) == (2, StopReason.IDLE, None)


def test_second_subscription_after_a_lost_position_confirms_its_own_time() -> None:
    stream = events(4)
    lost = ReplayIdLostError("The Replay ID validation failed.")
    script = [Deliver(2), Silence(5), ServiceUnavailableError("cut"), lost, Deliver(4)]
    source = ScriptedSource(stream, script, reference=[None, *[None] * 30])
    opened: list[float] = []

    class Noting(ScriptedSource):
        def latest(self, topic: str, *, idle_timeout: float) -> Iterator[EventBatch | None]:
            opened.append(self.time.seconds)
            if len(opened) == 2:
                self.reference = [stream[3].replay_id]
            return super().latest(topic, idle_timeout=idle_timeout)

    source = Noting(stream, script, reference=[None] * 30)
    result = run(source, on_invalid_replay="earliest")
    assert (result.stop_reason, len(opened)) == (StopReason.CAUGHT_UP, 2)
    assert result.confirmed_at == BEGAN + timedelta(seconds=opened[1])
    assert opened[1] > 5
