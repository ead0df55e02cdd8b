"""The asyncio Streaming API client against a real server: silence, cancellation, sharing, and nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import psutil
import pytest

from airflow_provider_sfstream.clients.async_streaming import AsyncStreamingClient
from airflow_provider_sfstream.clients.auth import OAuthTokenProvider
from airflow_provider_sfstream.clients.credentials import credentials_from
from airflow_provider_sfstream.exceptions import (
    AuthenticationError,
    ConfigurationError,
    ReplayIdLostError,
    SalesforceStreamError,
    ServiceUnavailableError,
    SessionExpiredError,
)
from airflow_provider_sfstream.protocol.events import EventBatch, StartFrom
from airflow_provider_sfstream.protocol.schemas import canonical
from tests.support.clients import app_fields, async_pubsub_client, async_streaming_client
from tests.support.cometd_log import count, sessions
from tests.support.localorg import LocalOrg, wait_until

SECONDS = 20.0


@pytest.fixture
async def client(org: LocalOrg) -> AsyncIterator[AsyncStreamingClient]:
    async with async_streaming_client(org) as client:
        yield client


@pytest.fixture(autouse=True)
async def nothing_left_behind(org: LocalOrg, caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """No task and no socket is left when a test is over, and nobody has complained on the way."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield
        async with asyncio.timeout(SECONDS):
            while len(asyncio.all_tasks()) > 1 or connections(org):  # the one that waits here
                await asyncio.sleep(0.01)
        gc.collect()
        await asyncio.sleep(0)
    assert [str(warning.message) for warning in warned if "nclosed" in str(warning.message)] == []
    records = caplog.get_records("call") + caplog.get_records("teardown")
    assert [record for record in records if record.levelno >= logging.WARNING] == []


async def until(condition: Callable[[], Any], what: str) -> None:
    """Wait for what the org shows, while the event loop runs."""
    await asyncio.to_thread(wait_until, condition, what=what)


async def next_batch(client: AsyncStreamingClient, topic: str, start: bytes | StartFrom) -> EventBatch:
    async with aclosing(client.subscribe(topic, start, silence_timeout=SECONDS)) as stream:
        return await next_events(stream)


async def next_events(stream: AsyncGenerator[EventBatch, None]) -> EventBatch:
    """Return the next batch that is not empty."""
    while not len(batch := await anext(stream)):
        pass
    return batch


def connections(org: LocalOrg) -> int:
    """Return how many TCP connections this process has to the org's HTTP ports."""
    established = [c for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_ESTABLISHED]
    return sum(bool(c.raddr) and c.raddr.port in (org.http_port, org.https_port) for c in established)


def https_login(org: LocalOrg) -> OAuthTokenProvider:
    """Return a login that leads to the org's HTTPS port."""
    fields = {**app_fields(org), "login_url": org.https_instance_url}
    return OAuthTokenProvider(credentials_from(fields), tls_ca=org.ca_file)


def logins(org: LocalOrg) -> int:
    return int(org.admin("GET", "/oauth")["requests"])


class TestEvents:
    async def test_from_every_start(self, org: LocalOrg, client: AsyncStreamingClient, topic: str) -> None:
        org.publish(topic, [{"Amount__c": float(number)} for number in range(5)])
        record = [event["replay_id"][:8] for event in org.record(topic)]
        assert (await next_batch(client, topic, StartFrom.EARLIEST)).replay_ids == record
        assert (await next_batch(client, topic, record[1])).replay_ids == record[2:]
        async with aclosing(client.subscribe(topic, StartFrom.LATEST, silence_timeout=SECONDS)) as stream:
            assert len(await anext(stream)) == 0, "the subscription stands"
            org.publish(topic, [{"Amount__c": 9.0}])
            batch = await next_events(stream)
        assert batch.replay_ids == [org.record(topic)[-1]["replay_id"][:8]]

    async def test_a_row_of_an_event(self, org: LocalOrg, client: AsyncStreamingClient, topic: str) -> None:
        org.publish(topic, [{"Amount__c": 1.5, "Note__c": "é\u2028\U0001f600"}])
        [event] = org.record(topic)
        batch = await next_batch(client, topic, StartFrom.EARLIEST)
        assert (batch.event_ids, batch.schema_ids) == ([event["event_id"]], [event["schema_id"]])
        data = json.loads(batch.payloads[0])
        assert data["payload"]["Note__c"] == "é\u2028\U0001f600"
        assert data["event"]["replayId"] == int.from_bytes(batch.latest_replay_id, "big")
        assert batch.pending == 0

    async def test_in_batches_of_a_thousand_at_most_and_in_order(
        self, org: LocalOrg, client: AsyncStreamingClient, topic: str
    ) -> None:
        org.publish_many(topic, 5_000, {"Amount__c": "{n}"})
        got: list[bytes] = []
        async for batch in client.subscribe(topic, StartFrom.EARLIEST, limit=4_321, silence_timeout=SECONDS):
            assert len(batch) <= 1_000
            got += batch.replay_ids
        assert got == [event["replay_id"][:8] for event in org.record(topic)[:4_321]]
        assert sessions(org, topic) == []

    async def test_a_replay_id_that_cannot_be_read(
        self, org: LocalOrg, client: AsyncStreamingClient, topic: str
    ) -> None:
        with pytest.raises(ReplayIdLostError, match=rf"{topic}.*on_invalid_replay"):
            await next_batch(client, topic, b"\x7f" + bytes(7))
        await until(lambda: not sessions(org, topic), "the end of the session")


