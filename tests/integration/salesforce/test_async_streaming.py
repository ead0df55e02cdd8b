"""Asyncio Streaming API client against a real server: events, empty responses, schemas and proxies."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from airflow_provider_sfstream.exceptions import ServiceUnavailableError
from airflow_provider_sfstream.salesforce.events import EventBatch, StartFrom
from airflow_provider_sfstream.salesforce.network.settings import NetworkSettings
from airflow_provider_sfstream.salesforce.streaming.async_client import AsyncStreamingClient
from tests.support.clients import async_pubsub_client, async_streaming_client
from tests.support.left_behind import leak_check
from tests.support.localorg import LocalOrg

SECONDS = 60.0


@pytest.fixture
async def client(org: LocalOrg) -> AsyncIterator[AsyncStreamingClient]:
    async with async_streaming_client(org) as client:
        yield client


@pytest.fixture(autouse=True)
async def nothing_left_behind(org: LocalOrg, caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    with leak_check(org, caplog) as left_behind:
        yield
        await left_behind.assert_no_leaks()


async def next_batch(client: AsyncStreamingClient, topic: str, after: bytes | StartFrom) -> EventBatch:
    """Return the next batch that is not empty."""
    async with aclosing(client.subscribe(topic, after, silence_timeout=SECONDS)) as stream:
        while not len(batch := await anext(stream)):
            pass
        return batch


class TestEvents:
    async def test_event_has_ids_schema_and_payload(
        self, org: LocalOrg, client: AsyncStreamingClient, topic: str
    ) -> None:
        org.publish(topic, [{"Amount__c": 1.5, "Note__c": "é\u2028\U0001f600"}])
        [event] = org.record(topic)
        batch = await next_batch(client, topic, StartFrom.EARLIEST)
        assert (batch.event_ids, batch.schema_ids) == ([event["event_id"]], [event["schema_id"]])
        data = json.loads(batch.payloads[0])
        assert data["payload"]["Note__c"] == "é\u2028\U0001f600"
        assert data["event"]["replayId"] == int.from_bytes(batch.latest_replay_id, "big")
        assert batch.pending == 0


class TestSilence:
    async def test_empty_response_resets_the_silence_timeout(
        self, org: LocalOrg, client: AsyncStreamingClient, topic: str
    ) -> None:
        org.knobs(cometd_connect_seconds=0.1)
        async with aclosing(client.subscribe(topic, StartFrom.LATEST, silence_timeout=SECONDS)) as stream:
            for _ in range(4):  # each batch proves contact, and none confirms the end of the stream
                batch = await anext(stream)
                assert (len(batch), batch.latest_replay_id, batch.pending) == (0, b"", 0)


class TestSchemas:
    @pytest.fixture
    def schema_id(self, org: LocalOrg, topic: str) -> str:
        return str(next(t["schema_id"] for t in org.admin("GET", "/topics")["topics"] if t["name"] == topic))

    async def test_schema_equals_that_of_the_pubsub_api(
        self, org: LocalOrg, client: AsyncStreamingClient, schema_id: str
    ) -> None:
        async with async_pubsub_client(org) as pubsub:
            expected = await pubsub.schema(schema_id)
        assert json.loads(await client.schema(schema_id) or "") == json.loads(expected)

    async def test_push_topic_and_generic_channel_have_no_schema(
        self, org: LocalOrg, client: AsyncStreamingClient
    ) -> None:
        before = len(org.requests())
        assert await client.schema("/topic/InvoiceUpdates") is None
        assert await client.schema("/u/notifications/Orders") is None
        assert len(org.requests()) == before


async def test_unknown_schema_is_none_and_logs_one_warning(org: LocalOrg, caplog: pytest.LogCaptureFixture) -> None:
    async with async_streaming_client(org) as client:
        for _ in range(2):
            assert await client.schema("no-such-schema-id") is None
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    caplog.clear()
    assert len(warned) == 1
    assert "no-such-schema-id" in warned[0]
    assert "read without it" in warned[0]


class TestProxies:
    async def test_proxy_password_is_not_in_the_error(self, org: LocalOrg, topic: str) -> None:
        network = NetworkSettings(proxies={"http": "http://user:s3cret@127.0.0.1:1"})
        async with async_streaming_client(org, network=network) as client:
            with pytest.raises(ServiceUnavailableError) as caught:
                await next_batch(client, topic, StartFrom.EARLIEST)
        assert "s3cret" not in str(caught.value)
        assert "127.0.0.1" in str(caught.value)
