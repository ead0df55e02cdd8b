"""Streams of managed subscriptions against a real server: events, commits, commit responses and ends."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import (
    CommitError,
    CommitFailedError,
    ConfigurationError,
    InvalidReplayIdError,
    SalesforceStreamError,
    ServiceUnavailableError,
    SessionExpiredError,
    SubscriptionBusyError,
    SubscriptionStoppedError,
    TopicNotFoundError,
)
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription
from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient
from airflow_provider_sfstream.salesforce.pubsub.managed_stream import ManagedStream
from tests.support.clients import async_pubsub_client, pubsub_client, token_provider
from tests.support.localorg import LocalOrg, wait_until

SECONDS = 60.0
_numbers = itertools.count()


@pytest.fixture
def client(org: LocalOrg) -> Iterator[PubSubClient]:
    with pubsub_client(org) as client:
        yield client


@pytest.fixture
def name(org: LocalOrg, topic: str) -> str:
    """Create a managed subscription of a new, empty topic that begins with the earliest retained event."""
    name = f"Orders{next(_numbers)}"
    org.managed_subscription(name, topic)
    return name


def is_free(org: LocalOrg, text: str) -> bool:
    """Return whether a managed subscription, given by name or ID, has no stream or does not exist."""
    named = [one for name, one in org.managed_subscriptions().items() if text in (name, one["id"], one["id"][:15])]
    return all(one["slot"] == "free" for one in named)


def opened(org: LocalOrg, client: PubSubClient, name: str, **options: float | bytes | None) -> ManagedStream:
    """Open a stream when the org has detected the end of the previous stream."""
    wait_until(lambda: is_free(org, name), what="the end of the previous stream")
    return occupied(client, name, **options)


def occupied(client: PubSubClient, name: str, **options: float | bytes | None) -> ManagedStream:
    arguments: dict[str, Any] = {"idle_timeout": SECONDS, **options}
    return client.managed_subscribe(ManagedSubscription(name), **arguments)


def take(stream: ManagedStream, count: int) -> list[bytes]:
    """Return the next ``count`` replay IDs."""
    got: list[bytes] = []
    while len(got) < count:
        batch = next(stream)
        assert batch is not None, "the stream received no stored event"
        got += batch.replay_ids
    return got


def committed(org: LocalOrg, name: str) -> bytes | None:
    position: bytes | None = org.managed_subscriptions()[name]["committed"]
    return position


def recorded(org: LocalOrg, topic: str) -> list[bytes]:
    return [event["replay_id"] for event in org.record(topic)]


def publish(org: LocalOrg, topic: str, count: int) -> list[bytes]:
    org.publish_many(topic, count, {"Amount__c": "{n}"})
    return recorded(org, topic)


def end_of(stream: ManagedStream) -> SalesforceStreamError:
    with pytest.raises(SalesforceStreamError) as caught:  # noqa: PT012 - batches before the end are read
        for batch in stream:
            assert batch is not None, "the stream did not end"
    return caught.value


class TestEvents:
    def test_documented_sequence_of_reading_and_committing(
        self, org: LocalOrg, client: PubSubClient, topic: str, name: str
    ) -> None:
        events = publish(org, topic, 6)
        with opened(org, client, name, limit=4) as first:  # 1 subscribe
            assert take(first, 4) == events[:4]  # 2 receive the requested events; 3 process two
            first.commit(events[1])  # 4
            first.wait_for_commit(events[1], SECONDS)  # 5
        assert committed(org, name) == events[1]  # 6 the client ends with two unprocessed events
        with opened(org, client, name, limit=4) as second:  # 7
            assert take(second, 4) == events[2:]  # 8

    def test_subscription_is_found_by_name_and_by_long_or_short_id(
        self, org: LocalOrg, client: PubSubClient, topic: str, name: str
    ) -> None:
        events = publish(org, topic, 3)
        record_id = org.managed_subscriptions()[name]["id"]
        for text in (name, record_id, record_id[:15]):
            with opened(org, client, text, limit=3) as stream:
                assert take(stream, 3) == events, "no replay ID was committed"

    def test_every_event_once_in_order_and_nothing_beyond_the_limit(
        self, org: LocalOrg, client: PubSubClient, topic: str, name: str
    ) -> None:
        events = publish(org, topic, 2_000)
        before = org.admin("GET", "/org")["delivered"]
        with opened(org, client, name, limit=1_234) as stream:
            assert [replay_id for batch in stream if batch for replay_id in batch.replay_ids] == events[:1_234]
            stream.commit(events[1_233])
            stream.wait_for_commit(events[1_233], SECONDS)
            assert list(stream) == []
        assert org.admin("GET", "/org")["delivered"] == before + 1_234, "a commit requests no event"
        assert committed(org, name) == events[1_233]

    def test_limit_can_be_raised_for_events_that_are_not_counted(
        self, org: LocalOrg, client: PubSubClient, topic: str, name: str
    ) -> None:
        events = publish(org, topic, 10)
        with opened(org, client, name, limit=3) as stream:
            assert take(stream, 3) == events[:3]
            stream.allow(2)
            assert take(stream, 2) == events[3:5]
            assert list(stream) == []

    def test_stream_accepts_commits_after_it_stopped_fetching(
        self, org: LocalOrg, client: PubSubClient, topic: str, name: str
    ) -> None:
        events = publish(org, topic, 1_000)
        with opened(org, client, name) as stream:
            first = next(stream)
            stream.stop_fetching()
            got = org.admin("GET", "/org")["delivered"]
            stream.commit(events[7])
            stream.wait_for_commit(events[7], SECONDS)
            assert first is not None
            assert org.admin("GET", "/org")["delivered"] - got <= 1_000
        assert committed(org, name) == events[7]

    def test_a_confirmed_position_can_be_committed(
        self, org: LocalOrg, client: PubSubClient, topic: str, name: str
    ) -> None:
        org.knobs(keepalive_seconds=0.1)
        with opened(org, client, name) as stream:
            confirmed = next(stream)
            assert confirmed is not None
            assert (len(confirmed), confirmed.pending) == (0, 100)
            stream.commit(confirmed.latest_replay_id)
            stream.wait_for_commit(confirmed.latest_replay_id, SECONDS)
        assert committed(org, name) == confirmed.latest_replay_id

    def test_idle_timeout_yields_none_and_a_commit_response_is_not_a_batch(
        self, org: LocalOrg, client: PubSubClient, topic: str, name: str
    ) -> None:
        [event] = publish(org, topic, 1)
        with opened(org, client, name, idle_timeout=0.05) as stream:
            while not (batch := next(stream)):
                assert batch is None
            stream.commit(event)
            stream.wait_for_commit(event, SECONDS)
            assert [next(stream) for _ in range(3)] == [None] * 3


class TestCommits:
    def test_another_thread_can_commit_while_events_are_read(
        self, org: LocalOrg, client: PubSubClient, topic: str, name: str
    ) -> None:
        events = publish(org, topic, 3_000)
        got: list[bytes] = []
        failed: list[BaseException] = []

        def commit_along(stream: ManagedStream) -> None:
            try:
                while len(got) < len(events):
                    if got:
                        stream.commit(last := got[-1])
                        stream.wait_for_commit(last, SECONDS)
            except BaseException as error:
                failed.append(error)

        with opened(org, client, name, limit=3_000) as stream:
            thread = threading.Thread(target=commit_along, args=(stream,))
            thread.start()
            for batch in stream:
                assert batch is not None
                got += batch.replay_ids
            thread.join(SECONDS)
            assert (failed, thread.is_alive()) == ([], False)
            stream.commit(got[-1])
            stream.wait_for_commit(got[-1], SECONDS)
        assert got == events
        assert committed(org, name) == events[-1]

    def test_one_response_acknowledges_all_earlier_commits(
        self, org: LocalOrg, client: PubSubClient, topic: str, name: str
    ) -> None:
        org.knobs(managed_ack_every=3, managed_ack_seconds=600)
        events = publish(org, topic, 3)
        with opened(org, client, name, limit=3) as stream:
            take(stream, 3)
            for replay_id in events[:2]:
                stream.commit(replay_id)
            with pytest.raises(
                ServiceUnavailableError, match=r"did not acknowledge within 0.2 seconds.*No event is lost"
            ):
                stream.wait_for_commit(events[1], 0.2)
            stream.commit(events[2])
            for replay_id in events:
                stream.wait_for_commit(replay_id, SECONDS)

    def test_events_received_during_the_wait_for_a_commit_stay_in_order(
        self, org: LocalOrg, client: PubSubClient, topic: str, name: str
    ) -> None:
        org.knobs(managed_ack_every=2, managed_ack_seconds=600)
        [event] = publish(org, topic, 1)
        with opened(org, client, name) as stream:
            assert take(stream, 1) == [event]
            stream.commit(event)
            more = publish(org, topic, 50)[1:]
            with pytest.raises(ServiceUnavailableError):
                stream.wait_for_commit(event, 0.3)
            stream.commit(event)
            stream.wait_for_commit(event, SECONDS)
            assert take(stream, 50) == more

    @pytest.mark.parametrize(
        ("error", "expected"),
        [
            ("missing", CommitError),
            ("invalid", CommitError),
            ("not_delivered", CommitError),
            ("older", CommitError),
            ("failed", CommitFailedError),
        ],
    )
    def test_commit_error_does_not_end_the_stream(
        self, org: LocalOrg, client: PubSubClient, topic: str, name: str, error: str, expected: type[CommitError]
    ) -> None:
        events = publish(org, topic, 2)
        org.fault("managed_refuse_commit", developer_name=name, error=error)
        with opened(org, client, name) as stream:
            take(stream, 2)
            stream.commit(events[0])
            with pytest.raises(CommitError) as caught:
                stream.wait_for_commit(events[0], SECONDS)
            assert type(caught.value) is expected
            assert caught.value.retriable is (expected is CommitFailedError)
            for part in (name, events[0].hex(), "no event is lost"):
                assert part in str(caught.value)
            assert committed(org, name) is None
            more = publish(org, topic, 1)[2:]
            assert take(stream, 1) == more
            stream.commit(events[0])
            stream.wait_for_commit(events[0], SECONDS)
        assert committed(org, name) == events[0]

    def test_undelivered_invalid_and_older_replay_ids_cannot_be_committed(
        self, org: LocalOrg, client: PubSubClient, topic: str, name: str
    ) -> None:
        events = publish(org, topic, 5)
        with opened(org, client, name, limit=3) as stream:
            take(stream, 3)
            for replay_id, reason in ((events[4], "not been delivered"), (b"nonsense!!", "invalid")):
                stream.commit(replay_id)
                with pytest.raises(CommitError, match=reason):
                    stream.wait_for_commit(replay_id, SECONDS)
            stream.commit(events[2])
            stream.commit(events[0])
            with pytest.raises(CommitError, match="older"):
                stream.wait_for_commit(events[0], SECONDS)
            stream.wait_for_commit(events[2], SECONDS)

    @pytest.mark.parametrize(
        ("fault", "carried_out"), [("managed_lose_commit", False), ("managed_lose_acknowledgement", True)]
    )
    def test_stream_that_ends_before_the_commit_response_raises(
        self, org: LocalOrg, client: PubSubClient, topic: str, name: str, fault: str, carried_out: bool
    ) -> None:
        events = publish(org, topic, 2)
        org.fault(fault, developer_name=name)
        with opened(org, client, name, limit=2) as stream:
            take(stream, 2)
            stream.commit(events[0])
            with pytest.raises(ServiceUnavailableError, match=f"{name}.*may not be committed.*No event is lost"):
                stream.wait_for_commit(events[0], SECONDS)
            assert not stream.is_open
            with pytest.raises(ServiceUnavailableError, match="was not committed"):
                stream.commit(events[1])
        with opened(org, client, name, limit=1) as stream:
            assert take(stream, 1) == [events[1] if carried_out else events[0]]

    def test_commit_directly_before_close_is_not_lost(
        self, org: LocalOrg, client: PubSubClient, topic: str, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("airflow_provider_sfstream.salesforce.pubsub.managed_stream._SECONDS_TO_FLUSH", SECONDS)
        org.knobs(managed_ack_every=100, managed_ack_seconds=0.1)
        events = publish(org, topic, 200)
        for replay_id in events[:100:20]:
            with opened(org, client, name) as stream:
                next(stream)
                stream.commit(replay_id)
            assert committed(org, name) == replay_id

    def test_waiting_for_an_uncommitted_replay_id_raises(self, org: LocalOrg, client: PubSubClient, name: str) -> None:
        with opened(org, client, name) as stream:
            with pytest.raises(CommitError, match="was not committed on this stream"):
                stream.wait_for_commit(b"\x01", SECONDS)
            for replay_id in (b"", bytes(65)):
                with pytest.raises(InvalidReplayIdError, match="The committed position did not change"):
                    stream.commit(replay_id)


class TestKeepalive:
    def test_idle_stream_repeats_its_last_commit(
        self, org: LocalOrg, client: PubSubClient, topic: str, name: str
    ) -> None:
        """Salesforce ends streams without commits. Keepalives are a thousand times as frequent here."""
        org.knobs(keepalive_seconds=0.02)
        [event] = publish(org, topic, 1)
        with opened(org, client, name, commit_keepalive=0.05) as stream:
            assert take(stream, 1) == [event]
            stream.commit(event)
            stream.wait_for_commit(event, SECONDS)
            for _ in range(50):  # at least a second
                assert len(next(stream) or ()) == 0
            assert stream.is_open
        with opened(org, client, name, commit_keepalive=0.05, recommit=event) as stream:
            for _ in range(50):
                assert len(next(stream) or ()) == 0
        assert committed(org, name) == event
        wait_until(lambda: is_free(org, name), what="the end of the streams")
        first, second = (call["detail"]["commits"] for call in org.requests("grpc", "ManagedSubscribe"))
        assert first >= 2, "the commit of the event and a repeated commit"
        assert second >= 1

    def test_stream_without_commits_is_ended_and_can_be_resumed(
        self, org: LocalOrg, client: PubSubClient, topic: str, name: str
    ) -> None:
        org.knobs(keepalive_seconds=0.1)
        [event] = publish(org, topic, 1)
        for _ in range(2):
            org.knobs(managed_commit_seconds=1800.0)
            with opened(org, client, name, commit_keepalive=0.1) as stream:
                assert take(stream, 1) == [event]
                org.knobs(managed_commit_seconds=0.3)
                error = end_of(stream)
            assert isinstance(error, ServiceUnavailableError)
            assert "received no commit" in str(error)

    def test_refused_keepalive_commit_is_not_repeated(
        self, org: LocalOrg, client: PubSubClient, topic: str, name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        org.knobs(keepalive_seconds=0.05)
        with opened(org, client, name, commit_keepalive=0.1, recommit=b"nonsense!!") as stream:
            for _ in range(20):
                next(stream)
        assert caplog.text.count("did not commit replay ID") == 1


class TestEnds:
    def test_second_stream_of_a_subscription_is_refused_as_busy(
        self, org: LocalOrg, client: PubSubClient, topic: str, name: str
    ) -> None:
        publish(org, topic, 1)
        with opened(org, client, name) as first:
            take(first, 1)
            with occupied(client, name) as second:
                error = end_of(second)
            assert isinstance(error, SubscriptionBusyError)
            assert error.retriable
            for part in (name, "15 seconds", "15 minutes", "its own managed subscription"):
                assert part in str(error)
        with opened(org, client, name) as third:
            take(third, 1)

    def test_stopped_subscription_raises_before_and_during_reading(
        self, org: LocalOrg, client: PubSubClient, topic: str, name: str
    ) -> None:
        publish(org, topic, 1)
        with opened(org, client, name) as stream:
            take(stream, 1)
            org.managed_subscription(name, topic, state="STOP")
            for error in (end_of(stream), end_of(opened(org, client, name))):
                assert isinstance(error, SubscriptionStoppedError)
                assert not error.retriable
                assert name in str(error)
                assert "RUN" in str(error)

    def test_subscription_deleted_during_reading_raises(
        self, org: LocalOrg, client: PubSubClient, topic: str, name: str
    ) -> None:
        events = publish(org, topic, 1)
        record_id = org.managed_subscriptions()[name]["id"]
        with opened(org, client, name) as stream:
            take(stream, 1)
            org.rest("DELETE", f"/tooling/sobjects/ManagedEventSubscription/{record_id}")
            error = end_of(stream)
            assert isinstance(error, TopicNotFoundError)
            assert "deleted" in str(error)
            with pytest.raises(TopicNotFoundError, match="was not committed"):
                stream.commit(events[0])

    def test_unknown_subscription_raises(self, org: LocalOrg, client: PubSubClient) -> None:
        for text in ("Nowhere", "18x0000000zzzzz"):
            with opened(org, client, text) as stream:
                error = end_of(stream)
            assert isinstance(error, TopicNotFoundError)
            assert text in str(error)
            assert "two minutes" in str(error)

    def test_revoked_token_ends_the_stream_and_can_be_renewed(
        self, org: LocalOrg, client: PubSubClient, topic: str, name: str
    ) -> None:
        events = publish(org, topic, 2)
        with opened(org, client, name, limit=2) as stream:
            take(stream, 2)
            stream.commit(events[0])
            stream.wait_for_commit(events[0], SECONDS)
            org.revoke()
            wait_until(lambda: not stream.is_open, what="the end of the stream")
            with pytest.raises(SessionExpiredError, match="was not committed"):
                stream.commit(events[1])
        client.renew_session()
        with opened(org, client, name, limit=1) as stream:
            assert take(stream, 1) == [events[1]]

    @pytest.mark.parametrize("options", [{"limit": 0}, {"idle_timeout": 0}, {"commit_keepalive": 0}])
    def test_invalid_arguments_are_refused_before_any_request(
        self, org: LocalOrg, client: PubSubClient, name: str, options: dict[str, float]
    ) -> None:
        before = len(org.requests())
        with pytest.raises(ConfigurationError, match=rf"{name}.*Nothing was read"):
            opened(org, client, name, **options)
        assert len(org.requests()) == before

    def test_closing_ends_the_call_and_its_thread(
        self, org: LocalOrg, client: PubSubClient, topic: str, name: str
    ) -> None:
        publish(org, topic, 1)
        with opened(org, client, name) as stream:
            take(stream, 1)
            assert org.managed_subscriptions()[name]["slot"] == "active"
        wait_until(lambda: org.managed_subscriptions()[name]["slot"] == "free", what="the end of the call")
        assert not [thread for thread in threading.enumerate() if name in thread.name]

    def test_no_secret_in_logs_or_errors(
        self, org: LocalOrg, topic: str, name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        tokens = token_provider(org)
        secret = tokens.token().value
        org.fault("fail_calls", rpc="ManagedSubscribe", code="", status="INTERNAL", message=f"it was {secret}")
        with pubsub_client(org, provider=tokens) as client, opened(org, client, name) as stream:
            shown = repr(end_of(stream)) + repr(stream)
            with pytest.raises(ServiceUnavailableError) as caught:
                stream.commit(b"\x01")
        assert "***" in shown
        assert secret not in shown + str(caught.value) + caplog.text


class TestAsyncio:
    async def test_events_are_delivered_again_until_they_are_committed(
        self, org: LocalOrg, topic: str, name: str
    ) -> None:
        events = publish(org, topic, 250)
        subscription = ManagedSubscription(name)
        async with async_pubsub_client(org) as client:
            for _ in range(2):
                await asyncio.to_thread(wait_until, lambda: is_free(org, name), what="the end of the previous stream")
                stream = client.managed_subscribe(subscription, limit=250, silence_timeout=SECONDS)
                assert [replay_id async for batch in stream for replay_id in batch.replay_ids] == events
        assert committed(org, name) is None

    async def test_busy_stopped_and_unknown_subscriptions_raise(self, org: LocalOrg, topic: str, name: str) -> None:
        publish(org, topic, 1)
        subscription = ManagedSubscription(name)
        async with (
            async_pubsub_client(org) as client,
            aclosing(client.managed_subscribe(subscription, silence_timeout=SECONDS)) as stream,
        ):
            await anext(stream)
            with pytest.raises(SubscriptionBusyError, match=name):
                await anext(client.managed_subscribe(subscription, silence_timeout=SECONDS))
            org.managed_subscription(name, topic, state="STOP")
            with pytest.raises(SubscriptionStoppedError, match=name):
                await anext(stream)
            unknown = client.managed_subscribe(ManagedSubscription("Nowhere"), silence_timeout=SECONDS)
            with pytest.raises(TopicNotFoundError, match="Nowhere"):
                await anext(unknown)
            with pytest.raises(ConfigurationError, match="limit=0"):
                client.managed_subscribe(subscription, limit=0, silence_timeout=SECONDS)
