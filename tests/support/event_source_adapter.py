"""An event source as the contract sees it: what is asked of one is asked of all, in the same way.

The tests of the contract are coroutines. A blocking source runs in threads beside them.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator
from typing import Any, ClassVar

from airflow_provider_sfstream.salesforce.events import EventBatch, StartFrom
from tests.support.clients import token_provider
from tests.support.event_source_faults import PUBSUB_BREAKS, Break
from tests.support.localorg import LocalOrg

SECONDS = 60.0
"""After which a test's subscription has waited in vain."""

Stream = AsyncGenerator[EventBatch | None, None]


class EventSourceAdapter(ABC):
    """An event source of one org.

    :param options: of its client.
    """

    name: ClassVar[str]
    is_asyncio: ClassVar[bool] = False
    is_managed: ClassVar[bool] = False
    """Whether Salesforce keeps its place. Then there is room for one stream, and the client chooses no replay ID."""

    rpc: ClassVar[str | None] = "Subscribe"
    """Its gRPC call, ``None`` on the Streaming API. Where there is one, a number of events is asked for."""

    breaks: ClassVar[tuple[Break, ...]] = PUBSUB_BREAKS
    idle_ends: ClassVar[tuple[str, ...]] = ("ok", "reset")
    """How the server may end a stream whose consumer is busy for too long."""

    reading_little: ClassVar[dict[str, Any]] = {}
    """The options of a client that reads hardly ahead of its consumer."""

    read_ahead: ClassVar[tuple[int, int]] = (100, 200)
    """The least and the most events that such a client has read, beside those that its consumer has."""

    forgotten: ClassVar[str] = "resume"
    """What the error says then."""

    nowhere: ClassVar[str] = "/event/Nowhere__e"
    """A topic that the org does not have."""

    lost_replay_id: ClassVar[bytes] = b"nonsense!!"
    no_replay_id: ClassVar[bytes] = bytes(65)
    topics_of_others: ClassVar[tuple[str, ...]] = ("/topic/Push", "/u/Generic")
    unusable_options: ClassVar[tuple[tuple[dict[str, Any], str], ...]] = (
        ({"endpoint": "http://192.0.2.1:7443"}, "allow_insecure"),
        ({"endpoint": "nonsense:port"}, "must be host:port"),
        ({"tls_ca": "/no/file"}, "tls_ca"),
    )
    """Options that are refused before anything is contacted, and what the error names."""

    client: Any

    def __init__(self, org: LocalOrg, **options: Any) -> None:
        self.org = org
        self.tokens = options.get("provider") or token_provider(org)
        self.client = self._client(**{**options, "provider": self.tokens})

    @abstractmethod
    def _client(self, **options: Any) -> Any:
        """Return the client."""

    @abstractmethod
    def subscribe(
        self,
        topic: str,
        start: bytes | StartFrom = StartFrom.EARLIEST,
        *,
        limit: int | None = None,
        seconds: float = SECONDS,
    ) -> Stream:
        """Subscribe as the source does; ``seconds`` is its ``idle_timeout`` or ``silence_timeout``."""

    @abstractmethod
    async def schema(self, schema_id: str) -> str | None:
        """Return a schema."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the client."""

    def renew_session(self) -> None:
        """Forget the tokens that were refused."""
        self.client.renew_session()

    def source(self, topic: str, start: bytes | StartFrom) -> tuple[Any, bytes | StartFrom]:
        """Return what is subscribed to, and from where."""
        return self.client, start

    async def ready(self) -> None:  # noqa: B027 - most need not wait
        """Wait until the source can be subscribed to once more."""

    async def let_go(self) -> None:  # noqa: B027 - most hold nothing
        """End what the source keeps open when a subscription is closed."""

    def record(self, topic: str) -> list[dict[str, Any]]:
        """Return everything published to a topic, as this source has to give it."""
        return self.org.record(topic)

    def replay_ids(self, topic: str) -> list[bytes]:
        return [event["replay_id"] for event in self.record(topic)]

    def open_streams(self, topic: str) -> int:
        """Return how many subscriptions to a topic the org serves."""
        return len(self.delivered(topic))

    def delivered(self, topic: str) -> list[int]:
        """Return how many events each of them was sent."""
        return [stream["events"] for stream in self.org.streams() if stream["topic"] == topic]

    def schema_requests(self, schema_id: str) -> int:
        return len(self.org.requests("grpc", "GetSchema"))

    def end_idle_streams(self, end: str) -> None:
        """Have the org end streams whose consumer is busy after 0.3 seconds, 60 at Salesforce."""
        self.org.knobs(client_idle_seconds=0.3, client_idle_end=end)

    def answer_in_parts(self, events: int) -> None:
        """Let no answer of the org have more events."""
        self.org.knobs(batch_events=events)

    def fail_subscribing(self, message: str) -> None:
        """Let the next subscription fail with this message, in a way that may pass."""
        assert self.rpc is not None
        self.org.fault("fail_calls", rpc=self.rpc, code="", status="INTERNAL", message=message)

    @classmethod
    def over_tls(cls, org: LocalOrg, tls_ca: str | None) -> dict[str, Any]:
        """Return the options of a client that uses TLS and trusts ``tls_ca``."""
        return {"endpoint": f"localhost:{org.grpc_tls_port}", "tls_ca": tls_ca}


class BlockingAdapter(EventSourceAdapter):
    def subscribe(
        self,
        topic: str,
        start: bytes | StartFrom = StartFrom.EARLIEST,
        *,
        limit: int | None = None,
        seconds: float = SECONDS,
    ) -> Stream:
        source, start = self.source(topic, start)
        return _in_threads(source.subscribe(topic, start, limit=limit, idle_timeout=seconds))

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
        start: bytes | StartFrom = StartFrom.EARLIEST,
        *,
        limit: int | None = None,
        seconds: float = SECONDS,
    ) -> Stream:
        source, start = self.source(topic, start)
        stream: Stream = source.subscribe(topic, start, limit=limit, silence_timeout=seconds)
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