class TestSilence:
    async def test_a_silent_org_counts_as_lost(self, org: LocalOrg, client: AsyncStreamingClient, topic: str) -> None:
        with pytest.raises(ServiceUnavailableError, match=rf"{topic}: nothing came for 0.3 seconds.*resume"):
            await next_events(client.subscribe(topic, StartFrom.EARLIEST, silence_timeout=0.3))
        await until(lambda: not sessions(org, topic), "the end of the session")

    async def test_an_empty_answer_breaks_the_silence(
        self, org: LocalOrg, client: AsyncStreamingClient, topic: str
    ) -> None:
        org.knobs(cometd_connect_seconds=0.1)
        async with aclosing(client.subscribe(topic, StartFrom.LATEST, silence_timeout=5)) as stream:
            for _ in range(4):
                batch = await anext(stream)
                assert (len(batch), batch.latest_replay_id, batch.pending) == (0, b"", 0)

    @pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
    async def test_a_silence_timeout_of_nothing_is_refused_at_once(
        self, org: LocalOrg, client: AsyncStreamingClient, topic: str, seconds: float
    ) -> None:
        before = len(org.requests())
        with pytest.raises(ConfigurationError, match=r"silence_timeout=.*Nothing was read"):
            client.subscribe(topic, StartFrom.EARLIEST, silence_timeout=seconds)
        assert len(org.requests()) == before


class TestConsumer:
    async def test_no_more_is_read_than_may_wait_while_the_consumer_is_busy(self, org: LocalOrg, topic: str) -> None:
        org.knobs(cometd_batch_events=100)
        org.publish_many(topic, 1_000, {"Amount__c": "{n}"})
        async with (
            async_streaming_client(org, max_pending_count=150) as client,
            aclosing(client.subscribe(topic, StartFrom.EARLIEST, silence_timeout=SECONDS)) as stream,
        ):
            got = (await next_events(stream)).replay_ids
            # Meanwhile another reads everything: there was time to read more.
            async for _ in client.subscribe(topic, StartFrom.EARLIEST, limit=1_000, silence_timeout=SECONDS):
                pass
            client_id = sessions(org, topic)[0]
            connects = [r for r in org.requests("cometd", "/meta/connect") if r["detail"]["client_id"] == client_id]
            assert sum(request["detail"]["events"] for request in connects) <= len(got) + 150 + 100
            while len(got) < 1_000:
                got += (await anext(stream)).replay_ids
        assert got == [event["replay_id"][:8] for event in org.record(topic)]

    async def test_a_consumer_busy_for_too_long_can_resume(self, org: LocalOrg, topic: str) -> None:
        """Salesforce forgets a client that has not polled for 40 seconds, here 0.3."""
        org.knobs(cometd_reconnect_seconds=0.3, cometd_batch_events=100)
        org.publish_many(topic, 300, {"Amount__c": "{n}"})
        got: list[bytes] = []

        async def read_slowly(client: AsyncStreamingClient) -> None:
            async for batch in client.subscribe(topic, StartFrom.EARLIEST, silence_timeout=SECONDS):
                got.extend(batch.replay_ids)
                await until(lambda: not org.admin("GET", "/org")["cometd_sessions"], "the end of its time")

        async with async_streaming_client(org, max_pending_count=50) as client:
            with pytest.raises(ServiceUnavailableError, match=r"forgotten this client.*resume"):
                await read_slowly(client)
            assert 0 < len(got) < 300
            start = got[-1]
            org.reset_knobs()
            async for batch in client.subscribe(topic, start, limit=300 - len(got), silence_timeout=SECONDS):
                got += batch.replay_ids
        assert got == [event["replay_id"][:8] for event in org.record(topic)]


