"""The asyncio client against a real server: silence, cancellation, sharing, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import psutil
import pytest

from airflow_provider_sfstream.clients.async_pubsub import AsyncPubSubClient
from airflow_provider_sfstream.exceptions import (
    ConfigurationError,
    SalesforceStreamError,
    ServiceUnavailableError,
    SessionExpiredError,
)
from airflow_provider_sfstream.protocol.events import EventBatch, StartFrom
from tests.support.clients import async_pubsub_client, token_provider
from tests.support.localorg import LocalOrg, wait_until

SECONDS = 20.0


@pytest.fixture
async def client(org: LocalOrg) -> AsyncIterator[AsyncPubSubClient]:
    async with async_pubsub_client(org) as client:
        yield client


@pytest.fixture(autouse=True)
async def nothing_left_behind(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """No task is left when a test is over, and nobody has complained on the way."""
    yield
    async with asyncio.timeout(SECONDS):
        while len(asyncio.all_tasks()) > 1:  # the one that waits here
            await asyncio.sleep(0.01)
    gc.collect()
    await asyncio.sleep(0)
    records = caplog.get_records("call") + caplog.get_records("teardown")
    assert [record for record in records if record.levelno >= logging.WARNING] == []


def open_streams(org: LocalOrg, topic: str) -> int:
    return sum(stream["topic"] == topic for stream in org.streams())


async def until(condition: Callable[[], Any], what: str) -> None:
    """Wait for what the org shows, while the event loop runs."""
    await asyncio.to_thread(wait_until, condition, what=what)


async def next_batch(client: AsyncPubSubClient, topic: str, start: bytes | StartFrom) -> EventBatch:
    async with aclosing(client.subscribe(topic, start, silence_timeout=SECONDS)) as stream:
        return await anext(stream)


def connections(org: LocalOrg) -> int:
    """Return how many TCP connections this process has to the org's gRPC port."""
    established = [c for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_ESTABLISHED]
    return sum(bool(c.raddr) and c.raddr.port == org.grpc_port for c in established)


def logins(org: LocalOrg) -> int:
    return int(org.admin("GET", "/oauth")["requests"])


class TestSilence:
    async def test_a_silent_stream_counts_as_lost(self, org: LocalOrg, client: AsyncPubSubClient, topic: str) -> None:
        org.fault("silence", topic=topic)
        org.publish(topic, [{"Amount__c": 1.0}])
        with pytest.raises(ServiceUnavailableError, match=rf"{topic}: nothing came for 0.2 seconds.*resume"):
            await anext(client.subscribe(topic, StartFrom.EARLIEST, silence_timeout=0.2))
        await until(lambda: not open_streams(org, topic), "the end of the call")

    async def test_a_keepalive_breaks_the_silence(self, org: LocalOrg, client: AsyncPubSubClient, topic: str) -> None:
        org.knobs(keepalive_seconds=0.1)
        async with aclosing(client.subscribe(topic, StartFrom.LATEST, silence_timeout=5)) as stream:
            for _ in range(3):
                assert len(await anext(stream)) == 0

    async def test_silence_after_events_too(self, org: LocalOrg, client: AsyncPubSubClient, topic: str) -> None:
        published = org.publish(topic, [{"Amount__c": 1.0}])
        stream = client.subscribe(topic, StartFrom.EARLIEST, silence_timeout=0.5)
        assert (await anext(stream)).replay_ids == published
        org.fault("silence", topic=topic)
        with pytest.raises(ServiceUnavailableError, match="nothing came"):
            await anext(stream)

    @pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
    async def test_a_silence_timeout_of_nothing_is_refused_at_once(
        self, org: LocalOrg, client: AsyncPubSubClient, topic: str, seconds: float
    ) -> None:
        before = len(org.requests())
        with pytest.raises(ConfigurationError, match=r"silence_timeout=.*Nothing was read"):
            client.subscribe(topic, StartFrom.EARLIEST, silence_timeout=seconds)
        assert len(org.requests()) == before


