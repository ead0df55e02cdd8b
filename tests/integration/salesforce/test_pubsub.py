"""Blocking Pub/Sub client against a real server: topics and publishing."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from airflow_provider_sfstream.exceptions import (
    AccessDeniedError,
    InvalidTopicError,
    PublishError,
    SalesforceStreamError,
    SchemaError,
    ServiceUnavailableError,
    ThrottledError,
    TopicNotFoundError,
)
from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient
from airflow_provider_sfstream.salesforce.pubsub.publishing import OutgoingEvent
from airflow_provider_sfstream.salesforce.schemas import record_name
from tests.support.clients import pubsub_client, token_provider
from tests.support.localorg import LocalOrg, wait_until


@pytest.fixture
def client(org: LocalOrg) -> Iterator[PubSubClient]:
    with pubsub_client(org) as client:
        yield client


class TestUnary:
    def test_get_topic_returns_permissions_and_schema(self, client: PubSubClient, topic: str) -> None:
        info = client.get_topic(topic)
        assert (info.topic_name, info.can_publish, info.can_subscribe) == (topic, True, True)
        assert record_name(client.schema(info.schema_id)) == topic.removeprefix("/event/")

    def test_get_topic_of_an_unknown_topic_raises(self, client: PubSubClient) -> None:
        with pytest.raises(TopicNotFoundError, match="/event/Nowhere__e"):
            client.get_topic("/event/Nowhere__e")

    @pytest.mark.parametrize("name", ["Order__e", "/event/", "/event/../x", "/topic/Push", "/u/Generic"])
    def test_invalid_topic_name_is_refused_before_any_request(
        self, org: LocalOrg, client: PubSubClient, name: str
    ) -> None:
        before = len(org.requests())
        for call in (lambda: client.get_topic(name), lambda: client.subscribe(name, b"1", idle_timeout=1)):
            with pytest.raises(InvalidTopicError):
                call()
        assert len(org.requests()) == before, "no request was sent"

    def test_a_revoked_token_is_renewed_within_the_call(self, org: LocalOrg, client: PubSubClient, topic: str) -> None:
        client.get_topic(topic)
        org.revoke()
        assert client.get_topic(topic).topic_name == topic

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
    def test_failed_unary_calls_raise_their_error_class(
        self, org: LocalOrg, client: PubSubClient, topic: str, fault: dict[str, str], expected: type[Exception]
    ) -> None:
        org.fault("fail_calls", rpc="GetTopic", **fault)
        with pytest.raises(expected) as caught:
            client.get_topic(topic)
        assert type(caught.value) is expected
        assert topic in str(caught.value)

        def works_again() -> bool:
            try:
                return client.get_topic(topic).topic_name == topic
            except ServiceUnavailableError:  # this call may use the connection that was reset
                return False

        wait_until(works_again, what="the next call")


class TestPublish:
    def test_publish_results_have_the_order_and_keys_of_the_events(
        self, org: LocalOrg, client: PubSubClient, topic: str
    ) -> None:
        events = client.encode(topic, [{"Amount__c": float(number)} for number in range(450)])
        before = len(org.requests("grpc", "Publish"))
        results = client.publish(topic, events)
        assert [result.correlation_key for result in results] == [event.correlation_key for event in events]
        record = org.record(topic)
        assert [result.replay_id for result in results] == [event["replay_id"] for event in record]
        assert [event["fields"]["Amount__c"] for event in record] == [float(number) for number in range(450)]
        assert len(org.requests("grpc", "Publish")) == before + 3, "450 events are three requests of at most 200"

    def test_large_events_are_published_in_several_requests(
        self, org: LocalOrg, client: PubSubClient, topic: str
    ) -> None:
        events = client.encode(topic, [{"Note__c": "x" * 900_000}] * 7)
        before = len(org.requests("grpc", "Publish"))
        assert all(result.error is None for result in client.publish(topic, events))
        assert len(org.requests("grpc", "Publish")) == before + 3

    def test_event_over_1_mb_is_refused_before_any_event_is_sent(
        self, org: LocalOrg, client: PubSubClient, topic: str
    ) -> None:
        schema_id = client.get_topic(topic).schema_id
        with pytest.raises(PublishError, match="the first at index 1"):
            client.publish(topic, [OutgoingEvent(b"x", schema_id), OutgoingEvent(bytes(1_100_000), schema_id)])
        assert org.record(topic) == []

    def test_refused_event_does_not_stop_the_other_events(
        self, org: LocalOrg, client: PubSubClient, topic: str
    ) -> None:
        good, other = client.encode(topic, [{"Amount__c": 1.0}, {"Amount__c": 2.0}])
        bad = OutgoingEvent(b"\xff\xff\xff", good.schema_id, "the bad one")
        first, second, third = client.publish(topic, [good, bad, other])
        assert first.error is third.error is None
        assert isinstance(second.error, PublishError)
        assert (second.correlation_key, second.replay_id) == ("the bad one", None)
        assert [event["fields"]["Amount__c"] for event in org.record(topic)] == [1.0, 2.0]

    def test_failure_of_the_first_publish_request_raises(self, org: LocalOrg, client: PubSubClient, topic: str) -> None:
        events = client.encode(topic, [{"Amount__c": 1.0}])
        org.fault("fail_calls", rpc="Publish", code="topic.meta.permission", status="PERMISSION_DENIED")
        with pytest.raises(AccessDeniedError):
            client.publish(topic, events)
        assert org.record(topic) == []

    def test_failure_of_a_later_publish_request_is_in_the_results(
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
        with pytest.raises(
            SchemaError, match=r"^Order\d+__e: a value is missing or of the wrong type: Amount__c"
        ) as caught:
            client.encode(topic, [{"Amount__c": "very private"}])
        assert "very private" not in str(caught.value)
        with pytest.raises(PublishError, match="cannot publish to the topic"):
            client.encode("/data/ChangeEvents", [{}])


def test_no_secret_in_logs_or_errors(org: LocalOrg, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = token_provider(org)
    with pubsub_client(org, provider=tokens) as client:
        secret = tokens.token().value
        org.fault("fail_calls", rpc="GetTopic", code="", status="INTERNAL", message=f"it was {secret} that failed")
        with pytest.raises(ServiceUnavailableError, match=r"\*\*\*") as caught:
            client.get_topic(topic)
    error = caught.value
    for each in (secret, org.client_secret):
        assert each not in f"{error!r} {error} {error.__dict__} {error.__cause__!r} {caplog.text}"
