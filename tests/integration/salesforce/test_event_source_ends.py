"""Ends of event sources, against a real server: a closed, cancelled or garbage-collected source releases everything."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from contextlib import aclosing

import pytest

from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.salesforce.events import EventBatch, StartFrom
from tests.support.event_sources import EventSourceAdapter, Streaming, sources
from tests.support.left_behind import connections
from tests.support.localorg import LocalOrg
from tests.support.readers import first_events, next_events, wait_for, wait_until_unsubscribed

Opened = Callable[..., EventSourceAdapter]

asyncio_only = sources(lambda kind: kind.is_asyncio)


def logins(org: LocalOrg) -> int:
    return int(org.admin("GET", "/oauth")["requests"])


async def waiting(source: EventSourceAdapter, topic: str) -> asyncio.Task[EventBatch]:
    """Start a task that waits for an event, and return it when the org has its subscription."""
    task = asyncio.create_task(first_events(source, topic, StartFrom.LATEST))
    await wait_for(lambda: source.open_streams(topic) == 1, "the subscription")
    return task


class TestClosing:
    async def test_closed_subscription_ends_at_the_server(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        async with aclosing(source.subscribe(topic)) as stream:
            await next_events(stream)
            assert source.open_streams(topic) == 1
        if source.rpc is None:
            assert source.open_streams(topic) == 0, "the client disconnects"
        await wait_until_unsubscribed(source, topic)
        stem = topic.removeprefix("/event/").removesuffix("__e")
        assert [thread for thread in threading.enumerate() if stem in thread.name] == []

    @asyncio_only
    async def test_garbage_collected_subscription_ends_at_the_server(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        async for _ in source.subscribe(topic):
            break
        gc.collect()
        await wait_until_unsubscribed(source, topic)

    @sources(lambda kind: kind.is_asyncio or kind is Streaming)
    async def test_closed_client_ends_subscriptions_with_a_runtime_error(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        task = await waiting(source, topic)
        await source.aclose()
        with pytest.raises(RuntimeError, match="closed"):
            await task
        with pytest.raises(RuntimeError, match="closed"):
            await first_events(source, topic, StartFrom.LATEST)
        with pytest.raises(RuntimeError, match="closed"):
            await source.schema("K98aAtiNFBjA-PJlcvaQ2g")
        await source.aclose()
        await wait_until_unsubscribed(source, topic)

    @sources(lambda kind: not kind.is_asyncio)
    async def test_closed_blocking_client_ends_open_subscriptions(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        stream = source.subscribe(topic)
        await next_events(stream)
        await source.aclose()
        await wait_until_unsubscribed(source, topic)
        with pytest.raises((RuntimeError, SalesforceStreamError)):
            await next_events(stream)

    async def test_unused_client_sends_no_request(self, org: LocalOrg, open_source: Opened) -> None:
        before = len(org.requests())
        await open_source().aclose()
        assert len(org.requests()) == before


@asyncio_only
class TestCancelling:
    async def test_cancelled_consumer_ends_the_subscription(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        task = await waiting(source, topic)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if source.rpc is None:
            assert source.open_streams(topic) == 0, "the client disconnects"
        await wait_until_unsubscribed(source, topic)
        await source.wait_until_free()
        if (
            source.rpc == "Subscribe"
        ):  # for a managed stream, the org may receive the half-close before the cancellation
            await wait_for(
                lambda: [c["outcome"] for c in org.requests("grpc", "Subscribe")] == ["CANCELLED"], "its end"
            )

    @pytest.mark.parametrize(("seconds", "moments"), [(0, range(0, 40, 3)), (0.0005, range(0, 60, 4))])
    async def test_cancellation_at_any_step_leaves_no_subscription(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str, seconds: float, moments: range
    ) -> None:
        async def read_on() -> None:
            async with aclosing(source.subscribe(topic, StartFrom.LATEST)) as stream:
                await next_events(stream)

        for steps in moments:
            await source.wait_until_free()
            task = asyncio.create_task(read_on())
            for _ in range(steps):
                await asyncio.sleep(seconds)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await wait_until_unsubscribed(source, topic)
        org.publish(topic, [{"Amount__c": 1.0}])
        assert (await first_events(source, topic)).replay_ids == source.replay_ids(topic)


@sources(lambda kind: kind.is_asyncio and not kind.is_managed)
async def test_many_subscriptions_share_one_login(
    org: LocalOrg, source_kind: type[EventSourceAdapter], open_source: Opened, topic: str
) -> None:
    before, connected = logins(org), connections(org.grpc_port)
    source = open_source(**({"connection_timeout": 60.0} if source_kind.rpc is None else {}))
    many = 50 if source.rpc is None else 200  # on the Streaming API, each subscription has its own connections
    tasks = [asyncio.create_task(first_events(source, topic, StartFrom.LATEST)) for _ in range(many)]
    await wait_for(lambda: source.open_streams(topic) == many, f"{many} subscriptions")
    if source.rpc is not None:
        assert connections(org.grpc_port) == connected + 1
    org.publish(topic, [{"Amount__c": 1.0}])
    async with asyncio.timeout(60):
        batches = await asyncio.gather(*tasks)
    assert [batch.replay_ids for batch in batches] == [source.replay_ids(topic)] * many
    assert logins(org) == before + 1
    await wait_until_unsubscribed(source, topic)
