"""The blocking and the asyncio client, seen the same way: what holds for one must hold for the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Protocol

from airflow_provider_sfstream.clients.async_pubsub import AsyncPubSubClient
from airflow_provider_sfstream.clients.pubsub import PubSubClient
from airflow_provider_sfstream.exceptions import ServiceUnavailableError
from airflow_provider_sfstream.protocol.events import EventBatch, StartFrom
from tests.support.clients import async_pubsub_client, pubsub_client
from tests.support.localorg import LocalOrg

SECONDS = 20.0
"""After which a test's subscription has waited in vain."""


class Reader(Protocol):
    """What both clients do."""

    def subscribe(
        self, topic: str, start: bytes | StartFrom, *, limit: int | None = None
    ) -> AsyncGenerator[EventBatch, None]: ...

    async def schema(self, schema_id: str) -> str: ...

    def renew_session(self) -> None: ...


class AsyncReader:
    def __init__(self, client: AsyncPubSubClient) -> None:
        self.client = client
        self.schema = client.schema
        self.renew_session = client.renew_session

    def subscribe(
        self, topic: str, start: bytes | StartFrom, *, limit: int | None = None
    ) -> AsyncGenerator[EventBatch, None]:
        return self.client.subscribe(topic, start, limit=limit, silence_timeout=SECONDS)


class BlockingReader:
    def __init__(self, client: PubSubClient) -> None:
        self.client = client
        self.renew_session = client.renew_session

    async def schema(self, schema_id: str) -> str:
        return await asyncio.to_thread(self.client.schema, schema_id)

    def subscribe(
        self, topic: str, start: bytes | StartFrom, *, limit: int | None = None
    ) -> AsyncGenerator[EventBatch, None]:
        return _in_threads(self.client.subscribe(topic, start, limit=limit, idle_timeout=SECONDS))


async def _in_threads(stream: Iterator[EventBatch | None]) -> AsyncGenerator[EventBatch, None]:
    end = object()
    try:
        while (batch := await asyncio.to_thread(next, stream, end)) is not end:
            assert isinstance(batch, EventBatch), "events are there, but do not come"
            yield batch
    finally:
        await asyncio.to_thread(stream.close)  # type: ignore[attr-defined]


@asynccontextmanager
async def open_reader(kind: str, org: LocalOrg, **options: Any) -> AsyncIterator[Reader]:
    """Open the client of that kind (``blocking`` or ``asyncio``) on the org's plaintext port."""
    if kind == "asyncio":
        async with async_pubsub_client(org, **options) as async_client:
            yield AsyncReader(async_client)
    else:
        with pubsub_client(org, **options) as client:
            yield BlockingReader(client)


async def read(
    reader: Reader, topic: str, start: bytes | StartFrom = StartFrom.EARLIEST, *, count: int
) -> list[EventBatch]:
    """Return the batches that hold the first ``count`` events after ``start``."""
    async with aclosing(reader.subscribe(topic, start, limit=count)) as stream:
        return [batch async for batch in stream]


async def first(reader: Reader, topic: str, start: bytes | StartFrom = StartFrom.EARLIEST) -> EventBatch:
    """Return the first batch of a subscription without a limit."""
    async with aclosing(reader.subscribe(topic, start)) as stream:
        return await anext(stream)


def replay_ids(batches: list[EventBatch]) -> list[bytes]:
    return [replay_id for batch in batches for replay_id in batch.replay_ids]


async def resumed(reader: Reader, topic: str, got: list[bytes], *, count: int) -> list[bytes]:
    """Return the replay IDs of ``count`` events, those not in ``got`` read as a drain does: through passing faults."""
    got = list(got)
    async with asyncio.timeout(SECONDS):
        while len(got) < count:
            try:
                start = got[-1] if got else StartFrom.EARLIEST
                async for batch in reader.subscribe(topic, start, limit=count - len(got)):
                    got += batch.replay_ids
            except ServiceUnavailableError:  # a connection that was reset may take the next call with it
                await asyncio.sleep(0.02)
    return got
