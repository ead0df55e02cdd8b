"""The blocking Pub/Sub client against a real server: topics, publishing, its reading ahead, faults."""

from __future__ import annotations

import itertools
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from airflow_provider_sfstream.clients import subscription
from airflow_provider_sfstream.clients.publishing import OutgoingEvent
from airflow_provider_sfstream.clients.pubsub import PubSubClient
from airflow_provider_sfstream.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    InvalidTopicError,
    PublishError,
    SalesforceStreamError,
    SchemaError,
    ServiceUnavailableError,
    SessionExpiredError,
    ThrottledError,
    TopicNotFoundError,
)
from airflow_provider_sfstream.protocol.events import EventBatch, StartFrom
from airflow_provider_sfstream.protocol.schemas import record_name
from tests.support.clients import pubsub_client, token_provider
from tests.support.localorg import LocalOrg, wait_until


@pytest.fixture
def client(org: LocalOrg) -> Iterator[PubSubClient]:
    with pubsub_client(org) as client:
        yield client


def read(
    client: PubSubClient, topic: str, start: bytes | StartFrom = StartFrom.EARLIEST, *, count: int
) -> list[EventBatch]:
    """Return the batches that hold the first ``count`` events after ``start``."""
    batches: list[EventBatch] = []
    with closing(client.subscribe(topic, start, limit=count, idle_timeout=20)) as stream:  # type: ignore[type-var]
        for batch in stream:
            assert batch is not None, "events are there, but do not come"
            batches.append(batch)
    return batches


def replay_ids(batches: list[EventBatch]) -> list[bytes]:
    return [replay_id for batch in batches for replay_id in batch.replay_ids]


def resumed(client: PubSubClient, topic: str, got: list[bytes], *, count: int) -> list[bytes]:
    """Return the replay IDs of ``count`` events, those not in ``got`` read as a drain does: through passing faults."""
    got = list(got)
    deadline = time.monotonic() + 20
    while len(got) < count:
        start = got[-1] if got else StartFrom.EARLIEST
        try:
            for batch in client.subscribe(topic, start, limit=count - len(got), idle_timeout=20):
                assert batch is not None, "events are there, but do not come"
                got += batch.replay_ids
        except ServiceUnavailableError:  # a connection that was reset may take the next call with it
            assert time.monotonic() < deadline
    return got


class TestUnary:
    def test_a_topic(self, client: PubSubClient, topic: str) -> None:
        info = client.get_topic(topic)
        assert (info.name, info.can_publish, info.can_subscribe) == (topic, True, True)
        assert record_name(client.get_schema(info.schema_id)) == topic.removeprefix("/event/")

    def test_an_unknown_topic(self, client: PubSubClient) -> None:
        with pytest.raises(TopicNotFoundError, match="/event/Nowhere__e"):
            client.get_topic("/event/Nowhere__e")

    @pytest.mark.parametrize("name", ["Order__e", "/event/", "/event/../x", "/topic/Push", "/u/Generic"])
    def test_a_name_that_is_no_topic_of_this_api(self, org: LocalOrg, client: PubSubClient, name: str) -> None:
        before = len(org.requests())
        for call in (lambda: client.get_topic(name), lambda: client.subscribe(name, b"1", idle_timeout=1)):
            with pytest.raises(InvalidTopicError):
                call()
        assert len(org.requests()) == before, "nothing was contacted"

    def test_a_revoked_token_is_renewed_within_the_call(self, org: LocalOrg, client: PubSubClient, topic: str) -> None:
        client.get_topic(topic)
        org.revoke()
        assert client.get_topic(topic).name == topic

    @pytest.mark.parametrize(
        ("fault", "expected"),
        [
            ({"code": "service.unavailable", "status": "INTERNAL"}, ServiceUnavailableError),
            ({"code": "topic.meta.permission", "status": "PERMISSION_DENIED"}, AccessDeniedError),
            ({"code": "service.protection.triggered", "status": "RESOURCE_EXHAUSTED"}, ThrottledError),
            ({"code": "", "status": "UNAVAILABLE", "message": "io exception"}, ServiceUnavailableError),
            ({"how": "reset"}, ServiceUnavailableError),
        ],
    )
    def test_faults_become_errors(
        self, org: LocalOrg, client: PubSubClient, topic: str, fault: dict[str, str], expected: type[Exception]
    ) -> None:
        org.fault("fail_calls", rpc="GetTopic", **fault)
        with pytest.raises(expected) as caught:
            client.get_topic(topic)
        assert type(caught.value) is expected
        assert topic in str(caught.value)

        def works_again() -> bool:
            try:
                return client.get_topic(topic).name == topic
            except ServiceUnavailableError:  # the connection that was reset may take this call with it
                return False

        wait_until(works_again, what="the next call")


