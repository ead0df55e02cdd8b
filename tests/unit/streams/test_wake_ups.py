"""Wake-ups from a scripted topic: what is told, when, and through where."""

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
from airflow_provider_sfstream.streams.watch.wake_ups import EventTimes, first_wake_up, wake_ups
from tests.support.scripted_async_source import Pass, ScriptedAsyncSource, behind
from tests.support.scripted_source import SCHEMA_ID, Deliver, Event, Keepalive, avro_payload, events, replay_id
from tests.support.virtual_time import BEGINNING, run_in_virtual_time, virtual_clock, virtual_now

TOPIC = "/event/Order__e"
EARLIEST, LATEST = StartFrom.EARLIEST, StartFrom.LATEST
EVENTS, STARTED, REPLAY_LOST, QUIET = WakeUpReason
RESET = ServiceUnavailableError("reset")
TIME = {"clock": virtual_clock, "now": virtual_now, "random": lambda: 1.0}


def told(source: ScriptedAsyncSource, start=EARLIEST, conditions=None, *, count: int) -> list[tuple[float, WakeUp]]:
    """Return the first ``count`` wake-ups and the seconds at which they came."""

    async def main():
        seen = []
        async with aclosing(wake_ups(source, TOPIC, start, conditions or WakeUpConditions(), **TIME)) as all_of_them:
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
    """Return the only wake-up and the seconds at which it came."""

    async def main():
        wake_up = await first_wake_up(source, TOPIC, start, conditions or WakeUpConditions(), **TIME)
        return virtual_clock(), wake_up

    try:
        return run_in_virtual_time(main())
    finally:
        assert source.open_subscriptions == 0


def timed(*seconds_before: float) -> list[Event]:
    """Return events that happened so many seconds before the beginning."""
    stream = []
    for number, seconds in enumerate(seconds_before, 1):
        time = int((BEGINNING - timedelta(seconds=seconds)).timestamp() * 1_000)
        stream.append(Event(replay_id(number * 3), avro_payload(time), time))
    return stream


def of(stream: list[Event], begin: int, end: int, through: bytes | None = None) -> WakeUp:
    """Return the wake-up for ``stream[begin:end]``."""
    return WakeUp(EVENTS, stream[begin].replay_id, end - begin, through or stream[end - 1].replay_id)


# -- once ----------------------------------------------------------------------------------------------------------


def quiet(after: bytes) -> WakeUp:
    """Return the wake-up for an empty response of a subscription that has nothing after a replay ID."""
    return WakeUp(QUIET, through=behind(after))


def test_once_min_events_have_come():
    source = ScriptedAsyncSource(events(30), [Deliver(2), Pass(40), RESET, Keepalive(), Deliver(7), Pass(9)])
    seconds, wake_up = first(source, conditions=WakeUpConditions(min_events=9))
    assert wake_up == of(source.stream, 0, 9)
    assert seconds == 40.25
    assert source.limits == [9, 7]
    assert source.schemas_read == []  # no event time is read where none is asked for


def test_the_first_event_is_enough_by_default_and_only_one_is_asked_for():
    source = ScriptedAsyncSource(events(30), [Keepalive(), Pass(500), Keepalive()])
    assert first(source, events(2)[1].replay_id) == (500, of(source.stream, 2, 3))
    assert source.limits == [1]


def test_latest_waits_for_what_comes_from_now_on():
    source = ScriptedAsyncSource(events(30), [Keepalive(), RESET, Pass(100), Deliver(3)], latest_from=20)
    seconds, wake_up = first(source, LATEST, WakeUpConditions(min_events=3))
    assert wake_up == of(source.stream, 20, 23)
    assert seconds == 100.25


@pytest.mark.parametrize(("ages", "seconds"), [([15, 900], 45), ([0, 0], 60), ([900, 0], 0), ([-900, 0], 60)], ids=str)
def test_fewer_are_enough_once_the_oldest_has_waited_for_max_wait_by_its_event_time(ages, seconds):
    source = ScriptedAsyncSource(timed(*ages), [Deliver(2)])
    told_at, wake_up = first(source, conditions=WakeUpConditions(min_events=10, max_wait=60))
    assert wake_up == of(source.stream, 0, 2)
    assert told_at == pytest.approx(seconds)
    assert source.schemas_read == [SCHEMA_ID]
    assert source.limits == [10]


