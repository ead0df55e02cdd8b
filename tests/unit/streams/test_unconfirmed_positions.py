"""Wake-ups from a topic of the Streaming API, whose silences name no replay ID: no event is missed for that."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import ClassVar

from airflow_provider_sfstream.exceptions import ServiceUnavailableError
from airflow_provider_sfstream.salesforce.events import EventBatch, StartFrom
from airflow_provider_sfstream.streams.watch.conditions import WakeUp, WakeUpConditions, WakeUpReason
from airflow_provider_sfstream.streams.watch.wake_ups import first_wake_up, wake_ups
from tests.support.scripted_async_source import Pass, ScriptedAsyncSource
from tests.support.scripted_source import Deliver, Event, Keepalive, events
from tests.support.virtual_time import run_in_virtual_time, virtual_clock, virtual_now

TOPIC = "/topic/Orders"
EARLIEST, LATEST = StartFrom.EARLIEST, StartFrom.LATEST
EVENTS, STARTED, REPLAY_LOST, QUIET = WakeUpReason
RESET = ServiceUnavailableError("reset")
TIME = {"clock": virtual_clock, "now": virtual_now, "random": lambda: 1.0}


@dataclass
class StreamingSource(ScriptedAsyncSource):
    """Its empty responses name no replay ID and owe nothing."""

    confirms_positions: ClassVar[bool] = False

    def _batch(self, part: list[Event], latest: bytes, pending: int) -> EventBatch:
        batch = super()._batch(part, latest, pending)
        return replace(batch, latest_replay_id=latest if part else b"", pending=0)


def told(source: StreamingSource, start: bytes | StartFrom, count: int) -> list[WakeUp]:
    async def main() -> list[WakeUp]:
        seen: list[WakeUp] = []
        async with aclosing(wake_ups(source, TOPIC, start, WakeUpConditions(), **TIME)) as all_of_them:
            async for wake_up in all_of_them:
                seen.append(wake_up)
                if len(seen) == count:
                    break
        return seen

    try:
        return run_in_virtual_time(main())
    finally:
        assert source.open_subscriptions == 0


def of(stream: list[Event], begin: int, end: int) -> WakeUp:
    return WakeUp(EVENTS, stream[begin].replay_id, end - begin, stream[end - 1].replay_id)


def test_the_start_is_told_when_the_subscription_stands() -> None:
    stream = events(2)
    source = StreamingSource(stream, [Pass(5), Keepalive(), Keepalive(), Deliver(2)], latest_from=0)
    assert told(source, LATEST, 3) == [WakeUp(STARTED), WakeUp(QUIET), of(stream, 0, 2)]


def test_a_fault_before_the_first_event_is_followed_by_all_that_is_retained() -> None:
    stream = events(5)
    source = StreamingSource(stream, [Keepalive(), RESET], latest_from=5)
    assert told(source, LATEST, 2) == [WakeUp(STARTED), of(stream, 0, 5)]
    assert source.starts == [LATEST, EARLIEST]


def test_once_an_event_was_seen_it_goes_on_from_there() -> None:
    stream = events(5)
    source = StreamingSource(stream, [Deliver(2), Pass(10), Keepalive(), RESET], latest_from=0)
    assert told(source, LATEST, 3) == [of(stream, 0, 2), WakeUp(QUIET), of(stream, 2, 5)]
    assert source.starts == [LATEST, stream[1].replay_id]


def test_after_a_loss_all_that_is_retained_is_told() -> None:
    stream = events(5)
    source = StreamingSource(stream, retained_from=3)
    assert told(source, stream[0].replay_id, 2) == [WakeUp(REPLAY_LOST), of(stream, 3, 5)]
    assert source.starts == [stream[0].replay_id, EARLIEST]


def test_a_subscription_that_only_ever_stands_is_no_progress() -> None:
    stream = events(1)
    script = [step for _ in range(6) for step in (Keepalive(), RESET)]
    source = StreamingSource(stream, [*script, Deliver(1)], latest_from=0)

    async def main() -> tuple[WakeUp, float]:
        wake_up = await first_wake_up(source, TOPIC, LATEST, WakeUpConditions(), **TIME)
        return wake_up, virtual_clock()

    wake_up, seconds = run_in_virtual_time(main())
    assert (wake_up, seconds) == (of(stream, 0, 1), 0.25 + 0.5 + 1 + 2 + 4 + 8)


def test_whoever_waits_once_from_now_on_is_not_woken_by_what_was_there() -> None:
    stream = events(3)
    source = StreamingSource(stream, [Keepalive(), RESET, Keepalive(), Pass(3), Deliver(1)], latest_from=2)

    async def main() -> WakeUp:
        return await first_wake_up(source, TOPIC, LATEST, WakeUpConditions(), **TIME)

    assert run_in_virtual_time(main()) == of(stream, 2, 3)
    assert source.starts == [LATEST, LATEST]