class TestWayThere:
    def test_tls_with_the_orgs_authority(self, org: LocalOrg, topic: str) -> None:
        with PubSubClient(token_provider(org), endpoint=f"localhost:{org.grpc_tls_port}", tls_ca=org.ca_file) as client:
            assert client.get_topic(topic).name == topic

    def test_a_wrong_authority_is_not_retried(self, org: LocalOrg, topic: str, other_authority: str) -> None:
        for options in ({}, {"tls_ca": other_authority}):
            endpoint = f"localhost:{org.grpc_tls_port}"
            with (
                PubSubClient(token_provider(org), endpoint=endpoint, **options) as client,
                pytest.raises(ConfigurationError, match="tls_ca"),
            ):
                client.get_topic(topic)

    def test_tls_to_a_plaintext_port(self, org: LocalOrg, topic: str) -> None:
        endpoint = f"localhost:{org.grpc_port}"
        with (
            PubSubClient(token_provider(org), endpoint=endpoint, tls_ca=org.ca_file) as client,
            pytest.raises(ConfigurationError, match="speaks TLS"),
        ):
            client.get_topic(topic)

    def test_another_service(self, org: LocalOrg, topic: str) -> None:
        with (
            PubSubClient(token_provider(org), endpoint=f"http://localhost:{org.http_port}") as client,
            pytest.raises(ConfigurationError, match="does not speak the Pub/Sub API"),
        ):
            client.get_topic(topic)

    def test_nobody_there(self, org: LocalOrg, topic: str) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
            with (
                PubSubClient(token_provider(org), endpoint=endpoint) as client,
                pytest.raises(ServiceUnavailableError, match="pubsub_endpoint"),
            ):
                client.get_topic(topic)

    def test_plaintext_to_another_machine_is_refused_before_logging_in(self, org: LocalOrg) -> None:
        before = len(org.requests())
        with pytest.raises(ConfigurationError, match="allow_insecure"):
            PubSubClient(token_provider(org), endpoint="http://192.0.2.1:7443")
        assert len(org.requests()) == before


class TestPublish:
    def test_results_come_in_order_with_their_keys(self, org: LocalOrg, client: PubSubClient, topic: str) -> None:
        events = client.encode(topic, [{"Amount__c": float(number)} for number in range(450)])
        before = len(org.requests("grpc", "Publish"))
        results = client.publish(topic, events)
        assert [result.correlation_key for result in results] == [event.correlation_key for event in events]
        record = org.record(topic)
        assert [result.replay_id for result in results] == [event["replay_id"] for event in record]
        assert [event["fields"]["Amount__c"] for event in record] == [float(number) for number in range(450)]
        assert len(org.requests("grpc", "Publish")) == before + 3, "450 events are three requests of at most 200"

    def test_many_bytes_are_several_requests(self, org: LocalOrg, client: PubSubClient, topic: str) -> None:
        events = client.encode(topic, [{"Note__c": "x" * 900_000}] * 7)
        before = len(org.requests("grpc", "Publish"))
        assert all(result.error is None for result in client.publish(topic, events))
        assert len(org.requests("grpc", "Publish")) == before + 3

    def test_an_event_over_1_mb_stops_all_before_anything_is_sent(
        self, org: LocalOrg, client: PubSubClient, topic: str
    ) -> None:
        schema_id = client.get_topic(topic).schema_id
        with pytest.raises(PublishError, match="the first at index 1"):
            client.publish(topic, [OutgoingEvent(b"x", schema_id), OutgoingEvent(bytes(1_100_000), schema_id)])
        assert org.record(topic) == []

    def test_a_refused_event_does_not_keep_the_others_back(
        self, org: LocalOrg, client: PubSubClient, topic: str
    ) -> None:
        good, other = client.encode(topic, [{"Amount__c": 1.0}, {"Amount__c": 2.0}])
        bad = OutgoingEvent(b"\xff\xff\xff", good.schema_id, "the bad one")
        first, second, third = client.publish(topic, [good, bad, other])
        assert first.error is third.error is None
        assert isinstance(second.error, PublishError)
        assert (second.correlation_key, second.replay_id) == ("the bad one", None)
        assert [event["fields"]["Amount__c"] for event in org.record(topic)] == [1.0, 2.0]

    def test_a_first_request_that_fails_raises(self, org: LocalOrg, client: PubSubClient, topic: str) -> None:
        events = client.encode(topic, [{"Amount__c": 1.0}])
        org.fault("fail_calls", rpc="Publish", code="topic.meta.permission", status="PERMISSION_DENIED")
        with pytest.raises(AccessDeniedError):
            client.publish(topic, events)
        assert org.record(topic) == []

    def test_a_later_request_that_fails_is_in_the_results(
        self, org: LocalOrg, client: PubSubClient, topic: str
    ) -> None:
        # The hourly allocation ends within the second request.
        events = client.encode(topic, [{"Amount__c": float(number)} for number in range(500)])
        org.knobs(publish_quota=org.admin("GET", "/org")["published"] + 200)
        results = client.publish(topic, events)
        assert [result.error is None for result in results] == [True] * 200 + [False] * 300
        assert all(isinstance(result.error, SalesforceStreamError) for result in results[200:])
        assert len(org.record(topic)) == 200

    def test_values_are_checked_against_the_schema(self, org: LocalOrg, client: PubSubClient, topic: str) -> None:
        with pytest.raises(SchemaError, match="no field Amonut__c"):
            client.encode(topic, [{"Amonut__c": 1.0}])
        with pytest.raises(SchemaError, match=r"Amount__c of a Order\d+__e is not of its type") as caught:
            client.encode(topic, [{"Amount__c": "very private"}])
        assert "very private" not in str(caught.value)
        with pytest.raises(PublishError, match="cannot be published to"):
            client.encode("/data/ChangeEvents", [{}])


