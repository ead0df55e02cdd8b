"""Common test interface of all event sources.

The contract tests are coroutines and run with each event source. Blocking sources run in threads.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator
from typing import Any, ClassVar

from airflow_provider_sfstream.salesforce.events import EventBatch, StartFrom
from airflow_provider_sfstream.salesforce.network.settings import NetworkSettings
from tests.support.clients import token_provider
from tests.support.event_source_faults import PUBSUB_BREAKS, Break
from tests.support.localorg import LocalOrg

SECONDS = 60.0
"""Default ``idle_timeout`` or ``silence_timeout`` of a test's subscription."""

Stream = AsyncGenerator[EventBatch | None, None]


class EventSourceAdapter(ABC):
    """An event source for one org.

    :param options: options of its client.
    """

    name: ClassVar[str]
    is_asyncio: ClassVar[bool] = False
    is_managed: ClassVar[bool] = False
    """True for managed subscriptions: Salesforce stores the position, allows one stream, and ignores replay IDs."""

    rpc: ClassVar[str | None] = "Subscribe"
    """Its gRPC call, which requests a number of events; ``None`` on the Streaming API."""

    breaks: ClassVar[tuple[Break, ...]] = PUBSUB_BREAKS
    idle_ends: ClassVar[tuple[str, ...]] = ("ok", "reset")
    """Ways in which the server may end a stream whose consumer is busy for too long."""

    low_prefetch_options: ClassVar[dict[str, Any]] = {}
    """Options of a client that prefetches few events."""

    prefetch_range: ClassVar[tuple[int, int]] = (100, 200)
    """Minimum and maximum number of events that such a client prefetches."""

    idle_end_error: ClassVar[str] = "resume"
    """Pattern of the error message after the server has ended a stream whose consumer is busy for too long."""

    missing_topic: ClassVar[str] = "/event/Nowhere__e"
    """A topic that is missing in the org."""

    lost_replay_id: ClassVar[bytes] = b"nonsense!!"
    invalid_replay_id: ClassVar[bytes] = bytes(65)
    unsupported_topics: ClassVar[tuple[str, ...]] = ("/topic/Push", "/u/Generic")
    invalid_options: ClassVar[tuple[tuple[dict[str, Any], str], ...]] = (
        ({"endpoint": "http://192.0.2.1:7443"}, "allow_insecure"),
        ({"endpoint": "nonsense:port"}, "must be host:port"),
    )
    """Client options that are refused before any request, and text of the error."""

    client: Any

    def __init__(self, org: LocalOrg, **options: Any) -> None:
        self.org = org
        self.tokens = options.get("provider") or token_provider(org)
        self.client = self._client(**{**options, "provider": self.tokens})

    @abstractmethod
    def _client(self, **options: Any) -> Any:
        """Create the client."""

    @abstractmethod
    def subscribe(
        self,
        topic: str,
        after: bytes | StartFrom = StartFrom.EARLIEST,
        *,
        limit: int | None = None,
        seconds: float = SECONDS,
    ) -> Stream:
        """Subscribe as the source does; ``seconds`` is its ``idle_timeout`` or ``silence_timeout``."""

    @abstractmethod
    async def schema(self, schema_id: str) -> str | None:
        """Return the JSON text of a schema."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the client."""

    def renew_session(self) -> None:
        """Discard the refused tokens."""
        self.client.renew_session()

    def source(self, topic: str, after: bytes | StartFrom) -> tuple[Any, bytes | StartFrom]:
        """Return the object whose ``subscribe`` is called, and the start of the subscription."""
        return self.client, after

    async def wait_until_free(self) -> None:  # noqa: B027 - most sources need not wait
        """Wait until another subscription can be opened."""

    async def close_streams(self) -> None:  # noqa: B027 - most sources close their stream with the subscription
        """Close the streams that the source keeps open after a subscription is closed."""

    def record(self, topic: str) -> list[dict[str, Any]]:
        """Return all events published to a topic in the format that this source has to return."""
        return self.org.record(topic)

    def replay_ids(self, topic: str) -> list[bytes]:
        return [event["replay_id"] for event in self.record(topic)]

    def open_streams(self, topic: str) -> int:
        """Return the number of open subscriptions to a topic in the org."""
        return len(self.delivered(topic))

    def delivered(self, topic: str) -> list[int]:
        """Return the number of events that the org has sent to each open subscription to a topic."""
        return [stream["events"] for stream in self.org.streams() if stream["topic"] == topic]

    def schema_requests(self, schema_id: str) -> int:
        return len(self.org.requests("grpc", "GetSchema"))

    def end_idle_streams(self, end: str) -> None:
        """Make the org end streams whose consumer is busy after 0.3 seconds. Salesforce waits 60 seconds."""
        self.org.knobs(client_idle_seconds=0.3, client_idle_end=end)

    def answer_in_parts(self, events: int) -> None:
        """Limit each response of the org to this number of events."""
        self.org.knobs(batch_events=events)

    def fail_subscribing(self, message: str) -> None:
        """Make the next subscription fail with this message and a retriable error."""
        assert self.rpc is not None
        self.org.fault("fail_calls", rpc=self.rpc, code="", status="INTERNAL", message=message)

    @classmethod
    def over_tls(cls, org: LocalOrg, tls_ca: str | None) -> dict[str, Any]:
        """Return the options of a client that uses TLS and trusts ``tls_ca``."""
        return {"endpoint": f"localhost:{org.grpc_tls_port}", "network": NetworkSettings(tls_ca)}


class BlockingAdapter(EventSourceAdapter):
    def subscribe(
        self,
        topic: str,
        after: bytes | StartFrom = StartFrom.EARLIEST,
        *,
        limit: int | None = None,
        seconds: float = SECONDS,
    ) -> Stream:
        source, after = self.source(topic, after)
        return _in_threads(source.subscribe(topic, after, limit=limit, idle_timeout=seconds))

    async def schema(self, schema_id: str) -> str | None:
        schema: str | None = await asyncio.to_thread(self.client.schema, schema_id)
        return schema

    async def aclose(self) -> None:
        await asyncio.to_thread(self.client.close)


class AsyncioAdapter(EventSourceAdapter):
    is_asyncio = True

    def subscribe(
        self,
        topic: str,
        after: bytes | StartFrom = StartFrom.EARLIEST,
        *,
        limit: int | None = None,
        seconds: float = SECONDS,
    ) -> Stream:
        source, after = self.source(topic, after)
        stream: Stream = source.subscribe(topic, after, limit=limit, silence_timeout=seconds)
        return stream

    async def schema(self, schema_id: str) -> str | None:
        schema: str | None = await self.client.schema(schema_id)
        return schema

    async def aclose(self) -> None:
        await self.client.aclose()


async def _in_threads(stream: Iterator[EventBatch | None]) -> Stream:
    end = object()
    try:
        while (batch := await asyncio.to_thread(next, stream, end)) is not end:
            assert batch is None or isinstance(batch, EventBatch)
            yield batch
    finally:
        await asyncio.to_thread(stream.close)  # type: ignore[attr-defined]
