"""One look at a topic, over a scripted stream: what counts as enough, and what ends a look."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import (
    ContactError,
    ReplayIdLostError,
    ServiceUnavailableError,
)
from airflow_provider_sfstream.salesforce.events import StartFrom
from airflow_provider_sfstream.streams.watch import look as module
from airflow_provider_sfstream.streams.watch.conditions import WakeUp, WakeUpConditions, WakeUpReason
from airflow_provider_sfstream.streams.watch.look import look
from tests.support.scripted_source import (
    Deliver,
    End,
    Event,
    Keepalive,
    ScriptedSource,
    Silence,
    avro_payload,
    replay_id,
)

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)
START = replay_id(1)


def stream(count: int, *, seconds_old: float = 100.0) -> list[Event]:
    """Return the start, and ``count`` events after it, a second apart, the first of them so old at noon."""
    times = [NOON_MS - int(seconds_old * 1000) + (n - 1) * 1000 for n in range(count + 1)]
    return [Event(replay_id(n + 1), avro_payload(time), time) for n, time in enumerate(times)]


def looked(source: ScriptedSource, start: bytes | StartFrom = START, **conditions: Any) -> WakeUp | None:
    return look(
        source,
        "/event/Order__e",
        start,
        WakeUpConditions(**conditions),
        clock=source.time.clock,
        now=lambda: NOON,
    )


def test_enough_events_are_a_wake_up_and_no_more_are_asked_for() -> None:
    source = ScriptedSource(stream(5))
    assert looked(source, min_events=3) == WakeUp(WakeUpReason.EVENTS, replay_id(2), 3, replay_id(4))
    assert (source.limits, source.starts, source.open_subscriptions) == ([3], [START], 0)


def test_too_few_events_are_none() -> None:
    source = ScriptedSource(stream(2), [Deliver(1), Keepalive(pending=0), Deliver(1), Keepalive(), Silence(100.0)])
    assert looked(source, min_events=3) is None
    assert source.open_subscriptions == 0
    assert (source.proofs, source.references) == (1, 0)


def test_an_empty_response_does_not_end_a_look() -> None:
    """Salesforce may send it while it still seeks through the backlog."""
    source = ScriptedSource(stream(2), [Keepalive(), Silence(2.0), Keepalive(), Deliver(2)])
    assert looked(source, min_events=2) == WakeUp(WakeUpReason.EVENTS, replay_id(2), 2, replay_id(3))


def test_a_silence_is_none_once_the_server_has_answered_after_it() -> None:
    source = ScriptedSource(stream(1), [Deliver(1), Silence(100.0)])
    assert looked(source, min_events=2) is None
    assert source.proofs == 1
    assert module.IDLE_TIMEOUT < source.time.seconds < 2 * module.IDLE_TIMEOUT, "it ends soon after the answer"


def test_what_came_before_the_answer_counts() -> None:
    source = ScriptedSource(stream(1), [Silence(module.IDLE_TIMEOUT), Deliver(1)])
    assert looked(source) == WakeUp(WakeUpReason.EVENTS, replay_id(2), 1, replay_id(2))
    assert source.proofs == 1


@pytest.mark.parametrize("script", [[], [Deliver(1)], [Keepalive(pending=0)]], ids=["nothing", "events", "an answer"])
def test_a_silence_without_an_answer_is_an_error(script: list[Any]) -> None:
    events = stream(1) if script else stream(0)
    source = ScriptedSource(events, [*script, Silence(100.0)], out_of_contact=[ContactError("api:7443 is silent")])
    with pytest.raises(ContactError, match="api:7443"):
        looked(source, min_events=2, max_wait=1e9)
    assert source.open_subscriptions == 0


def test_nothing_there_is_none() -> None:
    assert looked(ScriptedSource(stream(0)), max_wait=1.0) is None


def test_a_subscription_that_just_ends_is_counted_too() -> None:
    assert looked(ScriptedSource(stream(2), [Deliver(1), End()]), min_events=2) is None


@pytest.mark.parametrize(("seconds_old", "enough"), [(60.0, True), (59.9, False), (-59.9, False), (-1e6, True)])
def test_fewer_are_enough_once_the_oldest_is_old_enough(seconds_old: float, enough: bool) -> None:
    """One that is dated too far ahead to be waited for is old enough too."""
    told = looked(ScriptedSource(stream(3, seconds_old=seconds_old)), min_events=10, max_wait=60.0)
    assert told == (WakeUp(WakeUpReason.EVENTS, replay_id(2), 3, replay_id(4)) if enough else None)


def test_an_event_that_tells_no_time_is_old_enough() -> None:
    start, event = stream(1)
    told = looked(ScriptedSource([start, Event(event.replay_id, b"\xff")]), min_events=2, max_wait=1e9)
    assert told is not None
    assert told.event_count == 1


def test_without_an_age_fewer_are_never_enough() -> None:
    assert looked(ScriptedSource(stream(3, seconds_old=1e6)), min_events=10) is None


def test_a_lost_replay_id_is_a_wake_up_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    told = looked(ScriptedSource(stream(3), retained_from=2), min_events=1)
    assert told == WakeUp(WakeUpReason.REPLAY_LOST)
    assert START.hex() in caplog.text


def test_a_loss_where_no_replay_id_was_sent_is_an_error() -> None:
    source = ScriptedSource(stream(3), [ReplayIdLostError("of the preset")])
    with pytest.raises(ReplayIdLostError, match="of the preset"):
        looked(source, StartFrom.EARLIEST)


def test_earliest_sees_all_that_is_retained() -> None:
    told = looked(ScriptedSource(stream(3), retained_from=1), StartFrom.EARLIEST, min_events=3)
    assert told == WakeUp(WakeUpReason.EVENTS, replay_id(2), 3, replay_id(4))


def test_a_fault_is_for_the_caller() -> None:
    source = ScriptedSource(stream(3), [Deliver(1), ServiceUnavailableError("down")])
    with pytest.raises(ServiceUnavailableError, match="down"):
        looked(source, min_events=3)
    assert source.open_subscriptions == 0


def test_a_topic_that_never_falls_silent_cannot_hold_a_look(caplog: pytest.LogCaptureFixture) -> None:
    source = ScriptedSource(stream(10_000), [Deliver(1), Silence(1.0)] * 9_999)
    assert looked(source, min_events=10_000) is None
    assert source.time.seconds == pytest.approx(module.LONGEST_LOOK, abs=3)
    assert "min_events" in caplog.text