def test_max_wait_counts_what_comes_meanwhile_over_faults_too():
    stream = timed(0, 0, 0, 0, 0, 0)
    source = ScriptedAsyncSource(stream, [Pass(5), Deliver(1), Pass(10), Deliver(2), Pass(10), RESET, Pass(500)])
    seconds, wake_up = first(source, conditions=WakeUpConditions(min_events=10, max_wait=60))
    assert (seconds, wake_up) == (pytest.approx(60), of(stream, 0, 3))


@pytest.mark.parametrize("reason", ["no schema", "no time"])
def test_max_wait_counts_from_the_arrival_where_no_event_time_can_be_had(reason):
    source = ScriptedAsyncSource(timed(900), [Pass(7), Deliver(1)])
    if reason == "no schema":
        source.schema_fault = QuotaExceededError("used up")
    else:
        source.schema_json = '{"type": "record", "name": "Bare__e", "fields": []}'
    seconds, wake_up = first(source, conditions=WakeUpConditions(min_events=10, max_wait=60))
    assert (seconds, wake_up) == (pytest.approx(67), of(source.stream, 0, 1))


def test_only_the_first_waiting_event_is_looked_at():
    source = ScriptedAsyncSource(timed(10, 900, 900), [Deliver(1), Pass(1), Deliver(1), Pass(1), Deliver(1)])
    seconds, _ = first(source, conditions=WakeUpConditions(min_events=10, max_wait=60))
    assert seconds == pytest.approx(50)


CONFIRMED = WakeUpConditions(until_confirmed=True)


def test_the_end_of_the_stream_is_enough_where_it_is_waited_for_and_is_that_of_when_the_second_was_opened():
    stream = events(2)
    script = [Pass(30), RESET, Pass(5), Keepalive(pending=0), Pass(40), Keepalive()]
    source = ScriptedAsyncSource(stream, script, reference=ScriptedAsyncSource(stream))
    assert first(source, stream[1].replay_id, CONFIRMED) == (
        pytest.approx(120, abs=1),
        WakeUp(
            QUIET,
            through=behind(stream[1].replay_id),
            confirmed_at=BEGINNING,
            contact_at=BEGINNING + timedelta(seconds=30.25 + 5 + 40 + 1),
        ),
    )
    assert source.reference.open_subscriptions == 0


def test_the_end_may_be_confirmed_by_the_answer_of_the_first_subscription_too():
    stream = events(2)
    reference = ScriptedAsyncSource(stream, [Pass(3), Keepalive()])
    source = ScriptedAsyncSource(stream, [Pass(20), Keepalive()], reference=reference)
    seconds, wake_up = first(source, stream[1].replay_id, CONFIRMED)
    assert (seconds, wake_up.confirmed_at, wake_up.contact_at) == (20, BEGINNING, BEGINNING + timedelta(seconds=21))


def test_empty_responses_of_a_subscription_that_seeks_are_not_the_end():
    stream = events(4)
    script = [Keepalive(at=replay_id(4)), Pass(9), Keepalive(at=replay_id(5)), Pass(300), Deliver(3)]
    source = ScriptedAsyncSource(stream, script, reference=ScriptedAsyncSource(stream, [Keepalive()]))
    assert first(source, stream[0].replay_id, CONFIRMED) == (309, of(stream, 1, 2))


@pytest.mark.parametrize("reference", ["silent", "cut", "other form"])
def test_without_an_answer_of_the_second_subscription_the_wait_continues(reference):
    stream = events(2)
    script = {"silent": [Pass(9_999)], "cut": [RESET], "other form": [Keepalive(at=b"\0")]}[reference]
    source = ScriptedAsyncSource(
        stream, [Keepalive(), Pass(400), Deliver(1)], reference=ScriptedAsyncSource(stream, script)
    )
    assert first(source, stream[0].replay_id, CONFIRMED) == (400, of(stream, 1, 2))
    assert source.reference.open_subscriptions == 0


