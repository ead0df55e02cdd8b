"""Wake-ups of a scripted topic: their reasons, times, events and positions."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import aclosing
from datetime import timedelta

import pytest

from airflow_provider_sfstream.exceptions import (
    AuthenticationError,
    QuotaExceededError,
    ReplayIdLostError,
    ServiceUnavailableError,
    SessionExpiredError,
)
from airflow_provider_sfstream.salesforce.events import StartFrom
from airflow_provider_sfstream.streams.watch.conditions import WakeUp, WakeUpConditions, WakeUpReason
from airflow_provider_sfstream.streams.watch.wake_ups import EventTimes, Watch
from tests.support.scripted_async_source import Pause, ScriptedAsyncSource, unused_replay_id_after
from tests.support.scripted_source import SCHEMA_ID, Deliver, Event, Keepalive, avro_payload, events, replay_id
from tests.support.virtual_time import BEGINNING, run_in_virtual_time, virtual_clock, virtual_now

TOPIC = "/event/Order__e"
EARLIEST, LATEST = StartFrom.EARLIEST, StartFrom.LATEST
EVENTS, STARTED, REPLAY_LOST, QUIET = WakeUpReason
RESET = ServiceUnavailableError("reset")
TIME = {"clock": virtual_clock, "now": virtual_now, "random": lambda: 1.0}


def collect(source: ScriptedAsyncSource, after=EARLIEST, conditions=None, *, count: int) -> list[tuple[float, WakeUp]]:
    """Watch the topic; return the first ``count`` wake-ups, each with its time in seconds."""

    async def main():
        seen = []
        async with aclosing(
            Watch(source, TOPIC, after, conditions or WakeUpConditions(), **TIME).wake_ups()
        ) as all_of_them:
            async for wake_up in all_of_them:
                seen.append((virtual_clock(), wake_up))
                if len(seen) == count:
                    break
        return seen

    try:
        return run_in_virtual_time(main())
    finally:
        assert source.open_subscriptions == 0


def first(source: ScriptedAsyncSource, start=EARLIEST, conditions=None) -> tuple[float, WakeUp]:
    """Wait once; return the time in seconds and the wake-up."""

    async def main():
        wake_up = await Watch(source, TOPIC, start, conditions or WakeUpConditions(), **TIME).first_wake_up()
        return virtual_clock(), wake_up

    try:
        return run_in_virtual_time(main())
    finally:
        assert source.open_subscriptions == 0


def timed(*seconds_before: float) -> list[Event]:
    """Create events with the given ages in seconds at the beginning of the test."""
    stream = []
    for number, seconds in enumerate(seconds_before, 1):
        time = int((BEGINNING - timedelta(seconds=seconds)).timestamp() * 1_000)
        stream.append(Event(replay_id(number * 3), avro_payload(time), time))
    return stream


def of(stream: list[Event], begin: int, end: int, through: bytes | None = None) -> WakeUp:
    """Create the wake-up that reports the events ``stream[begin:end]``."""
    return WakeUp(EVENTS, stream[begin].replay_id, end - begin, through or stream[end - 1].replay_id)


# -- a single wake-up ----------------------------------------------------------------------------------------------


def quiet(after: bytes) -> WakeUp:
    """Create the wake-up for an empty response to a subscription whose position is ``after``."""
    return WakeUp(QUIET, through=unused_replay_id_after(after))


def test_wait_ends_when_min_events_have_arrived():
    source = ScriptedAsyncSource(events(30), [Deliver(2), Pause(40), RESET, Keepalive(), Deliver(7), Pause(9)])
    seconds, wake_up = first(source, conditions=WakeUpConditions(min_events=9))
    assert wake_up == of(source.stream, 0, 9)
    assert seconds == 40.25
    assert source.limits == [9, 7]
    assert source.schemas_read == []  # without max_wait, the wait needs no event time


def test_first_event_ends_the_wait_by_default_and_only_one_is_requested():
    source = ScriptedAsyncSource(events(30), [Keepalive(), Pause(500), Keepalive()])
    assert first(source, events(2)[1].replay_id) == (500, of(source.stream, 2, 3))
    assert source.limits == [1]


def test_wait_from_latest_counts_new_events_only():
    source = ScriptedAsyncSource(events(30), [Keepalive(), RESET, Pause(100), Deliver(3)], latest_from=20)
    seconds, wake_up = first(source, LATEST, WakeUpConditions(min_events=3))
    assert wake_up == of(source.stream, 20, 23)
    assert seconds == 100.25


@pytest.mark.parametrize(("ages", "seconds"), [([15, 900], 45), ([0, 0], 60), ([900, 0], 0), ([-900, 0], 60)], ids=str)
def test_fewer_events_end_the_wait_when_the_oldest_is_max_wait_old(ages, seconds):
    source = ScriptedAsyncSource(timed(*ages), [Deliver(2)])
    woken_at, wake_up = first(source, conditions=WakeUpConditions(min_events=10, max_wait=60))
    assert wake_up == of(source.stream, 0, 2)
    assert woken_at == pytest.approx(seconds)
    assert source.schemas_read == [SCHEMA_ID]
    assert source.limits == [10]


def test_wake_up_after_max_wait_includes_later_events_despite_faults():
    stream = timed(0, 0, 0, 0, 0, 0)
    source = ScriptedAsyncSource(stream, [Pause(5), Deliver(1), Pause(10), Deliver(2), Pause(10), RESET, Pause(500)])
    seconds, wake_up = first(source, conditions=WakeUpConditions(min_events=10, max_wait=60))
    assert (seconds, wake_up) == (pytest.approx(60), of(stream, 0, 3))


@pytest.mark.parametrize("reason", ["no schema", "no time"])
def test_max_wait_counts_from_the_arrival_if_the_event_time_is_unknown(reason):
    source = ScriptedAsyncSource(timed(900), [Pause(7), Deliver(1)])
    if reason == "no schema":
        source.schema_fault = QuotaExceededError("used up")
    else:
        source.schema_json = '{"type": "record", "name": "Bare__e", "fields": []}'
    seconds, wake_up = first(source, conditions=WakeUpConditions(min_events=10, max_wait=60))
    assert (seconds, wake_up) == (pytest.approx(67), of(source.stream, 0, 1))


def test_max_wait_depends_on_the_first_pending_event_only():
    source = ScriptedAsyncSource(timed(10, 900, 900), [Deliver(1), Pause(1), Deliver(1), Pause(1), Deliver(1)])
    seconds, _ = first(source, conditions=WakeUpConditions(min_events=10, max_wait=60))
    assert seconds == pytest.approx(50)


CONFIRMED = WakeUpConditions(until_confirmed=True)


def test_end_is_confirmed_for_the_time_at_which_the_second_subscription_was_opened():
    stream = events(2)
    script = [Pause(30), RESET, Pause(5), Keepalive(pending=0), Pause(40), Keepalive()]
    source = ScriptedAsyncSource(stream, script, reference=ScriptedAsyncSource(stream))
    assert first(source, stream[1].replay_id, CONFIRMED) == (
        pytest.approx(120, abs=1),
        WakeUp(
            QUIET,
            through=unused_replay_id_after(stream[1].replay_id),
            confirmed_at=BEGINNING,
            contact_at=BEGINNING + timedelta(seconds=30.25 + 5 + 40 + 1),
        ),
    )
    assert source.reference.open_subscriptions == 0


def test_end_may_be_confirmed_by_a_response_of_the_first_subscription():
    stream = events(2)
    reference = ScriptedAsyncSource(stream, [Pause(3), Keepalive()])
    source = ScriptedAsyncSource(stream, [Pause(20), Keepalive()], reference=reference)
    seconds, wake_up = first(source, stream[1].replay_id, CONFIRMED)
    assert (seconds, wake_up.confirmed_at, wake_up.contact_at) == (20, BEGINNING, BEGINNING + timedelta(seconds=21))


def test_empty_responses_of_a_seeking_subscription_do_not_confirm_the_end():
    stream = events(4)
    script = [Keepalive(at=replay_id(4)), Pause(9), Keepalive(at=replay_id(5)), Pause(300), Deliver(3)]
    source = ScriptedAsyncSource(stream, script, reference=ScriptedAsyncSource(stream, [Keepalive()]))
    assert first(source, stream[0].replay_id, CONFIRMED) == (309, of(stream, 1, 2))


@pytest.mark.parametrize("reference", ["silent", "cut", "other form"])
def test_wait_continues_without_a_response_of_the_second_subscription(reference):
    stream = events(2)
    script = {"silent": [Pause(9_999)], "cut": [RESET], "other form": [Keepalive(at=b"\0")]}[reference]
    source = ScriptedAsyncSource(
        stream, [Keepalive(), Pause(400), Deliver(1)], reference=ScriptedAsyncSource(stream, script)
    )
    assert first(source, stream[0].replay_id, CONFIRMED) == (400, of(stream, 1, 2))
    assert source.reference.open_subscriptions == 0


def test_wait_opens_no_second_subscription_if_salesforces_time_is_unknown():
    stream = events(2)
    reference = ScriptedAsyncSource(stream, [Keepalive()])
    source = ScriptedAsyncSource(
        stream, [Keepalive(), Pause(400), Deliver(1)], reference=reference, measures_time=False
    )
    assert first(source, stream[0].replay_id, CONFIRMED) == (400, of(stream, 1, 2))
    assert reference.starts == []


def test_event_ends_a_wait_for_the_confirmed_end():
    stream = events(2)
    reference = ScriptedAsyncSource(stream, [Pause(1), Keepalive()])
    source = ScriptedAsyncSource(stream, [Pause(3), Deliver(1), Keepalive()], reference=reference)
    assert first(source, stream[0].replay_id, CONFIRMED) == (3, of(stream, 1, 2))


def test_wait_for_the_confirmed_end_continues_after_too_few_events():
    stream = events(2)
    reference = ScriptedAsyncSource(stream, [Keepalive()])
    source = ScriptedAsyncSource(stream, [Deliver(1), Keepalive(), Pause(50), Deliver(1)], reference=reference)
    conditions = WakeUpConditions(min_events=2, until_confirmed=True)
    assert first(source, conditions=conditions) == (50, of(stream, 0, 2))


def test_a_lost_replay_id_is_a_wake_up():
    source = ScriptedAsyncSource(events(30), retained_from=10)
    assert first(source, events(5)[4].replay_id) == (0, WakeUp(REPLAY_LOST))
    source = ScriptedAsyncSource(events(30), [Deliver(3), RESET, ReplayIdLostError("reset")])
    _, wake_up = first(source, conditions=WakeUpConditions(min_events=9))
    assert wake_up == WakeUp(REPLAY_LOST, events(1)[0].replay_id, 3, None)


@pytest.mark.parametrize("start", [EARLIEST, LATEST])
def test_lost_replay_id_is_an_error_if_the_watch_sent_none(start):
    with pytest.raises(ReplayIdLostError):
        first(ScriptedAsyncSource(events(3), [ReplayIdLostError("what?")]), start)
    with pytest.raises(ReplayIdLostError):
        collect(ScriptedAsyncSource(events(3), [ReplayIdLostError("what?")]), start, count=2)


@pytest.mark.parametrize("error", [AuthenticationError("revoked"), QuotaExceededError("used up")])
def test_watch_raises_errors_that_are_not_retriable(error):
    with pytest.raises(type(error)):
        first(ScriptedAsyncSource(events(3), [Keepalive(), error]))
    with pytest.raises(type(error)):
        collect(ScriptedAsyncSource(events(3), [Deliver(1), error]), count=2)


# -- a watch without end -------------------------------------------------------------------------------------------


def test_first_event_after_a_quiet_time_wakes_at_once_and_a_burst_wakes_once():
    stream = events(10_001)
    burst = [step for _ in range(100) for step in (Deliver(100), Pause(0.01))]
    source = ScriptedAsyncSource(stream, [Pause(100), Deliver(1), *burst])
    seen = collect(source, conditions=WakeUpConditions(min_interval=5), count=3)
    assert [seconds for seconds, _ in seen[:2]] == [100, 105]
    assert [wake_up for _, wake_up in seen[:2]] == [of(stream, 0, 1), of(stream, 1, 10_001)]
    assert seen[2][1].reason is QUIET


def test_steady_events_cause_one_wake_up_per_min_interval():
    flow = [step for _ in range(49) for step in (Deliver(1), Pause(1))]
    source = ScriptedAsyncSource(events(50), [Deliver(1), Pause(0.5), *flow])
    seen = collect(source, conditions=WakeUpConditions(min_interval=10), count=6)
    assert [(seconds, wake_up.event_count) for seconds, wake_up in seen[:5]] == [
        (0, 1),
        *[(at, 10) for at in (10, 20, 30, 40)],
    ]
    assert sum(wake_up.event_count for _, wake_up in seen) == 50


def test_without_an_interval_each_response_is_a_wake_up():
    source = ScriptedAsyncSource(events(6), [Deliver(1), Deliver(2), Deliver(3)])
    assert [wake_up.event_count for _, wake_up in collect(source, count=3)] == [1, 2, 3]


def test_min_events_and_max_wait_hold_for_every_wake_up():
    stream = timed(*[0] * 8)
    source = ScriptedAsyncSource(
        stream, [Deliver(3), Pause(2), Deliver(2), Pause(5), Deliver(2), Pause(500), Deliver(1)]
    )
    conditions = WakeUpConditions(min_events=5, max_wait=60, min_interval=5)
    assert collect(source, conditions=conditions, count=3) == [
        (2, of(stream, 0, 5)),
        (pytest.approx(60), of(stream, 5, 7)),
        (507, of(stream, 7, 8)),
    ]


def test_empty_response_is_a_quiet_wake_up_only_without_pending_events():
    stream = events(3)
    source = ScriptedAsyncSource(stream, [Keepalive(), Deliver(1), Deliver(1), Pause(2), Keepalive(), Pause(20)])
    seen = collect(source, conditions=WakeUpConditions(min_interval=5), count=5)
    fresh = unused_replay_id_after(stream[1].replay_id)
    assert seen == [
        (0, quiet(replay_id(0))),
        (0, of(stream, 0, 1)),
        (5, of(stream, 1, 2, through=fresh)),
        (22, of(stream, 2, 3)),
        (142, quiet(stream[2].replay_id)),
    ]


def test_watch_from_latest_reports_its_start_and_later_the_pinned_position():
    source = ScriptedAsyncSource(events(9), [RESET, Pause(100), Keepalive(), Pause(1), Deliver(2)], latest_from=5)
    pin = unused_replay_id_after(source.stream[4].replay_id)
    assert collect(source, LATEST, count=3) == [
        (0, WakeUp(STARTED)),
        (100.25, WakeUp(STARTED, through=pin)),
        (101.25, of(source.stream, 5, 7)),
    ]


def test_watch_from_latest_pinned_by_events_wakes_one_interval_after_the_start():
    source = ScriptedAsyncSource(events(9), [Pause(1), Deliver(2), Pause(10), Keepalive()], latest_from=7)
    assert collect(source, LATEST, WakeUpConditions(min_interval=5), count=3) == [
        (0, WakeUp(STARTED)),
        (5, of(source.stream, 7, 9)),
        (11, quiet(source.stream[8].replay_id)),
    ]


def test_subscription_is_open_when_the_consumer_receives_the_start():
    async def main():
        source = ScriptedAsyncSource(events(9), [Pause(1)])
        async with aclosing(Watch(source, TOPIC, LATEST, WakeUpConditions(), **TIME).wake_ups()) as all_of_them:
            await anext(all_of_them)
            await asyncio.sleep(0)
            assert source.open_subscriptions == 1
        assert source.open_subscriptions == 0

    run_in_virtual_time(main())


def test_watch_continues_from_latest_after_a_lost_replay_id():
    source = ScriptedAsyncSource(events(30), retained_from=10, latest_from=25)
    source.script = [Pause(50), Keepalive(), Pause(1), Deliver(2)]
    assert collect(source, events(5)[4].replay_id, count=3) == [
        (0, WakeUp(REPLAY_LOST)),
        (50, WakeUp(STARTED, through=unused_replay_id_after(source.stream[24].replay_id))),
        (51, of(source.stream, 25, 27)),
    ]
    assert source.starts[1] is LATEST


def test_pending_events_are_reported_with_the_lost_replay_id():
    script = [Deliver(2), Deliver(3), RESET, ReplayIdLostError("reset"), Pause(1), Deliver(1), Pause(10)]
    source = ScriptedAsyncSource(events(30), script, latest_from=20)
    stream = source.stream
    assert collect(source, conditions=WakeUpConditions(min_interval=5), count=3) == [
        (0, of(stream, 0, 2)),
        (0.25, WakeUp(REPLAY_LOST, stream[2].replay_id, 3, None)),
        (5.25, of(stream, 20, 21)),
    ]


def test_slow_consumer_receives_accumulated_events_in_one_wake_up():
    async def main():
        source = ScriptedAsyncSource(events(500), [Deliver(1), *[Deliver(100)] * 4])
        async with aclosing(
            Watch(source, TOPIC, EARLIEST, WakeUpConditions(min_interval=5), **TIME).wake_ups()
        ) as all_of_them:
            seen = [await anext(all_of_them)]
            await asyncio.sleep(1_000)
            assert len(source.script) == 4  # the watch does not buffer responses while its consumer is busy
            while sum(wake_up.event_count for wake_up in seen) < 500:
                seen.append(await anext(all_of_them))
        return source, seen

    source, seen = run_in_virtual_time(main())
    assert seen[0] == of(source.stream, 0, 1)
    assert [wake_up.event_count for wake_up in seen[1:]] == [100, 399]


# -- cancellation and errors ---------------------------------------------------------------------------------------

WAITS = {
    "for a response": [Pause(1_000)],
    "after a fault": [RESET] * 100,
    "for the interval": [Deliver(1), Deliver(1), Pause(1_000)],
    "for the age": [Deliver(3), Pause(1_000)],
    "with an answer at hand": [Deliver(100)] * 3,
}


@pytest.mark.parametrize("seconds", [0, 3])
@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("how", ["once", "for ever"])
def test_cancellation_at_any_point_closes_the_subscription(how, wait, seconds):
    async def main():
        source = ScriptedAsyncSource(timed(*[0] * 300), list(WAITS[wait]))

        async def consume():
            if how == "once":
                conditions = WakeUpConditions(min_events=500, max_wait=900)
                await Watch(source, TOPIC, EARLIEST, conditions, **TIME).first_wake_up()
            conditions = WakeUpConditions(min_events=3, max_wait=500, min_interval=600)
            async with aclosing(Watch(source, TOPIC, EARLIEST, conditions, **TIME).wake_ups()) as all_of_them:
                async for _ in all_of_them:
                    await asyncio.sleep(0.5)

        waiting = asyncio.create_task(consume())
        await asyncio.sleep(seconds)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        assert source.open_subscriptions == 0

    run_in_virtual_time(main())


def test_closing_a_watch_with_a_pending_error_does_not_raise():
    async def main():
        source = ScriptedAsyncSource(events(5), [Deliver(1), Deliver(1), Pause(1), QuotaExceededError("used up")])
        async with aclosing(
            Watch(source, TOPIC, LATEST, WakeUpConditions(min_interval=60), **TIME).wake_ups()
        ) as all_of_them:
            await anext(all_of_them)
            await asyncio.sleep(5)
        return source

    assert run_in_virtual_time(main()).open_subscriptions == 0


def test_a_session_refused_right_after_its_renewal_ends_the_watch():
    source = ScriptedAsyncSource(events(5), [Deliver(1), SessionExpiredError("one"), SessionExpiredError("two")])
    with pytest.raises(SessionExpiredError, match="two"):
        collect(source, count=2)
    assert source.renewals == 1


EVENT_TIME = BEGINNING - timedelta(seconds=90)
PAYLOAD = avro_payload(int(EVENT_TIME.timestamp() * 1000))


async def test_event_time_is_read_from_the_payload_and_the_schema_is_fetched_once():
    source = ScriptedAsyncSource([])
    times = EventTimes(source)
    assert [await times.read(SCHEMA_ID, PAYLOAD) for _ in range(2)] == [EVENT_TIME] * 2
    assert source.schemas_read == [SCHEMA_ID]


async def test_failed_schema_request_is_logged_and_repeated(caplog):
    caplog.set_level(logging.INFO)
    source = ScriptedAsyncSource([], schema_fault=QuotaExceededError("used up"))
    times = EventTimes(source)
    assert await times.read(SCHEMA_ID, PAYLOAD) is None
    assert "used up" in caplog.text
    source.schema_fault = None
    assert await times.read(SCHEMA_ID, PAYLOAD) == EVENT_TIME


@pytest.mark.parametrize(
    ("schema_json", "payload"),
    [
        (json.dumps({"type": "record", "name": "Bare__e", "fields": [{"name": "Text__c", "type": "string"}]}), b"\0"),
        (ScriptedAsyncSource([]).schema_json, b""),
        ('"long"', b"\0"),
    ],
    ids=["no time", "damaged", "not a record"],
)
async def test_event_time_is_none_if_the_payload_contains_no_readable_time(schema_json, payload):
    source = ScriptedAsyncSource([], schema_json=schema_json)
    assert await EventTimes(source).read(SCHEMA_ID, payload) is None
