"""ManagedSubscribe requests: identification of the subscription, and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from tests.support.localorg import LocalOrg, wait_until
from tests.support.managed_subscriber import ManagedSubscriber
from tests.support.subscriber import error_code

COMMIT = pb.CommitReplayRequest(commit_request_id="1", replay_id=b"\0" * 10)


def refusal(subscriber: ManagedSubscriber) -> tuple[str, str | None]:
    error: Any = subscriber.error()
    return error.code().name, error_code(error)


@pytest.mark.parametrize("length", [15, 18])
def test_managed_subscription_is_named_by_an_id_of_15_or_18_characters(
    org: LocalOrg, topic: str, managed: str, length: int
) -> None:
    (replay_id,) = org.publish(topic, [{"Number__c": 1}])
    record_id = org.managed_subscriptions()[managed]["id"]
    with ManagedSubscriber(org).send(subscription_id=record_id[:length], num_requested=1) as subscriber:
        response = subscriber.next()
    assert [event.replay_id for event in response.events] == [replay_id]
    assert (response.latest_replay_id, response.pending_num_requested) == (replay_id, 0)
    assert response.rpc_id
    assert not response.HasField("commit_response")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("INVALID_ARGUMENT", "id.or.developer.name.empty")),
        (
            {"developer_name": "X", "subscription_id": "18x000000000001AAA"},
            ("INVALID_ARGUMENT", "id.or.developer.name.empty"),
        ),
        ({"subscription_id": "18x00"}, ("INVALID_ARGUMENT", "subscription.id.invalid")),
        ({"subscription_id": "00D000000000001"}, ("INVALID_ARGUMENT", "subscription.id.invalid")),
        ({"subscription_id": "18x00000000zzzz"}, ("NOT_FOUND", "subscription.id.not.found")),
        ({"developer_name": "Nobody"}, ("NOT_FOUND", "developer.name.not.found")),
    ],
    ids=["neither", "both", "malformed", "of another object", "unknown id", "unknown name"],
)
def test_request_that_identifies_no_managed_subscription_is_refused(
    org: LocalOrg, fields: dict[str, str], expected: tuple[str, str]
) -> None:
    status, code = refusal(ManagedSubscriber(org).send(num_requested=1, **fields))
    assert (status, code) == (expected[0], f"managed.subscription.{expected[1]}")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"num_requested": 1, "commit_replay_id_request": COMMIT}, "fetch.request.commit.request.restricted"),
        ({"num_requested": 1, "auth_refresh": "x"}, "fetch.request.auth.request.restricted"),
        ({"num_requested": 0}, "fetch.request.events.invalid"),
        ({"num_requested": -1}, "fetch.request.events.invalid"),
    ],
    ids=["commit", "auth refresh", "no events", "negative"],
)
def test_invalid_first_request_of_a_managed_stream_is_refused(
    org: LocalOrg, managed: str, fields: dict[str, Any], code: str
) -> None:
    refused = refusal(ManagedSubscriber(org).send(developer_name=managed, **fields))
    assert refused == ("INVALID_ARGUMENT", f"managed.subscription.{code}")
    assert org.managed_subscriptions()[managed]["slot"] == "free"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"num_requested": 0}, "fetch.request.events.invalid"),
        ({"num_requested": -1, "commit_replay_id_request": COMMIT}, "fetch.request.events.invalid"),
        ({"num_requested": 1, "developer_name": "Other"}, "fetch.request.invalid"),
        ({"num_requested": 1, "subscription_id": "18x00000000zzzz"}, "fetch.request.invalid"),
    ],
    ids=["no events", "negative", "another name", "another id"],
)
def test_invalid_later_request_ends_a_managed_stream(
    org: LocalOrg, managed: str, fields: dict[str, Any], code: str
) -> None:
    subscriber = ManagedSubscriber(org).fetch(1, managed).send(**fields)
    assert refusal(subscriber) == ("INVALID_ARGUMENT", f"managed.subscription.{code}")


def test_a_later_request_may_name_the_same_subscription(org: LocalOrg, topic: str, managed: str) -> None:
    ids = org.publish(topic, [{"Number__c": n} for n in range(2)])
    record_id = org.managed_subscriptions()[managed]["id"]
    with ManagedSubscriber(org).fetch(1, managed) as subscriber:
        subscriber.send(subscription_id=record_id[:15], num_requested=1)
        assert [event.replay_id for event in subscriber.events(2)] == ids


def test_managed_stream_has_at_most_100_outstanding_events(org: LocalOrg, topic: str, managed: str) -> None:
    org.publish_many(topic, 250, {"Number__c": "{n}"})
    with ManagedSubscriber(org).fetch(5_000, managed) as subscriber:
        responses = [subscriber.next()]
        while responses[-1].pending_num_requested:
            responses.append(subscriber.next())
    assert sum(len(response.events) for response in responses) == 100


def test_a_revoked_session_ends_the_stream_and_frees_the_slot(org: LocalOrg, managed: str) -> None:
    token = org.token()
    subscriber = ManagedSubscriber(org, token=token).fetch(1, managed)
    subscriber.commit(b"")
    subscriber.next()
    org.revoke(token)
    assert refusal(subscriber) == ("UNAUTHENTICATED", "service.auth.error")
    assert org.managed_subscriptions()[managed]["slot"] == "free"


def test_managed_subscribe_calls_are_in_the_request_log(org: LocalOrg, topic: str, managed: str) -> None:
    (replay_id,) = org.publish(topic, [{"Number__c": 1}])
    with ManagedSubscriber(org).fetch(1, managed) as subscriber:
        subscriber.events(1)
        subscriber.committed(replay_id)
        assert {"topic": topic, "events": 1} in org.streams()
        subscriber.half_close()
        assert list(subscriber.call) == []

    def ended() -> Any:
        entry = org.requests("grpc", "ManagedSubscribe")[-1]
        return entry if entry["outcome"] != "open" else None

    entry = wait_until(ended, what="the entry of the call that ended")
    assert entry["outcome"] == "OK"
    assert entry["detail"] == {"rpc_id": entry["detail"]["rpc_id"], "topic": topic} | {
        "developer_name": managed,
        "events": 1,
        "commits": 1,
    }
