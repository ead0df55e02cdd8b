"""What a subscription promises, of the blocking and of the asyncio client alike, against a real server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import (
    AuthenticationError,
    ConfigurationError,
    InvalidReplayIdError,
    InvalidTopicError,
    QuotaExceededError,
    ReplayIdLostError,
    ServiceUnavailableError,
    SessionExpiredError,
    ThrottledError,
    TopicNotFoundError,
)
from airflow_provider_sfstream.protocol.events import StartFrom
from airflow_provider_sfstream.protocol.schemas import record_name
from tests.support.clients import token_provider
from tests.support.localorg import LocalOrg
from tests.support.readers import SECONDS, Reader, first, open_reader, read, replay_ids, resumed


@pytest.fixture(params=["blocking", "asyncio"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def reader(kind: str, org: LocalOrg) -> AsyncIterator[Reader]:
    async with open_reader(kind, org) as reader:
        yield reader


def recorded(org: LocalOrg, topic: str) -> list[bytes]:
    return [event["replay_id"] for event in org.record(topic)]


def logins(org: LocalOrg) -> int:
    return int(org.admin("GET", "/oauth")["requests"])


def schema_id_of(org: LocalOrg, topic: str) -> str:
    return str(next(t["schema_id"] for t in org.admin("GET", "/topics")["topics"] if t["name"] == topic))


class TestEvents:
    async def test_every_event_once_in_order(self, org: LocalOrg, reader: Reader, topic: str) -> None:
        org.publish_many(topic, 2_500, {"Amount__c": "{n}", "Note__c": "note {n}"})
        batches = await read(reader, topic, count=2_500)
        record = org.record(topic)
        assert replay_ids(batches) == [event["replay_id"] for event in record]
        assert [p for batch in batches for p in batch.payloads] == [event["payload"] for event in record]
        assert [i for batch in batches for i in batch.event_ids] == [event["event_id"] for event in record]
        assert {s for batch in batches for s in batch.schema_ids} == {schema_id_of(org, topic)}
        for batch in batches:
            assert batch.latest_replay_id
            assert batch.received_at > 1_600_000_000 * 10**9

    async def test_resume_is_strictly_after_a_replay_id(self, org: LocalOrg, reader: Reader, topic: str) -> None:
        org.publish_many(topic, 300, {"Amount__c": "{n}"})
        every = recorded(org, topic)
        for index in (0, 99, 298):
            assert replay_ids(await read(reader, topic, every[index], count=299 - index)) == every[index + 1 :]

    async def test_latest_begins_with_what_comes_next(self, org: LocalOrg, reader: Reader, topic: str) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        org.knobs(keepalive_seconds=0.1)
        async with aclosing(reader.subscribe(topic, StartFrom.LATEST)) as stream:
            assert len(await anext(stream)) == 0, "a keepalive: the subscription stands"
            [published] = org.publish(topic, [{"Amount__c": 2.0}])
            async for batch in stream:
                if len(batch):
                    break
            assert batch.replay_ids == [published]

    @pytest.mark.parametrize("limit", [1, 50, 99, 100, 101, 150, 250])
    async def test_never_more_is_asked_for_than_the_limit(
        self, org: LocalOrg, reader: Reader, topic: str, limit: int
    ) -> None:
        org.publish_many(topic, 400, {"Amount__c": "{n}"})
        before = org.admin("GET", "/org")["delivered"]
        assert len(replay_ids(await read(reader, topic, count=limit))) == limit
        assert org.admin("GET", "/org")["delivered"] == before + limit

    async def test_small_responses_fill_the_pipe_too(self, org: LocalOrg, reader: Reader, topic: str) -> None:
        org.knobs(batch_events=7)
        org.publish_many(topic, 1_000, {"Amount__c": "{n}"})
        batches = await read(reader, topic, count=1_000)
        assert replay_ids(batches) == recorded(org, topic)
        assert max(map(len, batches)) == 7

    async def test_a_keepalive_is_an_empty_batch_with_a_position(
        self, org: LocalOrg, reader: Reader, topic: str
    ) -> None:
        [last] = org.publish(topic, [{"Amount__c": 1.0}])
        org.knobs(keepalive_seconds=0.1)
        async with aclosing(reader.subscribe(topic, last)) as stream:
            for _ in range(3):
                batch = await anext(stream)
                assert len(batch) == 0
                assert batch.pending == 100, "a keepalive pays nothing off, and nothing more is asked for"
                assert batch.latest_replay_id

    async def test_several_subscriptions_of_one_client(self, org: LocalOrg, reader: Reader, topic: str) -> None:
        org.publish_many(topic, 1_000, {"Amount__c": "{n}"})
        results = await asyncio.gather(*(read(reader, topic, count=1_000) for _ in range(3)))
        assert [replay_ids(batches) for batches in results] == [recorded(org, topic)] * 3

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ({"start": b""}, InvalidReplayIdError),
            ({"start": bytes(65)}, InvalidReplayIdError),
            ({"limit": 0}, ConfigurationError),
            ({"topic": "/event/../x"}, InvalidTopicError),
            ({"topic": "Order__e"}, InvalidTopicError),
            ({"topic": "/topic/Push"}, InvalidTopicError),
        ],
    )
    async def test_bad_arguments_fail_at_once(
        self, org: LocalOrg, reader: Reader, topic: str, arguments: dict[str, Any], expected: type[Exception]
    ) -> None:
        before = len(org.requests())
        with pytest.raises(expected, match="Nothing was read"):
            reader.subscribe(**{"topic": topic, "start": StartFrom.EARLIEST, **arguments})
        assert len(org.requests()) == before


class TestSchemas:
    async def test_a_schema_is_asked_for_once(self, org: LocalOrg, reader: Reader, topic: str) -> None:
        schema_id = schema_id_of(org, topic)
        before = len(org.requests("grpc", "GetSchema"))
        [schema] = set(await asyncio.gather(*(reader.schema(schema_id) for _ in range(8))))
        assert await reader.schema(schema_id) == schema
        assert record_name(schema) == topic.removeprefix("/event/")
        assert len(org.requests("grpc", "GetSchema")) == before + 1

    async def test_a_revoked_token_is_renewed_within_the_call(self, org: LocalOrg, reader: Reader, topic: str) -> None:
        await reader.schema(schema_id_of(org, topic))
        org.define(topic.removeprefix("/event/"), Other__c="string")
        org.revoke()
        before = logins(org)
        assert "Other__c" in await reader.schema(schema_id_of(org, topic))
        assert logins(org) == before + 1

    async def test_a_failure_is_not_remembered(self, org: LocalOrg, reader: Reader, topic: str) -> None:
        org.fault("fail_calls", rpc="GetSchema", code="service.unavailable", status="INTERNAL")
        with pytest.raises(ServiceUnavailableError, match=schema_id_of(org, topic)):
            await reader.schema(schema_id_of(org, topic))
        assert await reader.schema(schema_id_of(org, topic))


class TestFaults:
    @pytest.mark.parametrize(
        ("fault", "expected"),
        [
            ({"code": "service.unavailable", "status": "INTERNAL"}, ServiceUnavailableError),
            ({"code": "subscription.fetch.overflow", "status": "RESOURCE_EXHAUSTED"}, ThrottledError),
            ({"code": "subscription.limit.exceeded", "status": "RESOURCE_EXHAUSTED"}, QuotaExceededError),
            ({"code": "service.auth.error", "status": "UNAUTHENTICATED"}, SessionExpiredError),
            ({"code": "", "status": "UNAVAILABLE", "message": "RST_STREAM closed stream"}, ServiceUnavailableError),
            ({"code": "", "status": "CANCELLED", "message": "by the server"}, ServiceUnavailableError),
            ({"how": "end"}, ServiceUnavailableError),
            ({"how": "reset"}, ServiceUnavailableError),
        ],
    )
    async def test_what_came_before_a_fault_is_yielded_and_the_rest_can_be_resumed(
        self, org: LocalOrg, reader: Reader, topic: str, fault: dict[str, str], expected: type[Exception]
    ) -> None:
        org.publish_many(topic, 1_000, {"Amount__c": "{n}"})
        org.fault("drop_every", every=300, times=1, topic=topic, **fault)
        got: list[bytes] = []
        with pytest.raises(expected) as caught:  # noqa: PT012 - the events before it count
            async for batch in reader.subscribe(topic, StartFrom.EARLIEST, limit=1_000):
                got += batch.replay_ids
        assert type(caught.value) is expected
        assert topic in str(caught.value)
        assert len(got) <= 300
        assert await resumed(reader, topic, got, count=1_000) == recorded(org, topic)

    async def test_a_token_revoked_mid_stream(self, org: LocalOrg, reader: Reader, topic: str) -> None:
        published = org.publish(topic, [{"Amount__c": 1.0}])
        stream = reader.subscribe(topic, StartFrom.EARLIEST)
        assert (await anext(stream)).replay_ids == published
        org.revoke()
        with pytest.raises(SessionExpiredError):
            await anext(stream)
        with pytest.raises(SessionExpiredError):
            await first(reader, topic, published[-1])
        reader.renew_session()
        reader.renew_session()  # once more is no second login
        before = logins(org)
        more = org.publish(topic, [{"Amount__c": 2.0}])
        assert replay_ids(await read(reader, topic, published[-1], count=1)) == more
        assert logins(org) == before + 1

    async def test_renewing_before_anything_was_refused_keeps_the_token(
        self, org: LocalOrg, reader: Reader, topic: str
    ) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        await first(reader, topic)
        before = logins(org)
        reader.renew_session()
        await first(reader, topic)
        assert logins(org) == before

    async def test_a_refused_login_reaches_the_caller_and_the_next_call_tries_anew(
        self, org: LocalOrg, reader: Reader, topic: str
    ) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        org.admin("POST", "/oauth", {"fail_next": 1, "fail_error": "invalid_client"})
        with pytest.raises(AuthenticationError):
            await first(reader, topic)
        assert len(await first(reader, topic)) == 1

    async def test_an_expired_replay_id(self, org: LocalOrg, reader: Reader, topic: str) -> None:
        oldest, *_ = org.publish(topic, [{"Amount__c": float(number)} for number in range(3)])
        org.fault("expire", topic=topic, replay_id=oldest.hex())
        with pytest.raises(ReplayIdLostError, match="on_invalid_replay"):
            await first(reader, topic, oldest)

    async def test_a_replay_id_that_is_none(self, reader: Reader, topic: str) -> None:
        with pytest.raises(ReplayIdLostError):
            await first(reader, topic, b"nonsense!!")

    async def test_an_unknown_topic(self, reader: Reader) -> None:
        with pytest.raises(TopicNotFoundError, match="/event/Nowhere__e"):
            await first(reader, "/event/Nowhere__e")

    async def test_a_killed_server(self, kind: str, tmp_path: Path) -> None:
        with LocalOrg.running(tmp_path / "org") as org:
            topic = str(org.define("Order__e", Amount__c="double")["name"])
            published = org.publish(topic, [{"Amount__c": 1.0}])
            async with open_reader(kind, org) as reader:
                stream = reader.subscribe(topic, StartFrom.EARLIEST)
                await anext(stream)
                org.kill()
                with pytest.raises(ServiceUnavailableError):
                    await anext(stream)
                org.start()
                more = org.publish(topic, [{"Amount__c": 2.0}])
                org.revoke()
                assert await self._read_after_restart(reader, topic, published[-1]) == more

    @staticmethod
    async def _read_after_restart(reader: Reader, topic: str, start: bytes) -> list[bytes]:
        async with asyncio.timeout(SECONDS):
            while True:
                try:
                    return replay_ids(await read(reader, topic, start, count=1))
                except SessionExpiredError:
                    reader.renew_session()
                except ServiceUnavailableError:
                    await asyncio.sleep(0.02)


async def test_no_secret_in_logs_reprs_or_errors(
    kind: str, org: LocalOrg, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = token_provider(org)
    async with open_reader(kind, org, provider=tokens) as reader:
        seen = [tokens.token().value]
        org.publish_many(topic, 10, {"Amount__c": "{n}"})
        await read(reader, topic, count=10)
        message = f"it was {seen[0]} that failed"
        org.fault("fail_calls", rpc="Subscribe", code="", status="INTERNAL", message=message)
        with pytest.raises(ServiceUnavailableError) as caught:
            await first(reader, topic)
        assert "***" in str(caught.value)
        org.revoke()
        with pytest.raises(SessionExpiredError) as expired:
            await first(reader, topic)
        reader.renew_session()
        seen.append(tokens.token().value)
        client = reader.client  # type: ignore[attr-defined]
        shown = repr(client) + repr(client.__dict__) + repr(client._session.__dict__) + repr(tokens.__dict__)
        for error in (caught.value, expired.value):
            shown += f"{error!r} {error.__dict__} {error.__cause__!r}"
    for secret in (*seen, org.client_secret):
        assert secret not in shown + caplog.text