class TestEnd:
    @pytest.fixture
    async def waiting(self, org: LocalOrg, client: AsyncStreamingClient, topic: str) -> asyncio.Task[EventBatch]:
        """A task that waits for an event."""
        task = asyncio.create_task(next_batch(client, topic, StartFrom.LATEST))
        await until(lambda: len(sessions(org, topic)) == 1, "the subscription")
        return task

    async def test_cancelling_the_consumer_ends_the_session(
        self, org: LocalOrg, topic: str, waiting: asyncio.Task[EventBatch]
    ) -> None:
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert sessions(org, topic) == []

    async def test_closing_the_generator_ends_the_session(
        self, org: LocalOrg, client: AsyncStreamingClient, topic: str
    ) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        await next_batch(client, topic, StartFrom.EARLIEST)
        assert sessions(org, topic) == []

    async def test_a_forgotten_generator_ends_the_session_too(
        self, org: LocalOrg, client: AsyncStreamingClient, topic: str
    ) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        async for _ in client.subscribe(topic, StartFrom.EARLIEST, silence_timeout=SECONDS):
            break
        gc.collect()
        await until(lambda: not sessions(org, topic), "the end of the session")

    async def test_closing_the_client_ends_everything_and_is_no_cancellation(
        self, org: LocalOrg, client: AsyncStreamingClient, topic: str, waiting: asyncio.Task[EventBatch]
    ) -> None:
        await client.aclose()
        with pytest.raises(RuntimeError, match="closed"):
            await waiting
        with pytest.raises(RuntimeError, match="closed"):
            await next_batch(client, topic, StartFrom.LATEST)
        with pytest.raises(RuntimeError, match="closed"):
            await client.schema("K98aAtiNFBjA-PJlcvaQ2g")
        await client.aclose()
        await until(lambda: not sessions(org, topic), "the end of the session")

    async def test_a_client_that_nobody_used_closes(self, org: LocalOrg) -> None:
        before = len(org.requests())
        async with async_streaming_client(org):
            pass
        assert len(org.requests()) == before

    @pytest.mark.parametrize("steps", range(0, 60, 4))
    async def test_cancelled_at_any_step_nothing_is_left(
        self, org: LocalOrg, client: AsyncStreamingClient, topic: str, steps: int
    ) -> None:
        task = asyncio.create_task(next_batch(client, topic, StartFrom.LATEST))
        for _ in range(steps):
            await asyncio.sleep(0.0005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not sessions(org, topic), "the end of the session")
        org.publish(topic, [{"Amount__c": 1.0}])
        assert len(await next_batch(client, topic, StartFrom.EARLIEST)) == 1


class TestManySubscriptions:
    async def test_share_one_login_and_no_session(self, org: LocalOrg, topic: str) -> None:
        before = logins(org)
        async with async_streaming_client(org) as client:
            tasks = [asyncio.create_task(next_batch(client, topic, StartFrom.LATEST)) for _ in range(50)]
            await until(lambda: len(sessions(org, topic)) == 50, "50 subscriptions")
            org.publish(topic, [{"Amount__c": 1.0}])
            batches = await asyncio.wait_for(asyncio.gather(*tasks), SECONDS)
            record = [event["replay_id"][:8] for event in org.record(topic)]
            assert [batch.replay_ids for batch in batches] == [record] * 50
            assert logins(org) == before + 1
            assert sessions(org, topic) == []

    async def test_a_revoked_token_is_renewed_once_for_all(
        self, org: LocalOrg, client: AsyncStreamingClient, topic: str
    ) -> None:
        renewed: list[str] = []

        async def watch() -> EventBatch:
            while True:
                try:
                    return await next_batch(client, topic, StartFrom.LATEST)
                except SessionExpiredError:
                    client.renew_session()
                except ServiceUnavailableError:
                    pass
                renewed.append(topic)

        tasks = [asyncio.create_task(watch()) for _ in range(20)]
        await until(lambda: len(sessions(org, topic)) == 20, "20 subscriptions")
        before, connects = logins(org), count(org, "/meta/connect")
        org.revoke()
        await until(lambda: count(org, "/meta/connect") >= connects + 20, "20 polls again")
        org.publish(topic, [{"Amount__c": 1.0}])
        batches = await asyncio.wait_for(asyncio.gather(*tasks), SECONDS)
        assert {len(batch) for batch in batches} == {1}
        assert logins(org) == before + 1

    async def test_a_refused_login_is_one_attempt_for_all_who_wait(
        self, org: LocalOrg, client: AsyncStreamingClient, topic: str
    ) -> None:
        org.admin("POST", "/oauth", {"fail_next": 1, "fail_error": "invalid_client"})
        before = logins(org)
        calls = (next_batch(client, topic, StartFrom.LATEST) for _ in range(20))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {AuthenticationError}
        assert logins(org) == before + 1
        assert await client.org_id() == org.org_id, "the next one tries anew"