class TestConsumer:
    async def test_no_more_is_asked_for_while_the_consumer_is_busy(
        self, org: LocalOrg, client: AsyncPubSubClient, topic: str
    ) -> None:
        org.publish_many(topic, 1_000, {"Amount__c": "{n}"})
        async with aclosing(client.subscribe(topic, StartFrom.EARLIEST, silence_timeout=SECONDS)) as stream:
            got = (await anext(stream)).replay_ids
            # Meanwhile another reads everything: there was time to ask for more.
            async for _ in client.subscribe(topic, StartFrom.EARLIEST, limit=1_000, silence_timeout=SECONDS):
                pass
            assert [s["events"] for s in org.streams() if s["topic"] == topic] == [100]
            while len(got) < 1_000:
                got += (await anext(stream)).replay_ids
        assert got == [event["replay_id"] for event in org.record(topic)]

    @pytest.mark.parametrize("end", ["ok", "reset"])
    async def test_a_consumer_busy_for_too_long_can_resume(
        self, org: LocalOrg, client: AsyncPubSubClient, topic: str, end: str
    ) -> None:
        """Salesforce ends a stream that owes nothing and is asked nothing for 60 seconds, here 0.3."""
        org.knobs(client_idle_seconds=0.3, client_idle_end=end)
        org.publish_many(topic, 200, {"Amount__c": "{n}"})
        stream = client.subscribe(topic, StartFrom.EARLIEST, silence_timeout=SECONDS)
        got = (await anext(stream)).replay_ids
        await until(lambda: not open_streams(org, topic), "the server's closing")
        with pytest.raises(ServiceUnavailableError, match="resume"):
            await anext(stream)
        async for batch in client.subscribe(topic, got[-1], limit=100, silence_timeout=SECONDS):
            got += batch.replay_ids
        assert got == [event["replay_id"] for event in org.record(topic)]


class TestEnd:
    @pytest.fixture
    async def waiting(self, org: LocalOrg, client: AsyncPubSubClient, topic: str) -> asyncio.Task[EventBatch]:
        """A task that waits for an event."""
        task = asyncio.create_task(next_batch(client, topic, StartFrom.LATEST))
        await until(lambda: open_streams(org, topic) == 1, "the subscription")
        return task

    async def test_cancelling_the_consumer_ends_the_call(
        self, org: LocalOrg, topic: str, waiting: asyncio.Task[EventBatch]
    ) -> None:
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: not open_streams(org, topic), "the end of the call")
        [call] = [c for c in org.requests("grpc", "Subscribe") if c["detail"].get("topic") == topic]
        assert call["outcome"] == "CANCELLED"

    async def test_closing_the_generator_ends_the_call(
        self, org: LocalOrg, client: AsyncPubSubClient, topic: str
    ) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        await next_batch(client, topic, StartFrom.EARLIEST)
        await until(lambda: not open_streams(org, topic), "the end of the call")

    async def test_a_forgotten_generator_ends_the_call_too(
        self, org: LocalOrg, client: AsyncPubSubClient, topic: str
    ) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        async for _ in client.subscribe(topic, StartFrom.EARLIEST, silence_timeout=SECONDS):
            break
        gc.collect()
        await until(lambda: not open_streams(org, topic), "the end of the call")

    async def test_closing_the_client_ends_everything_and_is_no_cancellation(
        self, org: LocalOrg, client: AsyncPubSubClient, topic: str, waiting: asyncio.Task[EventBatch]
    ) -> None:
        await client.aclose()
        with pytest.raises(RuntimeError, match="closed"):
            await waiting
        with pytest.raises(RuntimeError, match="closed"):
            await next_batch(client, topic, StartFrom.LATEST)
        with pytest.raises(RuntimeError, match="closed"):
            await client.schema("K98aAtiNFBjA-PJlcvaQ2g")
        await client.aclose()
        await until(lambda: not open_streams(org, topic), "the end of the call")

    async def test_a_client_that_nobody_used_closes(self, org: LocalOrg) -> None:
        before = len(org.requests())
        async with async_pubsub_client(org):
            pass
        assert len(org.requests()) == before

    @pytest.mark.parametrize("steps", range(0, 40, 3))
    async def test_cancelled_at_any_step_nothing_is_left(
        self, org: LocalOrg, client: AsyncPubSubClient, topic: str, steps: int
    ) -> None:
        task = asyncio.create_task(next_batch(client, topic, StartFrom.LATEST))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not open_streams(org, topic), "the end of the call")
        published = org.publish(topic, [{"Amount__c": 1.0}])
        assert (await next_batch(client, topic, StartFrom.EARLIEST)).replay_ids == published