def test_without_salesforces_time_nothing_is_confirmed_and_no_second_subscription_is_opened():
    stream = events(2)
    reference = ScriptedAsyncSource(stream, [Keepalive()])
    source = ScriptedAsyncSource(stream, [Keepalive(), Pass(400), Deliver(1)], reference=reference, measures_time=False)
    assert first(source, stream[0].replay_id, CONFIRMED) == (400, of(stream, 1, 2))
    assert reference.starts == []


def test_an_event_is_enough_where_the_end_is_waited_for():
    stream = events(2)
    reference = ScriptedAsyncSource(stream, [Pass(1), Keepalive()])
    source = ScriptedAsyncSource(stream, [Pass(3), Deliver(1), Keepalive()], reference=reference)
    assert first(source, stream[0].replay_id, CONFIRMED) == (3, of(stream, 1, 2))


def test_too_few_events_are_not_the_end():
    stream = events(2)
    reference = ScriptedAsyncSource(stream, [Keepalive()])
    source = ScriptedAsyncSource(stream, [Deliver(1), Keepalive(), Pass(50), Deliver(1)], reference=reference)
    conditions = WakeUpConditions(min_events=2, until_confirmed=True)
    assert first(source, conditions=conditions) == (50, of(stream, 0, 2))


def test_a_lost_replay_id_is_a_wake_up():
    source = ScriptedAsyncSource(events(30), retained_from=10)
    assert first(source, events(5)[4].replay_id) == (0, WakeUp(REPLAY_LOST))
    source = ScriptedAsyncSource(events(30), [Deliver(3), RESET, ReplayIdLostError("reset")])
    _, wake_up = first(source, conditions=WakeUpConditions(min_events=9))
    assert wake_up == WakeUp(REPLAY_LOST, events(1)[0].replay_id, 3, None)


@pytest.mark.parametrize("start", [EARLIEST, LATEST])
def test_a_lost_replay_id_that_was_never_sent_is_an_error(start):
    with pytest.raises(ReplayIdLostError):
        first(ScriptedAsyncSource(events(3), [ReplayIdLostError("what?")]), start)
    with pytest.raises(ReplayIdLostError):
        told(ScriptedAsyncSource(events(3), [ReplayIdLostError("what?")]), start, count=2)


@pytest.mark.parametrize("error", [AuthenticationError("revoked"), QuotaExceededError("used up")])
def test_what_cannot_pass_is_raised(error):
    with pytest.raises(type(error)):
        first(ScriptedAsyncSource(events(3), [Keepalive(), error]))
    with pytest.raises(type(error)):
        told(ScriptedAsyncSource(events(3), [Deliver(1), error]), count=2)


# -- for ever ------------------------------------------------------------------------------------------------------


def test_the_first_event_after_a_quiet_time_wakes_at_once_and_a_burst_collapses():
    stream = events(10_001)
    burst = [step for _ in range(100) for step in (Deliver(100), Pass(0.01))]
    source = ScriptedAsyncSource(stream, [Pass(100), Deliver(1), *burst])
    seen = told(source, conditions=WakeUpConditions(min_interval=5), count=3)
    assert [seconds for seconds, _ in seen[:2]] == [100, 105]
    assert [wake_up for _, wake_up in seen[:2]] == [of(stream, 0, 1), of(stream, 1, 10_001)]
    assert seen[2][1].reason is QUIET


def test_a_steady_flow_is_told_at_the_interval():
    flow = [step for _ in range(49) for step in (Deliver(1), Pass(1))]
    source = ScriptedAsyncSource(events(50), [Deliver(1), Pass(0.5), *flow])
    seen = told(source, conditions=WakeUpConditions(min_interval=10), count=6)
    assert [(seconds, wake_up.event_count) for seconds, wake_up in seen[:5]] == [
        (0, 1),
        *[(at, 10) for at in (10, 20, 30, 40)],
    ]
    assert sum(wake_up.event_count for _, wake_up in seen) == 50


