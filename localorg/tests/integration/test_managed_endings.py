"""Endings of managed streams, slots of managed subscriptions, and commit faults."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import grpc
import pytest

from sfstream_localorg.managed.commits import COMMIT_ERRORS
from sfstream_localorg.pubsub import pubsub_api_pb2_grpc as pb_grpc
from tests.support.localorg import AdminError, LocalOrg, wait_until
from tests.support.managed_subscriber import ManagedSubscriber
from tests.support.network import Network
from tests.support.subscriber import error_code

BUSY = ("ALREADY_EXISTS", "managed.subscription.already.active")
LOSSES = pytest.mark.parametrize(
    ("fault", "is_stored"), [("managed_lose_commit", False), ("managed_lose_acknowledgement", True)]
)
RECORD = "/tooling/sobjects/ManagedEventSubscription"


def publish(org: LocalOrg, topic: str, count: int) -> list[bytes]:
    return org.publish(topic, [{"Number__c": n} for n in range(count)])


def ending(subscriber: ManagedSubscriber) -> tuple[str, str | None]:
    error: Any = subscriber.error()
    return error.code().name, error_code(error)


def streaming(org: LocalOrg, managed: str, *, count: int = 1) -> ManagedSubscriber:
    """Open a stream, wait for its first response, and return it."""
    subscriber = ManagedSubscriber(org).fetch(count, managed)
    subscriber.answer(subscriber.commit(b""))
    return subscriber


def state(org: LocalOrg, managed: str) -> str:
    return str(org.managed_subscriptions()[managed]["slot"])


def test_stop_and_deletion_end_open_streams(org: LocalOrg, topic: str, managed: str) -> None:
    subscriber = streaming(org, managed)
    org.managed_subscription(managed, topic, state="STOP")
    stopped = ("FAILED_PRECONDITION", "managed.subscription.config.stopped")
    assert ending(subscriber) == stopped
    assert ending(ManagedSubscriber(org).fetch(1, managed)) == stopped
    org.managed_subscription(managed, topic, state="RUN")
    subscriber = streaming(org, managed)
    org.rest("DELETE", f"{RECORD}/{org.managed_subscriptions()[managed]['id']}")
    assert ending(subscriber) == ("NOT_FOUND", "managed.subscription.config.deleted")
    assert ending(ManagedSubscriber(org).fetch(1, managed)) == (
        "NOT_FOUND",
        "managed.subscription.developer.name.not.found",
    )


def test_change_of_a_managed_subscription_is_visible_after_the_delay(org: LocalOrg, topic: str, managed: str) -> None:
    (replay_id,) = publish(org, topic, 1)
    subscriber = ManagedSubscriber(org).fetch(2, managed)
    subscriber.events(1)
    org.knobs(managed_visibility_seconds=600)
    assert org.managed_subscriptions()[managed]["visible"]
    org.managed_subscription(f"{managed}_2", topic)
    assert ending(ManagedSubscriber(org).fetch(1, f"{managed}_2"))[0] == "NOT_FOUND"
    org.managed_subscription(managed, topic, state="STOP")
    assert not org.managed_subscriptions()[managed]["visible"]
    assert org.managed_subscriptions()[managed]["metadata"]["state"] == "STOP"
    subscriber.committed(replay_id)
    assert org.managed_subscriptions()[managed]["committed"] == replay_id
    org.knobs(managed_visibility_seconds=1)
    assert ending(subscriber)[1] == "managed.subscription.config.stopped"
    assert org.managed_subscriptions()[managed]["committed"] is None
    streaming(org, f"{managed}_2").cancel()


def test_an_open_stream_ends_when_a_stop_becomes_visible(org: LocalOrg, topic: str, managed: str) -> None:
    org.knobs(managed_visibility_seconds=0.3)
    subscriber = streaming(org, managed)
    org.managed_subscription(managed, topic, state="STOP")
    assert ending(subscriber)[1] == "managed.subscription.config.stopped"


def test_managed_stream_without_a_commit_ends_after_managed_commit_seconds(
    org: LocalOrg, topic: str, managed: str
) -> None:
    org.knobs(managed_commit_seconds=0.3, keepalive_seconds=0.1)
    (replay_id,) = publish(org, topic, 1)
    error: Any = ManagedSubscriber(org).fetch(100, managed).error()
    assert error.code().name == "DEADLINE_EXCEEDED"
    text = "No CommitReplayRequests sent in the last 0.3 seconds. Closing managed subscription."
    assert error.details() == text
    org.knobs(managed_commit_seconds=6)
    with ManagedSubscriber(org).fetch(100, managed) as subscriber:
        subscriber.events(1)
        began = time.monotonic()
        while time.monotonic() < began + 7:
            subscriber.committed(replay_id)  # repeated commits of the same replay ID keep the stream open
            subscriber.next()


def test_managed_stream_ends_when_the_client_requests_no_further_events(
    org: LocalOrg, topic: str, managed: str
) -> None:
    org.knobs(client_idle_seconds=0.2)
    publish(org, topic, 1)
    subscriber = ManagedSubscriber(org).fetch(1, managed)
    assert [len(response.events) for response in subscriber.call] == [1]


def test_managed_subscription_allows_one_stream_at_a_time(org: LocalOrg, managed: str) -> None:
    org.knobs(managed_release_seconds=600)
    first = streaming(org, managed)
    assert state(org, managed) == "active"
    assert ending(ManagedSubscriber(org).fetch(1, managed)) == BUSY
    first.half_close()
    assert list(first.call) == []
    assert state(org, managed) == "held"
    assert ending(ManagedSubscriber(org).fetch(1, managed)) == BUSY
    org.knobs(managed_release_seconds=0)
    assert state(org, managed) == "free"
    streaming(org, managed).cancel()


def test_a_refused_stream_does_not_disturb_the_active_one(org: LocalOrg, topic: str, managed: str) -> None:
    with streaming(org, managed) as first:
        assert ending(ManagedSubscriber(org).fetch(1, managed)) == BUSY
        assert state(org, managed) == "active"
        ids = publish(org, topic, 1)
        assert [event.replay_id for event in first.events(1)] == ids


def test_the_slot_of_a_killed_client_is_freed(org: LocalOrg, managed: str) -> None:
    program = (
        "import sys, grpc, json\n"
        "from sfstream_localorg.pubsub import pubsub_api_pb2 as pb, pubsub_api_pb2_grpc as pb_grpc\n"
        "target, name, metadata = sys.argv[1], sys.argv[2], [tuple(one) for one in json.loads(sys.argv[3])]\n"
        "def requests():\n"
        "    yield pb.ManagedFetchRequest(developer_name=name, num_requested=1)\n"
        "    import time; time.sleep(600)\n"
        "stub = pb_grpc.PubSubStub(grpc.insecure_channel(target))\n"
        "for _ in stub.ManagedSubscribe(requests(), metadata=metadata): pass\n"
    )
    arguments = [sys.executable, "-c", program, org.grpc_target, managed, json.dumps(org.metadata())]
    with subprocess.Popen(arguments) as client:
        try:
            wait_until(lambda: state(org, managed) == "active")
        finally:
            os.kill(client.pid, signal.SIGKILL)
    wait_until(lambda: state(org, managed) == "free")


def test_slot_of_a_vanished_client_stays_occupied(org: LocalOrg, topic: str, managed: str) -> None:
    ids = publish(org, topic, 2)
    client = ManagedSubscriber(org).fetch(1, managed)
    client.events(1)
    org.fault("managed_half_open", developer_name=managed)
    assert state(org, managed) == "half_open"
    client.commit(ids[0], fetch=1)  # never arrives
    assert ending(ManagedSubscriber(org).fetch(1, managed)) == BUSY
    client.cancel()  # is not noticed either
    assert ending(ManagedSubscriber(org).fetch(1, managed)) == BUSY
    assert state(org, managed) == "half_open"
    assert org.managed_subscriptions()[managed]["committed"] is None
    org.knobs(managed_half_open_seconds=0.2)
    wait_until(lambda: state(org, managed) == "free")
    with ManagedSubscriber(org).fetch(2, managed) as subscriber:
        assert [event.replay_id for event in subscriber.events(2)] == ids


def test_cut_network_keeps_the_slot_occupied_and_loses_the_last_commit(org: LocalOrg, topic: str, managed: str) -> None:
    ids = publish(org, topic, 3)
    with Network(org.grpc_port) as network:
        channel = grpc.insecure_channel(network.target, [("grpc.use_local_subchannel_pool", 1)])
        with channel, ManagedSubscriber(org, stub=pb_grpc.PubSubStub(channel)).fetch(2, managed) as client:
            client.events(2)
            client.committed(ids[0])
            assert network.forget() == 1
            org.fault("managed_half_open", developer_name=managed)
            client.commit(ids[1])
        # The client has closed its connection, and the org did not notice.
        assert state(org, managed) == "half_open"
        assert ending(ManagedSubscriber(org).fetch(1, managed)) == BUSY
        assert org.managed_subscriptions()[managed]["committed"] == ids[0]
        org.knobs(managed_half_open_seconds=0.2)
        wait_until(lambda: state(org, managed) == "free")
        with ManagedSubscriber(org).fetch(2, managed) as subscriber:
            assert [event.replay_id for event in subscriber.events(2)] == ids[1:]


def test_stream_of_a_vanished_client_ends_after_managed_half_open_seconds(org: LocalOrg, managed: str) -> None:
    org.knobs(managed_half_open_seconds=0.2)
    client = streaming(org, managed)
    org.fault("managed_half_open", developer_name=managed)
    assert ending(client) == ("UNAVAILABLE", None)
    assert state(org, managed) == "free"


def test_only_an_open_stream_can_be_half_open(org: LocalOrg, managed: str) -> None:
    with pytest.raises(AdminError, match="no open stream"):
        org.fault("managed_half_open", developer_name=managed)


@pytest.mark.parametrize("kind", list(COMMIT_ERRORS))
def test_fault_managed_refuse_commit_refuses_the_requested_number_of_commits(
    org: LocalOrg, topic: str, managed: str, kind: str
) -> None:
    (replay_id,) = publish(org, topic, 1)
    org.fault("managed_refuse_commit", developer_name=managed, error=kind, times=2)
    with ManagedSubscriber(org).fetch(1, managed) as subscriber:
        subscriber.events(1)
        for _ in range(2):
            assert subscriber.answer(subscriber.commit(replay_id)).error.msg == COMMIT_ERRORS[kind]
            assert org.managed_subscriptions()[managed]["committed"] is None
        subscriber.committed(replay_id)
    assert org.managed_subscriptions()[managed]["committed"] == replay_id


@pytest.mark.parametrize(
    ("fault", "is_stored"), [("managed_lose_commit", False), ("managed_lose_acknowledgement", True)]
)
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, ("UNAVAILABLE", None)),
        ({"how": "error"}, ("INTERNAL", "service.unavailable")),
        ({"how": "error", "code": "", "status": "UNAVAILABLE"}, ("UNAVAILABLE", None)),
    ],
    ids=["reset", "error", "transport"],
)
def test_faults_lose_a_commit_or_its_acknowledgement_and_end_the_stream(
    org: LocalOrg, topic: str, managed: str, fault: str, is_stored: bool, how: dict[str, str], expected: object
) -> None:
    ids = publish(org, topic, 3)
    org.fault(fault, developer_name=managed, after=1, **how)
    subscriber = ManagedSubscriber(org).fetch(3, managed)
    subscriber.events(3)
    subscriber.committed(ids[0])
    subscriber.commit(ids[1])
    assert ending(subscriber) == expected
    assert org.managed_subscriptions()[managed]["committed"] == ids[1 if is_stored else 0]
    assert org.admin("GET", "/faults")["managed"] == []


@pytest.mark.parametrize(
    ("fault", "is_stored"), [("managed_lose_commit", False), ("managed_lose_acknowledgement", True)]
)
def test_faults_lose_a_commit_or_its_acknowledgement_and_the_stream_continues(
    org: LocalOrg, topic: str, managed: str, fault: str, is_stored: bool
) -> None:
    ids = publish(org, topic, 2)
    org.fault(fault, developer_name=managed, how="none")
    with ManagedSubscriber(org).fetch(2, managed) as subscriber:
        subscriber.events(2)
        lost = subscriber.commit(ids[0])
        wait_until(lambda: not org.admin("GET", "/faults")["managed"])
        assert org.managed_subscriptions()[managed]["committed"] == (ids[0] if is_stored else None)
        later = subscriber.commit(ids[1])
        answer = subscriber.next().commit_response.commit_request_id
        assert (answer, answer == lost) == (later, False)


def test_commit_faults_are_listed_validated_and_cleared(org: LocalOrg, managed: str) -> None:
    org.fault("managed_refuse_commit", error="older")
    (listed,) = org.admin("GET", "/faults")["managed"]
    assert (listed["name"], listed["error"], listed["times"]) == ("managed_refuse_commit", "older", 1)
    for wrong in (
        {"error": "nonsense"},
        {"times": 0},
        {"how": "end"},
        {"developer_name": "Nobody"},
    ):
        with pytest.raises(AdminError, match="400"):
            org.fault("managed_refuse_commit", **wrong)
    with pytest.raises(AdminError, match="how"):
        org.fault("managed_lose_commit", how="never")
    org.clear_faults()
    assert org.admin("GET", "/faults")["managed"] == []


@pytest.mark.parametrize("fault", ["drop_every", "fail_calls", "silence"])
def test_faults_of_all_streams_apply_to_managed_streams(org: LocalOrg, topic: str, managed: str, fault: str) -> None:
    publish(org, topic, 3)
    if fault == "silence":
        org.fault("silence", topic=topic)
        org.knobs(keepalive_seconds=0.1)
        with ManagedSubscriber(org, seconds=1).fetch(3, managed) as subscriber:
            assert ending(subscriber) == ("DEADLINE_EXCEEDED", None)
        return
    given = {"drop_every": {"every": 2, "topic": topic}, "fail_calls": {"rpc": "ManagedSubscribe"}}[fault]
    org.fault(fault, **given)
    assert ending(ManagedSubscriber(org).fetch(3, managed)) == ("INTERNAL", "service.unavailable")