class TestManySubscriptions:
    async def test_over_one_connection_and_one_login(self, org: LocalOrg, topic: str) -> None:
        before = logins(org)
        async with async_pubsub_client(org) as client:
            tasks = [asyncio.create_task(next_batch(client, topic, StartFrom.LATEST)) for _ in range(200)]
            await until(lambda: open_streams(org, topic) == 200, "200 subscriptions")
            assert connections(org) == 1
            published = org.publish(topic, [{"Amount__c": 1.0}])
            batches = await asyncio.wait_for(asyncio.gather(*tasks), SECONDS)
            assert [batch.replay_ids for batch in batches] == [published] * 200
            assert logins(org) == before + 1
            await until(lambda: not open_streams(org, topic), "the end of the calls")
        gc.collect()  # Older gRPC (1.75.1) disconnects a closed channel when the last of its calls is collected
        await until(lambda: connections(org) == 0, "the end of the connection")

    async def test_a_revoked_token_is_renewed_once_for_all(
        self, org: LocalOrg, client: AsyncPubSubClient, topic: str
    ) -> None:
        renewed: list[str] = []

        async def watch() -> EventBatch:
            while True:
                try:
                    return await next_batch(client, topic, StartFrom.LATEST)
                except SessionExpiredError:
                    client.renew_session()
                    renewed.append(topic)

        tasks = [asyncio.create_task(watch()) for _ in range(50)]
        await until(lambda: open_streams(org, topic) == 50, "50 subscriptions")
        before = logins(org)
        org.revoke()
        await until(lambda: len(renewed) >= 50 and open_streams(org, topic) == 50, "50 subscriptions again")
        published = org.publish(topic, [{"Amount__c": 1.0}])
        batches = await asyncio.wait_for(asyncio.gather(*tasks), SECONDS)
        assert [batch.replay_ids for batch in batches] == [published] * 50
        assert logins(org) == before + 1

    async def test_a_refused_login_is_one_attempt_for_all_who_wait(
        self, org: LocalOrg, client: AsyncPubSubClient, topic: str
    ) -> None:
        org.admin("POST", "/oauth", {"fail_next": 1, "fail_error": "invalid_client"})
        before = logins(org)
        calls = (next_batch(client, topic, StartFrom.LATEST) for _ in range(50))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(outcome).__name__ for outcome in outcomes} == {"AuthenticationError"}
        assert logins(org) == before + 1
        assert await client.org_id() == org.org_id, "the next one tries anew"


class TestSchemas:
    @pytest.fixture
    def schema_id(self, org: LocalOrg, topic: str) -> str:
        return str(next(t["schema_id"] for t in org.admin("GET", "/topics")["topics"] if t["name"] == topic))

    async def test_a_failure_reaches_everybody_who_waits(
        self, org: LocalOrg, client: AsyncPubSubClient, schema_id: str
    ) -> None:
        org.fault("fail_calls", rpc="GetSchema", code="service.unavailable", status="INTERNAL")
        outcomes = await asyncio.gather(*(client.schema(schema_id) for _ in range(10)), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {ServiceUnavailableError}
        assert await client.schema(schema_id)

    async def test_one_who_is_cancelled_harms_no_other(
        self, org: LocalOrg, client: AsyncPubSubClient, schema_id: str
    ) -> None:
        first, second = (asyncio.create_task(client.schema(schema_id)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert schema_id in await second
        assert first.cancelled()

    async def test_closing_ends_the_asking(self, org: LocalOrg, client: AsyncPubSubClient, schema_id: str) -> None:
        asking = asyncio.create_task(client.schema(schema_id))
        await asyncio.sleep(0)
        await client.aclose()
        with pytest.raises(RuntimeError, match="closed"):
            await asking


class TestWayThere:
    async def test_tls_with_the_orgs_authority(self, org: LocalOrg, topic: str) -> None:
        published = org.publish(topic, [{"Amount__c": 1.0}])
        endpoint = f"localhost:{org.grpc_tls_port}"
        async with AsyncPubSubClient(token_provider(org), endpoint=endpoint, tls_ca=org.ca_file) as client:
            assert (await next_batch(client, topic, StartFrom.EARLIEST)).replay_ids == published

    async def test_a_way_that_cannot_work_is_not_retried(self, org: LocalOrg, topic: str, other_authority: str) -> None:
        for endpoint, options, part in [
            (f"localhost:{org.grpc_tls_port}", {"tls_ca": other_authority}, "tls_ca"),
            (f"localhost:{org.grpc_port}", {"tls_ca": org.ca_file}, "speaks TLS"),
            (f"http://localhost:{org.http_port}", {}, "does not speak the Pub/Sub API"),
        ]:
            async with AsyncPubSubClient(token_provider(org), endpoint=endpoint, **options) as client:
                with pytest.raises(ConfigurationError, match=part):
                    await next_batch(client, topic, StartFrom.EARLIEST)

    async def test_unusable_arguments_are_refused_before_anything_is_contacted(self, org: LocalOrg) -> None:
        before = len(org.requests())
        for options in ({"endpoint": "http://192.0.2.1:7443"}, {"endpoint": "nonsense:port"}, {"tls_ca": "/no/file"}):
            with pytest.raises(SalesforceStreamError) as caught:
                AsyncPubSubClient(token_provider(org), **options)
            assert isinstance(caught.value, ConfigurationError)
        assert len(org.requests()) == before
