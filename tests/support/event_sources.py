"""Adapters of all event sources, with the properties by which their contract tests differ."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_sfstream.salesforce.auth.credentials import credentials_from
from airflow_provider_sfstream.salesforce.auth.token_provider import OAuthTokenProvider
from airflow_provider_sfstream.salesforce.events import StartFrom
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription
from airflow_provider_sfstream.salesforce.network.settings import NetworkSettings
from airflow_provider_sfstream.salesforce.pubsub.async_client import AsyncPubSubClient
from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient
from airflow_provider_sfstream.salesforce.streaming.async_client import AsyncStreamingClient
from airflow_provider_sfstream.salesforce.streaming.client import StreamingClient
from airflow_provider_sfstream.streams.managed.source import AsyncManagedSource, ManagedSource
from tests.support.clients import app_fields
from tests.support.event_source_adapter import SECONDS, AsyncioAdapter, BlockingAdapter, EventSourceAdapter, Stream
from tests.support.event_source_faults import STREAMING_BREAKS
from tests.support.localorg import LocalOrg, wait_until

__all__ = ["EVENT_SOURCES", "SECONDS", "EventSourceAdapter", "Stream", "Streaming", "sources"]


class PubSub(BlockingAdapter):
    name = "pubsub"

    def _client(self, **options: Any) -> Any:
        return PubSubClient(options.pop("provider"), **{"endpoint": f"http://{self.org.grpc_target}", **options})


class AsyncPubSub(AsyncioAdapter):
    name = "async_pubsub"
    prefetch_range = (0, 0)

    def _client(self, **options: Any) -> Any:
        return AsyncPubSubClient(options.pop("provider"), **{"endpoint": f"http://{self.org.grpc_target}", **options})


class _StreamingApi(EventSourceAdapter):
    rpc = None
    breaks = STREAMING_BREAKS
    idle_ends = ("forgotten",)
    low_prefetch_options = {"max_pending_count": 50}
    prefetch_range = (0, 150)
    idle_end_error = r"discarded the session of this client.*resume"
    lost_replay_id = b"\x7f" + bytes(7)
    invalid_replay_id = bytes(10)
    unsupported_topics = ("/nowhere/x",)
    missing_topic = "/topic/Nowhere"
    invalid_options = (
        ({"api_version": "36.0"}, "37.0 or above"),
        ({"api_version": "x"}, "'x'"),
    )

    def record(self, topic: str) -> list[dict[str, Any]]:
        return self.org.record(topic, api="streaming")

    def delivered(self, topic: str) -> list[int]:
        sessions = self.org.admin("GET", "/org")["cometd_sessions"]
        return [session["events"] for session in sessions if topic in session["subscriptions"]]

    def schema_requests(self, schema_id: str) -> int:
        return len([request for request in self.org.requests("http") if schema_id in str(request)])

    def end_idle_streams(self, end: str) -> None:
        self.org.knobs(cometd_reconnect_seconds=0.3, cometd_batch_events=100)

    def answer_in_parts(self, events: int) -> None:
        self.org.knobs(cometd_batch_events=events)

    def fail_subscribing(self, message: str) -> None:
        self.org.fault("cometd_fail", channel="/meta/subscribe", error=f"503::{message}")

    @classmethod
    def over_tls(cls, org: LocalOrg, tls_ca: str | None) -> dict[str, Any]:
        fields = {**app_fields(org), "login_url": org.https_instance_url}
        provider = OAuthTokenProvider(credentials_from(fields), network=NetworkSettings(org.ca_file))
        return {"provider": provider, "network": NetworkSettings(tls_ca)}


class Streaming(_StreamingApi, BlockingAdapter):
    name = "streaming"

    def _client(self, **options: Any) -> Any:
        return StreamingClient(options.pop("provider"), **options)


class AsyncStreaming(_StreamingApi, AsyncioAdapter):
    name = "async_streaming"

    def _client(self, **options: Any) -> Any:
        return AsyncStreamingClient(options.pop("provider"), **options)


class _ManagedApi(EventSourceAdapter):
    """Adapter with one managed subscription for each topic and preset start.

    A subscription that starts at a replay ID uses the managed subscription of the last preset start.
    """

    is_managed = True
    rpc = "ManagedSubscribe"

    def __init__(self, org: LocalOrg, **options: Any) -> None:
        super().__init__(org, **options)
        self.sources: dict[tuple[str, StartFrom], Any] = {}
        self._last = StartFrom.EARLIEST

    def source(self, topic: str, after: bytes | StartFrom) -> tuple[Any, bytes | StartFrom]:
        if isinstance(after, StartFrom):
            self._last = after
        source = self.sources.get((topic, self._last))
        if source is None:
            source = self.sources[topic, self._last] = self._managed(self._created(topic, self._last))
        return source, StartFrom.COMMITTED if isinstance(after, StartFrom) else after

    def _created(self, topic: str, beginning: StartFrom) -> ManagedSubscription:
        name = f"{topic.rpartition('/')[2].removesuffix('__e') or 'Nothing'}_{beginning.value}"
        if topic in [one["name"] for one in self.org.admin("GET", "/topics")["topics"]]:
            self.org.managed_subscription(name, topic, default_replay=beginning.name)
        return ManagedSubscription(name)

    def _are_free(self) -> bool:
        names = {source.subscription.developer_name for source in self.sources.values()}
        return all(one["slot"] == "free" for name, one in self.org.managed_subscriptions().items() if name in names)

    @abstractmethod
    def _managed(self, subscription: ManagedSubscription) -> Any:
        """Create the source of a managed subscription."""


class Managed(_ManagedApi, PubSub):
    name = "managed"

    def _managed(self, subscription: ManagedSubscription) -> Any:
        return ManagedSource(self.client, subscription, sleep=self._sleep)

    def _sleep(self, _: float) -> None:
        """Wait until the org has noticed the end of the previous stream, in place of the source's fixed pause."""
        wait_until(self._are_free, what="the end of the previous stream")

    async def close_streams(self) -> None:
        for source in self.sources.values():
            await asyncio.to_thread(source.close)

    async def aclose(self) -> None:
        await self.close_streams()
        await super().aclose()


class AsyncManaged(_ManagedApi, AsyncPubSub):
    name = "async_managed"

    def _managed(self, subscription: ManagedSubscription) -> Any:
        return AsyncManagedSource(self.client, subscription)

    async def wait_until_free(self) -> None:
        await asyncio.to_thread(wait_until, self._are_free, what="the end of the previous stream")


EVENT_SOURCES: tuple[type[EventSourceAdapter], ...] = (
    PubSub,
    AsyncPubSub,
    Streaming,
    AsyncStreaming,
    Managed,
    AsyncManaged,
)


def sources(where: Callable[[type[EventSourceAdapter]], bool]) -> pytest.MarkDecorator:
    """Return the mark of a test that runs only with some kinds of event sources."""
    kinds = [kind for kind in EVENT_SOURCES if where(kind)]
    return pytest.mark.parametrize("source_kind", kinds, ids=[kind.name for kind in kinds])
