"""Wake-ups of a Streaming API topic: no event is missed although empty responses contain no replay ID."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import ClassVar

from airflow_provider_sfstream.exceptions import ServiceUnavailableError
from airflow_provider_sfstream.salesforce.events import EventBatch, StartFrom
from airflow_provider_sfstream.streams.watch.conditions import WakeUp, WakeUpConditions, WakeUpReason
from airflow_provider_sfstream.streams.watch.wake_ups import Watch
from tests.support.scripted_async_source import Pause, ScriptedAsyncSource
from tests.support.scripted_source import Deliver, Event, Keepalive, events
from tests.support.virtual_time import run_in_virtual_time, virtual_clock, virtual_now

TOPIC = "/topic/Orders"
EARLIEST, LATEST = StartFrom.EARLIEST, StartFrom.LATEST
EVENTS, STARTED, REPLAY_LOST, QUIET = WakeUpReason
RESET = ServiceUnavailableError("reset")
TIME = {"clock": virtual_clock, "now": virtual_now, "random": lambda: 1.0}


@dataclass
class StreamingSource(ScriptedAsyncSource):
    """Source whose empty responses contain no replay ID and leave no request pending."""

    confirms_positions: ClassVar[bool] = False

    def _batch(self, part: list[Event], latest: bytes, pending: int) -> EventBatch:
        batch = super()._batch(part, latest, pending)
        return replace(batch, latest_replay_id=latest if part else b"", pending=0)


def collect(source: StreamingSource, after: bytes | StartFrom, count: int) -> list[WakeUp]:
    async def main() -> list[WakeUp]:
        seen: list[WakeUp] = []
        async with aclosing(Watch(source, TOPIC, after, WakeUpConditions(), **TIME).wake_ups()) as all_of_them:
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


def test_start_is_reported_when_the_subscription_is_open() -> None:
    stream = events(2)
    source = StreamingSource(stream, [Pause(5), Keepalive(), Keepalive(), Deliver(2)], latest_from=0)
    assert collect(source, LATEST, 3) == [WakeUp(STARTED), WakeUp(QUIET), of(stream, 0, 2)]


def test_watch_reads_all_retained_events_after_a_fault_before_the_first_event() -> None:
    stream = events(5)
    source = StreamingSource(stream, [Keepalive(), RESET], latest_from=5)
    assert collect(source, LATEST, 2) == [WakeUp(STARTED), of(stream, 0, 5)]
    assert source.starts == [LATEST, EARLIEST]


def test_watch_resumes_after_the_last_received_event() -> None:
    stream = events(5)
    source = StreamingSource(stream, [Deliver(2), Pause(10), Keepalive(), RESET], latest_from=0)
    assert collect(source, LATEST, 3) == [of(stream, 0, 2), WakeUp(QUIET), of(stream, 2, 5)]
    assert source.starts == [LATEST, stream[1].replay_id]


def test_all_retained_events_are_reported_after_a_lost_replay_id() -> None:
    stream = events(5)
    source = StreamingSource(stream, retained_from=3)
    assert collect(source, stream[0].replay_id, 2) == [WakeUp(REPLAY_LOST), of(stream, 3, 5)]
    assert source.starts == [stream[0].replay_id, EARLIEST]


def test_subscription_without_events_does_not_reset_the_pauses() -> None:
    stream = events(1)
    script = [step for _ in range(6) for step in (Keepalive(), RESET)]
    source = StreamingSource(stream, [*script, Deliver(1)], latest_from=0)

    async def main() -> tuple[WakeUp, float]:
        wake_up = await Watch(source, TOPIC, LATEST, WakeUpConditions(), **TIME).first_wake_up()
        return wake_up, virtual_clock()

    wake_up, seconds = run_in_virtual_time(main())
    assert (wake_up, seconds) == (of(stream, 0, 1), 0.25 + 0.5 + 1 + 2 + 4 + 8)


def test_wait_from_latest_is_not_ended_by_earlier_events() -> None:
    stream = events(3)
    source = StreamingSource(stream, [Keepalive(), RESET, Keepalive(), Pause(3), Deliver(1)], latest_from=2)

    async def main() -> WakeUp:
        return await Watch(source, TOPIC, LATEST, WakeUpConditions(), **TIME).first_wake_up()

    assert run_in_virtual_time(main()) == of(stream, 2, 3)
    assert source.starts == [LATEST, LATEST]
