"""Responses of a watched topic: each event arrives once and in order, also after retriable faults."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_sfstream.exceptions import (
    AuthenticationError,
    LoginUnavailableError,
    QuotaExceededError,
    ReplayIdLostError,
    ServiceUnavailableError,
    SessionExpiredError,
    ThrottledError,
    TopicNotFoundError,
)
from airflow_provider_sfstream.salesforce.events import StartFrom
from airflow_provider_sfstream.salesforce.read_ahead import ReadAhead
from airflow_provider_sfstream.streams.cursor import Cursor
from airflow_provider_sfstream.streams.watch.arrivals import arrivals
from tests.support.scripted_async_source import Pause, ScriptedAsyncSource, unused_replay_id_after
from tests.support.scripted_source import Deliver, End, Event, Keepalive, Silence, events
from tests.support.virtual_time import run_in_virtual_time, virtual_clock

TOPIC = "/event/Order__e"
EARLIEST = StartFrom.EARLIEST
RESET = ServiceUnavailableError("reset")


def read(source: ScriptedAsyncSource, after=StartFrom.EARLIEST, *, count: int, limit=None, pauses=None, **arguments):
    """Read ``count`` events; return their replay IDs, and the replay IDs of the empty responses between them."""

    async def sleep(seconds: float) -> None:
        if pauses is not None:
            pauses.append(seconds)
        await asyncio.sleep(seconds)

    async def main():
        replay_ids, named = [], []
        options = {"silence_timeout": 300, "clock": virtual_clock, "sleep": sleep, "random": lambda: 1.0, **arguments}
        async with aclosing(arrivals(source, TOPIC, cursor(after), limit=limit, **options)) as responses:
            async for response in responses:
                replay_ids += response.replay_ids
                if not len(response):
                    named.append(response.latest_replay_id)
                if limit is None and len(replay_ids) >= count:
                    break
        return replay_ids, named

    try:
        return run_in_virtual_time(main())
    finally:
        assert source.open_subscriptions == 0


def cursor(after: bytes | StartFrom) -> Cursor:
    return Cursor(after, virtual_clock)


def ids(stream: list[Event]) -> list[bytes]:
    return [event.replay_id for event in stream]


faults = st.sampled_from(
    [
        RESET,
        ThrottledError("slower"),
        LoginUnavailableError("busy"),
        End(),
        Silence(),
        Keepalive(),
        Keepalive(pending=0),
        Keepalive(at=b""),
        Pause(7),
    ]
)
scripts = st.lists(st.builds(Deliver, st.integers(1, 50), st.booleans()) | faults, max_size=30)


@given(count=st.integers(1, 200), script=scripts, start=st.integers(0, 10), limit=st.none() | st.integers(1, 250))
def test_events_arrive_once_and_in_order(count, script, start, limit):
    before = events(start)
    stream = before + events(count, first=start + 1)
    source = ScriptedAsyncSource(stream, list(script))
    begin = before[-1].replay_id if before else StartFrom.EARLIEST
    wanted = count if limit is None else min(limit, count)
    replay_ids, _ = read(source, begin, count=wanted, limit=None if limit is None else wanted)
    assert replay_ids[:wanted] == ids(stream[start : start + wanted])
    if limit is not None:
        assert len(replay_ids) == wanted
        assert source.limits[0] == wanted


def test_only_missing_events_are_requested():
    source = ScriptedAsyncSource(events(30), [Deliver(4), RESET, Deliver(3, repeat=True), RESET])
    replay_ids, _ = read(source, count=10, limit=10)
    assert replay_ids == ids(source.stream[:10])
    assert source.limits == [10, 6, 4]


def test_reading_resumes_after_the_last_received_replay_id():
    script = [Deliver(4), RESET, Keepalive(), End(), Silence()]
    source = ScriptedAsyncSource(events(5), script)
    read(source, count=5)
    fourth = source.stream[3].replay_id
    assert source.starts == [StartFrom.EARLIEST, fourth, unused_replay_id_after(fourth), unused_replay_id_after(fourth)]


def test_an_empty_response_names_a_position_only_while_requests_are_pending():
    script = [Deliver(1), Keepalive(pending=0, at=b"no"), Keepalive(at=b""), Keepalive(at=b"yes"), Deliver(1)]
    _, named = read(ScriptedAsyncSource(events(2), script), count=2)
    assert named == [b"yes"]


# -- faults --------------------------------------------------------------------------------------------------------


def test_pauses_double_up_to_half_a_minute_and_restart_after_a_response():
    pauses: list[float] = []
    source = ScriptedAsyncSource(events(2), [*[RESET] * 10, Keepalive(), RESET, ThrottledError("slower"), Deliver(2)])
    read(source, count=2, pauses=pauses)
    assert pauses == [0.25, 0.5, 1, 2, 4, 8, 16, 30, 30, 30, 0.25, 10]


def test_number_of_retries_is_unlimited():
    source = ScriptedAsyncSource(events(1), [RESET] * 2_000)
    replay_ids, _ = read(source, count=1)
    assert replay_ids == ids(source.stream)
    assert len(source.starts) == 2_001


def test_silence_is_a_fault_after_silence_timeout():
    async def main():
        source = ScriptedAsyncSource(events(1), [Silence()])
        options = {"clock": virtual_clock, "sleep": asyncio.sleep, "random": lambda: 1.0}
        async with aclosing(
            arrivals(source, TOPIC, cursor(EARLIEST), limit=None, silence_timeout=40, **options)
        ) as responses:
            await anext(responses)
        return virtual_clock()

    assert 40 < run_in_virtual_time(main()) < 41


def test_a_refused_session_is_renewed_and_the_topic_read_again_at_once():
    pauses: list[float] = []
    expired = SessionExpiredError("refused")
    source = ScriptedAsyncSource(events(3), [expired, Deliver(1), expired, Keepalive(), expired])
    replay_ids, _ = read(source, count=3, pauses=pauses)
    assert (replay_ids, source.renewals, pauses) == (ids(source.stream), 3, [])


def test_a_session_refused_right_after_its_renewal_is_raised():
    source = ScriptedAsyncSource(events(3), [Deliver(1), SessionExpiredError("one"), SessionExpiredError("two")])
    with pytest.raises(SessionExpiredError, match="two"):
        read(source, count=3)
    assert source.renewals == 1


def test_renewed_session_is_renewed_again_only_if_it_lasted():
    expired = SessionExpiredError("refused")
    source = ScriptedAsyncSource(
        events(1), [Pause(5), expired, Pause(30), expired, Pause(100), expired, Pause(1), Keepalive()]
    )
    replay_ids, _ = read(source, count=1)
    assert (replay_ids, source.renewals) == (ids(source.stream), 3)
    source = ScriptedAsyncSource(events(1), [expired, Pause(29), expired])
    with pytest.raises(SessionExpiredError):
        read(source, count=1)


def test_yielded_response_is_freed_while_the_reader_waits_for_the_next():
    class Payload(bytes):
        alive = 0

        def __new__(cls, content):
            cls.alive += 1
            return super().__new__(cls, content)

        def __del__(self):
            type(self).alive -= 1

    class Source(ScriptedAsyncSource):
        def _batch(self, part, latest, pending):
            return replace(super()._batch(part, latest, pending), payloads=[Payload(e.payload) for e in part])

    async def main():
        source = Source(events(300), [Deliver(100), Pause(50), Deliver(100), Pause(50)])
        options = {"clock": virtual_clock, "sleep": asyncio.sleep, "random": lambda: 1.0}
        responses = arrivals(source, TOPIC, cursor(EARLIEST), limit=None, silence_timeout=40, **options)
        async with ReadAhead(responses) as reader:
            observed = []
            for _ in range(4):
                response = await reader.next(10)
                observed.append((response is not None, Payload.alive))
                del response
        return observed

    observed = run_in_virtual_time(main())
    assert observed == [(True, 100), (False, 0), (False, 0), (False, 0)]


@pytest.mark.parametrize("kind", [AuthenticationError, QuotaExceededError, TopicNotFoundError, ReplayIdLostError])
def test_error_that_is_not_retriable_is_raised_unchanged(kind):
    error = kind("for good")
    source = ScriptedAsyncSource(events(3), [Deliver(1), error])
    with pytest.raises(kind) as raised:
        read(source, count=3)
    assert raised.value is error


def test_unknown_exception_is_raised():
    with pytest.raises(ZeroDivisionError):
        read(ScriptedAsyncSource(events(3), [ZeroDivisionError()]), count=3)


def test_faults_are_logged_and_from_the_fifth_in_a_row_as_warnings(caplog):
    caplog.set_level(logging.INFO, logger="airflow_provider_sfstream.streams.watch.arrivals")
    source = ScriptedAsyncSource(events(2), [RESET, Deliver(1), *[RESET] * 6])
    read(source, count=2)
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in lines] == ["INFO"] * 5 + ["WARNING"] * 3
    assert lines[0][1] == f"{TOPIC}: resuming in 0.2 s after: reset"
    assert lines[5][1] == (
        f"{TOPIC}: unreachable for 4 s (5 consecutive faults), retrying in 4.0 s. Nothing is lost while the org "
        "retains the events. The last fault: reset"
    )
    assert lines[7][1] == f"{TOPIC}: reachable again after 16 s."


# -- LATEST --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [Deliver(2), Keepalive()], ids=["events", "an empty response"])
def test_latest_is_pinned_by_the_first_received_replay_id(first):
    source = ScriptedAsyncSource(events(20), [RESET, Keepalive(pending=0), RESET, first, RESET], latest_from=10)
    replay_ids, _ = read(source, StartFrom.LATEST, count=10)
    assert replay_ids == ids(source.stream[10:])
    assert source.starts[:3] == [StartFrom.LATEST] * 3
    assert all(isinstance(start, bytes) for start in source.starts[3:])


class Numbers:
    """Asynchronous generator of one number after each of ``pauses``, which finally raises ``error``."""

    def __init__(self, *pauses: float, error: Exception | None = None) -> None:
        self.pauses, self.error = pauses, error
        self.begun: list[int] = []
        self.closed_at: float | None = None

    async def __call__(self):
        try:
            for number, pause in enumerate(self.pauses):
                self.begun.append(number)
                await asyncio.sleep(pause)
                yield number
            if self.error is not None:
                raise self.error
        finally:
            await asyncio.sleep(1)
            self.closed_at = virtual_clock()


def test_timeout_of_the_consumer_does_not_end_the_read():
    async def main():
        numbers = Numbers(0, 25, 0)
        async with ReadAhead(numbers()) as reader:
            seen = [(await reader.next(seconds), virtual_clock()) for seconds in (10, 10, 10, 10, None)]
        return seen, numbers.closed_at

    seen, closed_at = run_in_virtual_time(main())
    assert seen == [(0, 0), (None, 10), (None, 20), (1, 25), (2, 25)]
    assert closed_at == 26


def test_reader_starts_the_first_read_early_and_later_reads_on_request():
    async def main():
        numbers = Numbers(0, 0, 0)
        async with ReadAhead(numbers()) as reader:
            await asyncio.sleep(5)
            begun = [list(numbers.begun)]
            for _ in range(2):
                await reader.next(None)
                await asyncio.sleep(5)
                begun.append(list(numbers.begun))
        return begun

    assert run_in_virtual_time(main()) == [[0], [0], [0, 1]]


def test_error_is_raised_by_the_next_read():
    async def main():
        numbers = Numbers(0, error=QuotaExceededError("used up"))
        async with ReadAhead(numbers()) as reader:
            await reader.next(None)
            with pytest.raises(QuotaExceededError):
                await reader.next(None)
        return numbers.closed_at

    assert run_in_virtual_time(main()) == 1


@pytest.mark.parametrize("seconds", [0, 1])
def test_leaving_with_an_unread_error_does_not_raise(seconds):
    async def main():
        async with ReadAhead(Numbers(error=QuotaExceededError("used up"))()):
            await asyncio.sleep(seconds + 1)

    run_in_virtual_time(main())


@pytest.mark.parametrize("before", [None, 0, 5], ids=["at once", "when begun", "while it waits"])
def test_leaving_cancels_a_read_in_flight(before):
    async def main():
        numbers = Numbers(100)
        async with ReadAhead(numbers()):
            if before is not None:
                await asyncio.sleep(before)
        return numbers

    numbers = run_in_virtual_time(main())
    assert numbers.closed_at == (None if before is None else before + 1)


def test_error_while_the_generator_closes_is_not_raised():
    async def failing_to_close():
        try:
            await asyncio.sleep(100)
            yield 0
        finally:
            raise QuotaExceededError("used up")

    async def main():
        async with ReadAhead(failing_to_close()):
            await asyncio.sleep(5)

    run_in_virtual_time(main())


def test_consumer_can_be_cancelled_while_the_reader_closes():
    async def main():
        numbers = Numbers(100)

        async def wait():
            async with ReadAhead(numbers()) as reader:
                await reader.next(None)

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(5)
        waiting.cancel()
        await asyncio.sleep(0.5)  # the reader is closing; its generator takes a second to close
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        await asyncio.sleep(1)
        return numbers.closed_at

    assert run_in_virtual_time(main()) == 6