def test_without_an_interval_each_response_is_a_wake_up():
    source = ScriptedAsyncSource(events(6), [Deliver(1), Deliver(2), Deliver(3)])
    assert [wake_up.event_count for _, wake_up in told(source, count=3)] == [1, 2, 3]


def test_min_events_and_max_wait_hold_for_every_wake_up():
    stream = timed(*[0] * 8)
    source = ScriptedAsyncSource(stream, [Deliver(3), Pass(2), Deliver(2), Pass(5), Deliver(2), Pass(500), Deliver(1)])
    conditions = WakeUpConditions(min_events=5, max_wait=60, min_interval=5)
    assert told(source, conditions=conditions, count=3) == [
        (2, of(stream, 0, 5)),
        (pytest.approx(60), of(stream, 5, 7)),
        (507, of(stream, 7, 8)),
    ]


def test_an_empty_response_is_quiet_only_while_nothing_waits():
    stream = events(3)
    source = ScriptedAsyncSource(stream, [Keepalive(), Deliver(1), Deliver(1), Pass(2), Keepalive(), Pass(20)])
    seen = told(source, conditions=WakeUpConditions(min_interval=5), count=5)
    fresh = behind(stream[1].replay_id)
    assert seen == [
        (0, quiet(replay_id(0))),
        (0, of(stream, 0, 1)),
        (5, of(stream, 1, 2, through=fresh)),
        (22, of(stream, 2, 3)),
        (142, quiet(stream[2].replay_id)),
    ]


def test_latest_has_started_at_once_and_once_more_when_an_empty_response_pins_it():
    source = ScriptedAsyncSource(events(9), [RESET, Pass(100), Keepalive(), Pass(1), Deliver(2)], latest_from=5)
    pin = behind(source.stream[4].replay_id)
    assert told(source, LATEST, count=3) == [
        (0, WakeUp(STARTED)),
        (100.25, WakeUp(STARTED, through=pin)),
        (101.25, of(source.stream, 5, 7)),
    ]


def test_latest_pinned_by_events_is_an_ordinary_wake_up_an_interval_after_the_start():
    source = ScriptedAsyncSource(events(9), [Pass(1), Deliver(2), Pass(10), Keepalive()], latest_from=7)
    assert told(source, LATEST, WakeUpConditions(min_interval=5), count=3) == [
        (0, WakeUp(STARTED)),
        (5, of(source.stream, 7, 9)),
        (11, quiet(source.stream[8].replay_id)),
    ]


def test_the_subscription_is_opened_before_whoever_is_told_of_the_start_does_anything():
    async def main():
        source = ScriptedAsyncSource(events(9), [Pass(1)])
        async with aclosing(wake_ups(source, TOPIC, LATEST, WakeUpConditions(), **TIME)) as all_of_them:
            await anext(all_of_them)
            await asyncio.sleep(0)
            assert source.open_subscriptions == 1
        assert source.open_subscriptions == 0

    run_in_virtual_time(main())


def test_after_a_lost_replay_id_it_goes_on_from_latest():
    source = ScriptedAsyncSource(events(30), retained_from=10, latest_from=25)
    source.script = [Pass(50), Keepalive(), Pass(1), Deliver(2)]
    assert told(source, events(5)[4].replay_id, count=3) == [
        (0, WakeUp(REPLAY_LOST)),
        (50, WakeUp(STARTED, through=behind(source.stream[24].replay_id))),
        (51, of(source.stream, 25, 27)),
    ]
    assert source.starts[1] is LATEST


def test_events_that_were_not_told_are_told_with_the_loss():
    script = [Deliver(2), Deliver(3), RESET, ReplayIdLostError("reset"), Pass(1), Deliver(1), Pass(10)]
    source = ScriptedAsyncSource(events(30), script, latest_from=20)
    stream = source.stream
    assert told(source, conditions=WakeUpConditions(min_interval=5), count=3) == [
        (0, of(stream, 0, 2)),
        (0.25, WakeUp(REPLAY_LOST, stream[2].replay_id, 3, None)),
        (5.25, of(stream, 20, 21)),
    ]


