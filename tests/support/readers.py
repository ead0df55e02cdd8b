"""Reading from an event source of any kind, as its users do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

from airflow_provider_sfstream.exceptions import ServiceUnavailableError, SessionExpiredError
from airflow_provider_sfstream.salesforce.events import EventBatch, StartFrom
from tests.support.event_sources import SECONDS, EventSourceAdapter, Stream
from tests.support.localorg import wait_until


async def until(condition: Callable[[], Any], what: str) -> None:
    """Wait for what the org shows, while the event loop runs."""
    await asyncio.to_thread(wait_until, condition, what=what)


async def next_events(stream: Stream) -> EventBatch:
    """Return the next batch that is not empty."""
    while True:
        batch = await anext(stream)
        assert batch is not None, "events are there, but do not come"
        if len(batch):
            return batch


async def first(
    source: EventSourceAdapter, topic: str, start: bytes | StartFrom = StartFrom.EARLIEST, **arguments: Any
) -> EventBatch:
    """Return the first events of a subscription without a limit."""
    await source.ready()
    async with aclosing(source.subscribe(topic, start, **arguments)) as stream:
        return await next_events(stream)


async def read(
    source: EventSourceAdapter, topic: str, start: bytes | StartFrom = StartFrom.EARLIEST, *, count: int
) -> list[EventBatch]:
    """Return the batches that hold the first ``count`` events after ``start``."""
    await source.ready()
    batches: list[EventBatch] = []
    async with aclosing(source.subscribe(topic, start, limit=count)) as stream:
        async for batch in stream:
            assert batch is not None, "events are there, but do not come"
            batches.append(batch)
    return [batch for batch in batches if len(batch)]


async def ended(source: EventSourceAdapter, topic: str) -> None:
    """Wait until the org serves no subscription to ``topic``: all are closed."""
    await source.let_go()
    await until(lambda: not source.open_streams(topic), "the end of the subscription")


def replay_ids(batches: list[EventBatch]) -> list[bytes]:
    return [replay_id for batch in batches for replay_id in batch.replay_ids]


async def resumed(source: EventSourceAdapter, topic: str, got: list[bytes], *, count: int) -> list[bytes]:
    """Return the replay IDs of ``count`` events, those not in ``got`` read as a drain does: through passing faults."""
    got = list(got)
    async with asyncio.timeout(SECONDS):
        while len(got) < count:
            await source.ready()
            stream = source.subscribe(topic, got[-1] if got else StartFrom.EARLIEST, limit=count - len(got))
            try:
                async for batch in stream:
                    assert batch is not None, "events are there, but do not come"
                    got += batch.replay_ids
            except SessionExpiredError:
                source.renew_session()
            except ServiceUnavailableError:  # a connection that was reset may take the next call with it
                await asyncio.sleep(0.02)
    return got
