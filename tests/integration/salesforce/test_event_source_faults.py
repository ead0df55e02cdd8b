"""Faults of event sources, against a real server: events before the fault are yielded, the others can be resumed."""

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
from tests.support.readers import (
    first_events,
    next_events,
    read,
    read_through_faults,
    replay_ids,
    wait_for,
    wait_until_unsubscribed,
)

Opened = Callable[..., EventSourceAdapter]


def logins(org: LocalOrg) -> int:
    return int(org.admin("GET", "/oauth")["requests"])


def name_of(topic: str) -> str:
    """Return the part of the topic name that the errors of every source contain."""
    return topic.removeprefix("/event/").removesuffix("__e")


class TestBreaks:
    @pytest.mark.parametrize(
        ("source_kind", "broken"),
        [pytest.param(kind, each, id=f"{kind.name}-{each.name}") for kind in EVENT_SOURCES for each in kind.breaks],
    )
    async def test_events_before_a_fault_are_yielded_and_the_others_can_be_resumed(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str, broken: Break
    ) -> None:
        source.answer_in_parts(100)
        org.publish_many(topic, 1_000, {"Amount__c": "{n}"})
        broken.cause(org, topic)
        got: list[bytes] = []
        with pytest.raises(broken.error) as caught:  # noqa: PT012 - events before the error are collected
            async for batch in source.subscribe(topic, limit=1_000):
                assert batch is not None, "the source received no stored event"
                got += batch.replay_ids
        assert type(caught.value) is broken.error
        assert name_of(topic) in str(caught.value)
        assert len(got) <= 400, "300 events, and those of the interrupted response"
        assert await read_through_faults(source, topic, got, count=1_000) == source.replay_ids(topic)

    async def test_subscription_can_resume_after_a_server_kill(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
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
        assert await read_through_faults(source, topic, got, count=2) == source.replay_ids(topic)


class TestReplayIds:
    @sources(lambda kind: not kind.is_managed)
    async def test_expired_replay_id_raises_replay_id_lost(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        oldest, *_ = org.publish(topic, [{"Amount__c": float(number)} for number in range(3)])
        org.fault("expire", topic=topic, replay_id=oldest.hex())
        with pytest.raises(ReplayIdLostError, match="on_invalid_replay") as caught:
            await first_events(source, topic, source.replay_ids(topic)[0])
        assert topic in str(caught.value)
        await wait_until_unsubscribed(source, topic)

    @sources(lambda kind: not kind.is_managed)
    async def test_unknown_replay_id_raises_replay_id_lost(self, source: EventSourceAdapter, topic: str) -> None:
        with pytest.raises(ReplayIdLostError, match="on_invalid_replay"):
            await first_events(source, topic, source.lost_replay_id)
        await wait_until_unsubscribed(source, topic)

    async def test_unknown_topic_raises_topic_not_found(self, source: EventSourceAdapter) -> None:
        with pytest.raises(TopicNotFoundError, match="Nowhere"):
            await first_events(source, source.missing_topic)


class TestSessions:
    async def test_revoked_token_causes_one_login_and_loses_no_event(
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
                source.renew_session()  # a second call must not cause a second login
            org.publish(topic, [{"Amount__c": 2.0}])
            if source.rpc is None:  # the client of the Streaming API renews its token automatically
                got += (await next_events(stream)).replay_ids
        assert await read_through_faults(source, topic, got, count=2) == source.replay_ids(topic)
        assert logins(org) == before + 1

    @sources(lambda kind: kind.rpc is not None)
    async def test_refused_token_is_used_until_renew_session_is_called(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        got = (await first_events(source, topic)).replay_ids
        org.revoke()
        for _ in range(2):
            with pytest.raises(SessionExpiredError):
                await first_events(source, topic, got[-1])
        source.renew_session()
        before = logins(org)
        org.publish(topic, [{"Amount__c": 2.0}])
        assert replay_ids(await read(source, topic, got[-1], count=1)) == source.replay_ids(topic)[1:]
        assert logins(org) == before + 1

    async def test_renew_session_keeps_a_token_that_was_not_refused(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        await first_events(source, topic)
        before = logins(org)
        source.renew_session()
        await first_events(source, topic)
        assert logins(org) == before

    async def test_refused_login_raises_and_the_next_call_logs_in_again(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        org.admin("POST", "/oauth", {"fail_next": 1, "fail_error": "invalid_client"})
        with pytest.raises(AuthenticationError):
            await first_events(source, topic)
        assert len(await first_events(source, topic)) == 1

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
            await first_events(source, topic)
        errors.append(caught.value)
        with pytest.raises(TopicNotFoundError) as unknown:
            await first_events(source, source.missing_topic)
        errors.append(unknown.value)
        org.revoke()
        try:
            await first_events(source, topic)
        except SessionExpiredError as expired:
            errors.append(expired)
            source.renew_session()
        await first_events(source, topic)
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
    """Return an error and all exceptions that its traceback would show."""
    errors: list[BaseException] = []
    while error is not None:
        errors.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return errors


@sources(lambda kind: kind.is_asyncio and not kind.is_managed)
class TestManyAtOnce:
    async def test_revoked_token_is_renewed_once_for_many_subscriptions(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        again: list[str] = []

        async def watch() -> list[bytes]:
            while True:
                try:
                    return (await first_events(source, topic, StartFrom.LATEST)).replay_ids
                except SessionExpiredError:
                    source.renew_session()
                except ServiceUnavailableError:
                    pass
                again.append(topic)

        tasks = [asyncio.create_task(watch()) for _ in range(50)]
        await wait_for(lambda: source.open_streams(topic) == 50, "50 subscriptions")
        before = logins(org)
        org.revoke()
        if source.rpc is None:  # sessions of the Streaming API outlive their token
            await wait_for(lambda: logins(org) > before, "a login")
        else:
            await wait_for(lambda: len(again) >= 50 and source.open_streams(topic) == 50, "50 subscriptions again")
        org.publish(topic, [{"Amount__c": 1.0}])
        async with asyncio.timeout(60):
            assert await asyncio.gather(*tasks) == [source.replay_ids(topic)] * 50
        assert logins(org) == before + 1

    async def test_refused_login_is_attempted_once_for_many_subscriptions(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        org.admin("POST", "/oauth", {"fail_next": 1, "fail_error": "invalid_client"})
        before = logins(org)
        calls = (first_events(source, topic, StartFrom.LATEST) for _ in range(50))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {AuthenticationError}
        assert logins(org) == before + 1
        assert await source.client.org_id() == org.org_id, "the next call logs in again"