class TestSchemas:
    @pytest.fixture
    def schema_id(self, org: LocalOrg, topic: str) -> str:
        return str(next(t["schema_id"] for t in org.admin("GET", "/topics")["topics"] if t["name"] == topic))

    async def test_is_that_of_the_other_api(self, org: LocalOrg, client: AsyncStreamingClient, schema_id: str) -> None:
        async with async_pubsub_client(org) as pubsub:
            expected = await pubsub.schema(schema_id)
        got = await asyncio.gather(*(client.schema(schema_id) for _ in range(10)))
        assert {canonical(each or "") for each in got} == {canonical(expected)}
        asked = [r for r in org.requests("http") if schema_id in json.dumps(r)]
        assert len(asked) <= 1, "once for all who wait"

    async def test_a_channel_has_none(self, org: LocalOrg, client: AsyncStreamingClient) -> None:
        before = len(org.requests())
        assert await client.schema("/topic/InvoiceUpdates") is None
        assert await client.schema("/u/notifications/Orders") is None
        assert len(org.requests()) == before

    async def test_a_refused_token_is_renewed_once(
        self, org: LocalOrg, client: AsyncStreamingClient, schema_id: str
    ) -> None:
        await client.org_id()
        before = logins(org)
        org.revoke()
        assert await client.schema(schema_id)
        assert logins(org) == before + 1

    async def test_one_who_is_cancelled_harms_no_other(self, client: AsyncStreamingClient, schema_id: str) -> None:
        first, second = (asyncio.create_task(client.schema(schema_id)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert schema_id in (await second or "")
        assert first.cancelled()

    async def test_closing_ends_the_asking(self, client: AsyncStreamingClient, schema_id: str) -> None:
        asking = asyncio.create_task(client.schema(schema_id))
        await asyncio.sleep(0)
        await client.aclose()
        with pytest.raises(RuntimeError, match="closed"):
            await asking


async def test_an_unknown_schema_is_none_with_one_warning(org: LocalOrg, caplog: pytest.LogCaptureFixture) -> None:
    async with async_streaming_client(org) as client:
        for _ in range(2):
            assert await client.schema("no-such-schema-id") is None
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    caplog.clear()
    assert len(warned) == 1
    assert "no-such-schema-id" in warned[0]
    assert "read without it" in warned[0]


class TestWayThere:
    async def test_tls_with_the_orgs_authority(self, org: LocalOrg, topic: str) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        async with AsyncStreamingClient(https_login(org), tls_ca=org.ca_file) as client:
            batch = await next_batch(client, topic, StartFrom.EARLIEST)
            assert len(batch) == 1
            assert await client.schema(batch.schema_ids[0])

    async def test_an_authority_that_signed_nothing_is_not_retried(
        self, org: LocalOrg, topic: str, other_authority: str
    ) -> None:
        async with AsyncStreamingClient(https_login(org), tls_ca=other_authority) as client:
            with pytest.raises(ConfigurationError, match="tls_ca"):
                await next_batch(client, topic, StartFrom.EARLIEST)

    async def test_through_a_proxy_whose_password_is_not_shown(self, org: LocalOrg, topic: str) -> None:
        proxies = {"http": "http://user:s3cret@127.0.0.1:1"}
        async with async_streaming_client(org, proxies=proxies) as client:
            with pytest.raises(ServiceUnavailableError) as caught:
                await next_batch(client, topic, StartFrom.EARLIEST)
        assert "s3cret" not in str(caught.value)
        assert "127.0.0.1" in str(caught.value)

    async def test_unusable_arguments_are_refused_before_anything_is_contacted(self, org: LocalOrg) -> None:
        before = len(org.requests())
        for options in ({"api_version": "36.0"}, {"api_version": "x"}, {"tls_ca": "/no/file"}):
            with pytest.raises(ConfigurationError):
                AsyncStreamingClient(https_login(org), **options)
        assert len(org.requests()) == before

    async def test_the_token_is_in_no_error(self, org: LocalOrg, client: AsyncStreamingClient, topic: str) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        await next_batch(client, topic, StartFrom.EARLIEST)
        token = (await client._session.atoken()).value
        seen: list[str] = []
        for start in (b"\x7f" + bytes(7), StartFrom.EARLIEST):
            try:
                await next_batch(client, topic if isinstance(start, bytes) else "/event/Nowhere__e", start)
            except SalesforceStreamError as error:
                chain: BaseException | None = error
                while chain is not None:
                    seen.append(repr(chain) + str(chain))
                    chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
        assert len(seen) == 2
        assert not any(token in text for text in seen)
