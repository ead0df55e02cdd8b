"""What every event source makes of faults, on a real server: what was read is kept, and the rest can be resumed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing

import pytest

from airflow_provider_sfstream.exceptions import (
    AuthenticationError,
    ReplayIdLostError,
    SalesforceStreamError,
    ServiceUnavailableError,
    SessionExpiredError,
    TopicNotFoundError,
)
from airflow_provider_sfstream.salesforce.events import StartFrom
from tests.support.clients import token_provider
from tests.support.event_source_faults import Break
from tests.support.event_sources import EVENT_SOURCES, EventSourceAdapter, sources
from tests.support.localorg import LocalOrg
from tests.support.readers import ended, first, next_events, read, replay_ids, resumed, until

Opened = Callable[..., EventSourceAdapter]


def logins(org: LocalOrg) -> int:
    return int(org.admin("GET", "/oauth")["requests"])


def name_of(topic: str) -> str:
    """Return the part of a topic's name that every source's errors have."""
    return topic.removeprefix("/event/").removesuffix("__e")


class TestBreaks:
    @pytest.mark.parametrize(
        ("source_kind", "broken"),
        [pytest.param(kind, each, id=f"{kind.name}-{each.name}") for kind in EVENT_SOURCES for each in kind.breaks],
    )
    async def test_what_came_before_is_yielded_and_the_rest_can_be_resumed(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str, broken: Break
    ) -> None:
        source.answer_in_parts(100)
        org.publish_many(topic, 1_000, {"Amount__c": "{n}"})
        broken.cause(org, topic)
        got: list[bytes] = []
        with pytest.raises(broken.error) as caught:  # noqa: PT012 - the events before it count
            async for batch in source.subscribe(topic, limit=1_000):
                assert batch is not None, "events are there, but do not come"
                got += batch.replay_ids
        assert type(caught.value) is broken.error
        assert name_of(topic) in str(caught.value)
        assert len(got) <= 400, "300, and what an answer may have that breaks off"
        assert await resumed(source, topic, got, count=1_000) == source.replay_ids(topic)

    async def test_a_killed_server(self, org: LocalOrg, source: EventSourceAdapter, topic: str) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        stream = source.subscribe(topic)
        got = (await next_events(stream)).replay_ids
        org.kill()
        with pytest.raises(ServiceUnavailableError, match="resume") as caught:
            await next_events(stream)
        assert name_of(topic) in str(caught.value)
        org.start()
        org.publish(topic, [{"Amount__c": 2.0}])
        org.revoke()
        assert await resumed(source, topic, got, count=2) == source.replay_ids(topic)


class TestReplayIds:
    @sources(lambda kind: not kind.is_managed)
    async def test_one_that_has_expired(self, org: LocalOrg, source: EventSourceAdapter, topic: str) -> None:
        oldest, *_ = org.publish(topic, [{"Amount__c": float(number)} for number in range(3)])
        org.fault("expire", topic=topic, replay_id=oldest.hex())
        with pytest.raises(ReplayIdLostError, match="on_invalid_replay") as caught:
            await first(source, topic, source.replay_ids(topic)[0])
        assert topic in str(caught.value)
        await ended(source, topic)

    @sources(lambda kind: not kind.is_managed)
    async def test_one_that_is_none(self, source: EventSourceAdapter, topic: str) -> None:
        with pytest.raises(ReplayIdLostError, match="on_invalid_replay"):
            await first(source, topic, source.lost_replay_id)
        await ended(source, topic)

    async def test_a_topic_that_is_not_there(self, source: EventSourceAdapter) -> None:
        with pytest.raises(TopicNotFoundError, match="Nowhere"):
            await first(source, source.nowhere)


class TestSessions:
    async def test_a_revoked_token_costs_one_login_and_no_event(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        async with aclosing(source.subscribe(topic)) as stream:
            got = (await next_events(stream)).replay_ids
            before = logins(org)
            org.revoke()
            if source.rpc is not None:
                with pytest.raises(SessionExpiredError):
                    await next_events(stream)
                source.renew_session()
                source.renew_session()  # once more is no second login
            org.publish(topic, [{"Amount__c": 2.0}])
            if source.rpc is None:  # the Streaming API's client logs in again by itself
                got += (await next_events(stream)).replay_ids
        assert await resumed(source, topic, got, count=2) == source.replay_ids(topic)
        assert logins(org) == before + 1

    @sources(lambda kind: kind.rpc is not None)
    async def test_a_refused_token_stays_until_somebody_renews_it(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        got = (await first(source, topic)).replay_ids
        org.revoke()
        for _ in range(2):
            with pytest.raises(SessionExpiredError):
                await first(source, topic, got[-1])
        source.renew_session()
        before = logins(org)
        org.publish(topic, [{"Amount__c": 2.0}])
        assert replay_ids(await read(source, topic, got[-1], count=1)) == source.replay_ids(topic)[1:]
        assert logins(org) == before + 1

    async def test_a_token_that_nobody_refused_is_kept(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        await first(source, topic)
        before = logins(org)
        source.renew_session()
        await first(source, topic)
        assert logins(org) == before

    async def test_a_refused_login_reaches_the_caller_and_the_next_call_tries_anew(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        org.admin("POST", "/oauth", {"fail_next": 1, "fail_error": "invalid_client"})
        with pytest.raises(AuthenticationError):
            await first(source, topic)
        assert len(await first(source, topic)) == 1

    async def test_no_secret_in_logs_reprs_or_errors(
        self, org: LocalOrg, open_source: Opened, topic: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        tokens = token_provider(org)
        source = open_source(provider=tokens)
        secrets = [org.client_secret, tokens.token().value]
        org.publish_many(topic, 10, {"Amount__c": "{n}"})
        await read(source, topic, count=10)
        errors: list[SalesforceStreamError] = []
        source.fail_subscribing(f"it was {secrets[1]} that failed")
        with pytest.raises(ServiceUnavailableError, match=r"\*\*\*") as caught:
            await first(source, topic)
        errors.append(caught.value)
        with pytest.raises(TopicNotFoundError) as unknown:
            await first(source, source.nowhere)
        errors.append(unknown.value)
        org.revoke()
        try:
            await first(source, topic)
        except SessionExpiredError as expired:
            errors.append(expired)
            source.renew_session()
        await first(source, topic)
        secrets.append(tokens.token().value)
        assert secrets[1] != secrets[2]
        client = source.client
        shown = repr(client) + repr(client.__dict__) + repr(tokens.__dict__)
        shown += repr(getattr(client, "_session", client).__dict__)
        for error in errors:
            shown += "".join(f"{each!r} {each} {each.__dict__}" for each in chain(error))
        for secret in secrets:
            assert secret not in shown + caplog.text


def chain(error: BaseException | None) -> list[BaseException]:
    """Return an error and all that a traceback would show with it."""
    errors: list[BaseException] = []
    while error is not None:
        errors.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return errors


@sources(lambda kind: kind.is_asyncio and not kind.is_managed)
class TestManyAtOnce:
    async def test_a_revoked_token_is_renewed_once_for_all(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        again: list[str] = []

        async def watch() -> list[bytes]:
            while True:
                try:
                    return (await first(source, topic, StartFrom.LATEST)).replay_ids
                except SessionExpiredError:
                    source.renew_session()
                except ServiceUnavailableError:
                    pass
                again.append(topic)

        tasks = [asyncio.create_task(watch()) for _ in range(50)]
        await until(lambda: source.open_streams(topic) == 50, "50 subscriptions")
        before = logins(org)
        org.revoke()
        if source.rpc is None:  # its sessions outlive their token
            await until(lambda: logins(org) > before, "a login")
        else:
            await until(lambda: len(again) >= 50 and source.open_streams(topic) == 50, "50 subscriptions again")
        org.publish(topic, [{"Amount__c": 1.0}])
        async with asyncio.timeout(60):
            assert await asyncio.gather(*tasks) == [source.replay_ids(topic)] * 50
        assert logins(org) == before + 1

    async def test_a_refused_login_is_one_attempt_for_all_who_wait(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.admin("POST", "/oauth", {"fail_next": 1, "fail_error": "invalid_client"})
        before = logins(org)
        calls = (first(source, topic, StartFrom.LATEST) for _ in range(50))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {AuthenticationError}
        assert logins(org) == before + 1
        assert await source.client.org_id() == org.org_id, "the next one tries anew"
