"""One poll of a scripted topic: when it results in a wake-up, and when it ends."""

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
from airflow_provider_sfstream.streams.watch import poll as module
from airflow_provider_sfstream.streams.watch.conditions import WakeUp, WakeUpConditions, WakeUpReason
from airflow_provider_sfstream.streams.watch.poll import poll
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
    """Create the start event and ``count`` later ones, a second apart, the first of them ``seconds_old`` at noon."""
    times = [NOON_MS - int(seconds_old * 1000) + (n - 1) * 1000 for n in range(count + 1)]
    return [Event(replay_id(n + 1), avro_payload(time), time) for n, time in enumerate(times)]


def run_poll(source: ScriptedSource, after: bytes | StartFrom = START, **conditions: Any) -> WakeUp | None:
    return poll(
        source,
        "/event/Order__e",
        after,
        WakeUpConditions(**conditions),
        clock=source.time.clock,
        now=lambda: NOON,
    )


def test_enough_events_are_a_wake_up_and_no_more_are_requested() -> None:
    source = ScriptedSource(stream(5))
    assert run_poll(source, min_events=3) == WakeUp(WakeUpReason.EVENTS, replay_id(2), 3, replay_id(4))
    assert (source.limits, source.starts, source.open_subscriptions) == ([3], [START], 0)


def test_too_few_events_are_no_wake_up() -> None:
    source = ScriptedSource(stream(2), [Deliver(1), Keepalive(pending=0), Deliver(1), Keepalive(), Silence(100.0)])
    assert run_poll(source, min_events=3) is None
    assert source.open_subscriptions == 0
    assert (source.proofs, source.references) == (1, 0)


def test_an_empty_response_does_not_end_a_look() -> None:
    """Salesforce may send an empty response while it still seeks through the backlog."""
    source = ScriptedSource(stream(2), [Keepalive(), Silence(2.0), Keepalive(), Deliver(2)])
    assert run_poll(source, min_events=2) == WakeUp(WakeUpReason.EVENTS, replay_id(2), 2, replay_id(3))


def test_silence_followed_by_contact_is_no_wake_up() -> None:
    source = ScriptedSource(stream(1), [Deliver(1), Silence(100.0)])
    assert run_poll(source, min_events=2) is None
    assert source.proofs == 1
    assert module.IDLE_TIMEOUT < source.time.seconds < 2 * module.IDLE_TIMEOUT, "it ends after the contact check"


def test_events_that_arrive_before_the_contact_check_are_counted() -> None:
    source = ScriptedSource(stream(1), [Silence(module.IDLE_TIMEOUT), Deliver(1)])
    assert run_poll(source) == WakeUp(WakeUpReason.EVENTS, replay_id(2), 1, replay_id(2))
    assert source.proofs == 1


@pytest.mark.parametrize("script", [[], [Deliver(1)], [Keepalive(pending=0)]], ids=["nothing", "events", "an answer"])
def test_silence_without_contact_is_an_error(script: list[Any]) -> None:
    events = stream(1) if script else stream(0)
    source = ScriptedSource(events, [*script, Silence(100.0)], contact_faults=[ContactError("api:7443 is silent")])
    with pytest.raises(ContactError, match="api:7443"):
        run_poll(source, min_events=2, max_wait=1e9)
    assert source.open_subscriptions == 0


def test_poll_without_new_events_is_no_wake_up() -> None:
    assert run_poll(ScriptedSource(stream(0)), max_wait=1.0) is None


def test_events_of_a_subscription_that_ends_are_counted() -> None:
    assert run_poll(ScriptedSource(stream(2), [Deliver(1), End()]), min_events=2) is None


@pytest.mark.parametrize(("seconds_old", "enough"), [(60.0, True), (59.9, False), (-59.9, False), (-1e6, True)])
def test_fewer_events_are_a_wake_up_if_the_oldest_is_max_wait_old(seconds_old: float, enough: bool) -> None:
    """An event whose time is too far in the future counts as old enough."""
    wake_up = run_poll(ScriptedSource(stream(3, seconds_old=seconds_old)), min_events=10, max_wait=60.0)
    assert wake_up == (WakeUp(WakeUpReason.EVENTS, replay_id(2), 3, replay_id(4)) if enough else None)


def test_event_without_a_time_is_old_enough() -> None:
    start, event = stream(1)
    wake_up = run_poll(ScriptedSource([start, Event(event.replay_id, b"\xff")]), min_events=2, max_wait=1e9)
    assert wake_up is not None
    assert wake_up.event_count == 1


def test_fewer_events_are_never_a_wake_up_without_max_wait() -> None:
    assert run_poll(ScriptedSource(stream(3, seconds_old=1e6)), min_events=10) is None


def test_a_lost_replay_id_is_a_wake_up_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    wake_up = run_poll(ScriptedSource(stream(3), retained_from=2), min_events=1)
    assert wake_up == WakeUp(WakeUpReason.REPLAY_LOST)
    assert START.hex() in caplog.text


def test_lost_replay_id_is_an_error_if_the_look_sent_none() -> None:
    source = ScriptedSource(stream(3), [ReplayIdLostError("of the preset")])
    with pytest.raises(ReplayIdLostError, match="of the preset"):
        run_poll(source, StartFrom.EARLIEST)


def test_poll_from_earliest_reads_all_retained_events() -> None:
    wake_up = run_poll(ScriptedSource(stream(3), retained_from=1), StartFrom.EARLIEST, min_events=3)
    assert wake_up == WakeUp(WakeUpReason.EVENTS, replay_id(2), 3, replay_id(4))


def test_poll_raises_faults() -> None:
    source = ScriptedSource(stream(3), [Deliver(1), ServiceUnavailableError("down")])
    with pytest.raises(ServiceUnavailableError, match="down"):
        run_poll(source, min_events=3)
    assert source.open_subscriptions == 0


def test_duration_of_a_look_at_a_busy_topic_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    source = ScriptedSource(stream(10_000), [Deliver(1), Silence(1.0)] * 9_999)
    assert run_poll(source, min_events=10_000) is None
    assert source.time.seconds == pytest.approx(module.LONGEST_POLL, abs=3)
    assert "min_events" in caplog.text