class TestSubscribe:
    def test_silence_yields_none_each_time_anew(self, client: PubSubClient, topic: str) -> None:
        with closing(client.subscribe(topic, StartFrom.EARLIEST, idle_timeout=0.05)) as stream:  # type: ignore[type-var]
            assert list(itertools.islice(stream, 4)) == [None] * 4

    def test_a_slow_consumer_bounds_what_is_fetched_and_loses_nothing(
        self, org: LocalOrg, client: PubSubClient, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(subscription, "MOST_EVENTS_WAITING", 300)
        org.publish_many(topic, 3_000, {"Amount__c": "{n}"})
        before = org.admin("GET", "/org")["delivered"]

        def delivered() -> int:
            return int(org.admin("GET", "/org")["delivered"]) - before

        stream = client.subscribe(topic, StartFrom.EARLIEST, limit=3_000, idle_timeout=20)
        with closing(stream):  # type: ignore[type-var]
            got = [next(stream)]
            # At most: 100 with the consumer, under 300 waiting, 100 on the way. Unbounded, all would be here at once.
            wait_until(lambda: delivered() >= 300, what="fetching ahead")
            for _ in range(30):
                assert delivered() <= 100 + 300 + 100
            got += stream
        batches = [batch for batch in got if batch is not None]
        assert replay_ids(batches) == [event["replay_id"] for event in org.record(topic)]

    def test_closing_ends_the_call_and_its_thread(self, org: LocalOrg, client: PubSubClient, topic: str) -> None:
        stream = client.subscribe(topic, StartFrom.EARLIEST, idle_timeout=0.05)
        assert next(stream) is None

        def is_open() -> bool:
            return topic in [open_stream["topic"] for open_stream in org.streams()]

        assert is_open()
        stream.close()  # type: ignore[attr-defined]
        wait_until(lambda: not is_open(), what="the end of the call")
        assert not [thread for thread in threading.enumerate() if thread.name == f"sfstream-subscribe {topic}"]

    def test_an_idle_timeout_of_nothing_is_refused_at_once(
        self, org: LocalOrg, client: PubSubClient, topic: str
    ) -> None:
        before = len(org.requests())
        with pytest.raises(ConfigurationError, match=r"idle_timeout=0 .*Nothing was read"):
            client.subscribe(topic, StartFrom.EARLIEST, idle_timeout=0)
        assert len(org.requests()) == before

    @pytest.mark.parametrize("end", ["ok", "reset"])
    def test_a_stream_closed_for_idleness_can_be_resumed(
        self, org: LocalOrg, client: PubSubClient, topic: str, end: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The consumer is so slow that nothing is asked for, and Salesforce's 60 seconds (here 0.3) pass."""
        monkeypatch.setattr(subscription, "MOST_EVENTS_WAITING", 100)
        org.knobs(client_idle_seconds=0.3, client_idle_end=end)
        org.publish_many(topic, 1_000, {"Amount__c": "{n}"})
        got: list[bytes] = []
        stream = client.subscribe(topic, StartFrom.EARLIEST, idle_timeout=20)
        first = next(stream)
        assert first is not None
        got += first.replay_ids
        wait_until(lambda: topic not in [s["topic"] for s in org.streams()], what="the server's closing")
        with pytest.raises(ServiceUnavailableError, match="resume"):  # noqa: PT012 - what had arrived comes first
            for batch in stream:
                assert batch is not None
                got += batch.replay_ids
        assert resumed(client, topic, got, count=1_000) == [event["replay_id"] for event in org.record(topic)]


def test_no_secret_in_logs_reprs_or_errors(org: LocalOrg, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = token_provider(org)
    shown = ""
    with pubsub_client(org, provider=tokens) as client:
        seen = [tokens.token().value]
        org.publish_many(topic, 10, {"Amount__c": "{n}"})
        read(client, topic, count=10)
        org.fault("fail_calls", rpc="GetTopic", code="", status="INTERNAL", message=f"it was {seen[0]} that failed")
        with pytest.raises(ServiceUnavailableError) as caught:
            client.get_topic(topic)
        assert "***" in str(caught.value)
        org.revoke()
        with pytest.raises(SessionExpiredError) as expired:
            next(client.subscribe(topic, StartFrom.EARLIEST, idle_timeout=20))
        client.renew_session()
        seen.append(tokens.token().value)
        shown += repr(client.__dict__) + repr(tokens.__dict__)
        for error in (caught.value, expired.value):
            shown += f"{error!r} {error.__dict__} {error.__cause__!r}"
    for secret in (*seen, org.client_secret):
        assert secret not in shown + caplog.text
