"""Helpers that read from any kind of event source."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

from airflow_provider_sfstream.exceptions import ServiceUnavailableError, SessionExpiredError
from airflow_provider_sfstream.salesforce.events import EventBatch, StartFrom
from tests.support.event_sources import SECONDS, EventSourceAdapter, Stream
from tests.support.localorg import wait_until


async def wait_for(condition: Callable[[], Any], what: str) -> None:
    """Wait for a condition, such as a state of the org, without blocking the event loop."""
    await asyncio.to_thread(wait_until, condition, what=what)


async def next_events(stream: Stream) -> EventBatch:
    """Return the next batch that is not empty."""
    while True:
        batch = await anext(stream)
        assert batch is not None, "the source delivers no events although the topic has some"
        if len(batch):
            return batch


async def first_events(
    source: EventSourceAdapter, topic: str, after: bytes | StartFrom = StartFrom.EARLIEST, **arguments: Any
) -> EventBatch:
    """Return the first events of a subscription that has no limit."""
    await source.wait_until_free()
    async with aclosing(source.subscribe(topic, after, **arguments)) as stream:
        return await next_events(stream)


async def read(
    source: EventSourceAdapter, topic: str, after: bytes | StartFrom = StartFrom.EARLIEST, *, count: int
) -> list[EventBatch]:
    """Return the batches that hold the first ``count`` events after ``after``."""
    await source.wait_until_free()
    batches: list[EventBatch] = []
    async with aclosing(source.subscribe(topic, after, limit=count)) as stream:
        async for batch in stream:
            assert batch is not None, "the source delivers no events although the topic has some"
            batches.append(batch)
    return [batch for batch in batches if len(batch)]


async def wait_until_unsubscribed(source: EventSourceAdapter, topic: str) -> None:
    """Wait until all subscriptions to ``topic`` are closed in the org."""
    await source.close_streams()
    await wait_for(lambda: not source.open_streams(topic), "the end of the subscription")


def replay_ids(batches: list[EventBatch]) -> list[bytes]:
    return [replay_id for batch in batches for replay_id in batch.replay_ids]


async def read_through_faults(source: EventSourceAdapter, topic: str, got: list[bytes], *, count: int) -> list[bytes]:
    """Read on after ``got`` despite temporary faults, as a drain does; return ``count`` replay IDs, with ``got``."""
    got = list(got)
    async with asyncio.timeout(SECONDS):
        while len(got) < count:
            await source.wait_until_free()
            stream = source.subscribe(topic, got[-1] if got else StartFrom.EARLIEST, limit=count - len(got))
            try:
                async for batch in stream:
                    assert batch is not None, "the source delivers no events although the topic has some"
                    got += batch.replay_ids
            except SessionExpiredError:
                source.renew_session()
            except ServiceUnavailableError:  # after a connection reset, the next call may fail too
                await asyncio.sleep(0.02)
    return got