def test_a_consumer_that_takes_its_time_is_told_everything_in_one():
    async def main():
        source = ScriptedAsyncSource(events(500), [Deliver(1), *[Deliver(100)] * 4])
        async with aclosing(wake_ups(source, TOPIC, EARLIEST, WakeUpConditions(min_interval=5), **TIME)) as all_of_them:
            seen = [await anext(all_of_them)]
            await asyncio.sleep(1_000)
            assert len(source.script) == 4  # what was not asked for does not wait in memory
            while sum(wake_up.event_count for wake_up in seen) < 500:
                seen.append(await anext(all_of_them))
        return source, seen

    source, seen = run_in_virtual_time(main())
    assert seen[0] == of(source.stream, 0, 1)
    assert [wake_up.event_count for wake_up in seen[1:]] == [100, 399]


# -- endings -------------------------------------------------------------------------------------------------------

WAITS = {
    "for a response": [Pass(1_000)],
    "after a fault": [RESET] * 100,
    "for the interval": [Deliver(1), Deliver(1), Pass(1_000)],
    "for the age": [Deliver(3), Pass(1_000)],
    "with an answer at hand": [Deliver(100)] * 3,
}


@pytest.mark.parametrize("seconds", [0, 3])
@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("how", ["once", "for ever"])
def test_cancelled_anywhere_the_subscription_ends(how, wait, seconds):
    async def main():
        source = ScriptedAsyncSource(timed(*[0] * 300), list(WAITS[wait]))

        async def consume():
            if how == "once":
                conditions = WakeUpConditions(min_events=500, max_wait=900)
                await first_wake_up(source, TOPIC, EARLIEST, conditions, **TIME)
            conditions = WakeUpConditions(min_events=3, max_wait=500, min_interval=600)
            async with aclosing(wake_ups(source, TOPIC, EARLIEST, conditions, **TIME)) as all_of_them:
                async for _ in all_of_them:
                    await asyncio.sleep(0.5)

        waiting = asyncio.create_task(consume())
        await asyncio.sleep(seconds)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        assert source.open_subscriptions == 0

    run_in_virtual_time(main())


def test_closed_while_an_error_waits_it_makes_no_noise():
    async def main():
        source = ScriptedAsyncSource(events(5), [Deliver(1), Deliver(1), Pass(1), QuotaExceededError("used up")])
        async with aclosing(wake_ups(source, TOPIC, LATEST, WakeUpConditions(min_interval=60), **TIME)) as all_of_them:
            await anext(all_of_them)
            await asyncio.sleep(5)
        return source

    assert run_in_virtual_time(main()).open_subscriptions == 0


def test_a_session_refused_right_after_its_renewal_ends_the_watch():
    source = ScriptedAsyncSource(events(5), [Deliver(1), SessionExpiredError("one"), SessionExpiredError("two")])
    with pytest.raises(SessionExpiredError, match="two"):
        told(source, count=2)
    assert source.renewals == 1


EVENT_TIME = BEGINNING - timedelta(seconds=90)
PAYLOAD = avro_payload(int(EVENT_TIME.timestamp() * 1000))


async def test_the_event_time_is_read_from_the_payload_and_the_schema_asked_for_once():
    source = ScriptedAsyncSource([])
    times = EventTimes(source)
    assert [await times.read(SCHEMA_ID, PAYLOAD) for _ in range(2)] == [EVENT_TIME] * 2
    assert source.schemas_read == [SCHEMA_ID]


async def test_a_schema_that_cannot_be_had_is_told_and_asked_for_again(caplog):
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
async def test_an_event_without_a_time_has_none(schema_json, payload):
    source = ScriptedAsyncSource([], schema_json=schema_json)
    assert await EventTimes(source).read(SCHEMA_ID, payload) is None
