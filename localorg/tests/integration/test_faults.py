"""Faults of the Pub/Sub API, and resuming of streams after them."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import grpc
import psutil
import pytest

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from sfstream_localorg.pubsub import pubsub_api_pb2_grpc as pb_grpc
from tests.support.localorg import AdminError, LocalOrg, wait_until
from tests.support.subscriber import Subscriber, error_code

CORRUPTED = "subscription.fetch.replayid.corrupted"


@pytest.fixture
def own_org(tmp_path: Path) -> Iterator[LocalOrg]:
    """Start an org whose clock the test may change."""
    with LocalOrg.running(tmp_path / "org") as org:
        org.define("Order__e", Number__c="int")
        yield org


def numbers(org: LocalOrg, topic: str, count: int) -> list[bytes]:
    return org.publish(topic, [{"Number__c": n} for n in range(count)])


@pytest.mark.parametrize(
    ("how", "expected"),
    [("error", ("INTERNAL", "service.unavailable")), ("reset", ("UNAVAILABLE", None)), ("end", None)],
    ids=["error", "reset", "end"],
)
def test_streams_end_after_every_n_events_and_can_resume(org: LocalOrg, topic: str, how: str, expected: object) -> None:
    ids = numbers(org, topic, 700)
    org.fault("drop_every", every=150, how=how, topic=topic)
    received: list[bytes] = []
    endings: list[object] = []
    while len(received) < 700:
        subscriber = Subscriber(org).fetch(100, topic, after=received[-1] if received else None)
        try:
            for response in subscriber.call:
                received += [event.replay_id for event in response.events]
                subscriber.fetch(max(1, len(response.events)))
                if len(received) >= 700:
                    break
            else:
                endings.append(None)
        except grpc.RpcError as error:
            endings.append((error.code().name, error_code(error)))
        subscriber.cancel()
    assert received == ids
    assert len(endings) >= 4
    assert endings == [expected] * len(endings)


def test_fault_drop_every_with_times_ends(org: LocalOrg, topic: str) -> None:
    ids = numbers(org, topic, 10)
    org.fault("drop_every", every=4, times=1, code="subscription.internal.error")
    subscriber = Subscriber(org).fetch(100, topic)
    assert error_code(subscriber.error()) == "subscription.internal.error"
    with Subscriber(org).fetch(10, topic) as again:
        assert [event.replay_id for event in again.events(10)] == ids


def test_fault_drop_now_ends_open_streams(org: LocalOrg, topic: str) -> None:
    subscriber = Subscriber(org).fetch(100, topic)
    wait_until(lambda: any(stream["topic"] == topic for stream in org.streams()))
    org.fault("drop_now", topic=topic, code="service.unavailable", status="UNAVAILABLE")
    error = subscriber.error()
    assert (error.code(), error_code(error)) == (grpc.StatusCode.UNAVAILABLE, "service.unavailable")


def test_transport_errors_have_no_trailers(org: LocalOrg, topic: str) -> None:
    message = "Stream removed (RST_STREAM (Received RST_STREAM with error code 0))"
    org.fault("fail_calls", rpc="Subscribe", code="", status="INTERNAL", message=message)
    error = Subscriber(org).fetch(1, topic).error()
    assert (error.code(), error.details()) == (grpc.StatusCode.INTERNAL, message)
    assert not error.trailing_metadata()


def test_reset_connections_leak_no_file_descriptor(org: LocalOrg, topic: str) -> None:
    def reset() -> None:
        subscriber = Subscriber(org).fetch(100, topic)
        wait_until(lambda: any(stream["topic"] == topic for stream in org.streams()))
        org.fault("drop_now", topic=topic, how="reset")
        assert subscriber.error().code() == grpc.StatusCode.UNAVAILABLE

    process = psutil.Process(org.pid)
    reset()
    before = process.num_fds()
    for _ in range(3):
        reset()
    wait_until(lambda: process.num_fds() <= before + 5, what="as many file descriptors as before")


def test_reset_closes_the_connection_of_tls_clients_too(org: LocalOrg, topic: str) -> None:
    credentials = grpc.ssl_channel_credentials(Path(org.ca_file).read_bytes())
    with grpc.secure_channel(f"127.0.0.1:{org.grpc_tls_port}", credentials) as channel:
        stub = pb_grpc.PubSubStub(channel)
        org.fault("fail_calls", rpc="Subscribe", how="reset")
        error = Subscriber(org, stub=stub).fetch(1, topic).error()
        assert error.code() == grpc.StatusCode.UNAVAILABLE
        ids = numbers(org, topic, 1)
        with Subscriber(org, stub=stub).fetch(1, topic) as again:
            assert [event.replay_id for event in again.events(1)] == ids


def test_fault_fail_calls_fails_the_next_calls_of_an_rpc(org: LocalOrg, topic: str) -> None:
    org.fault("fail_calls", rpc="GetTopic", times=2, code="topic.api.unavailable", status="UNAVAILABLE")
    stub, metadata, request = org.stub(), org.metadata(), pb.TopicRequest(topic_name=topic)
    for _ in range(2):
        with pytest.raises(grpc.RpcError) as caught:
            stub.GetTopic(request, metadata=metadata, timeout=60)
        assert error_code(caught.value) == "topic.api.unavailable"
    assert stub.GetTopic(request, metadata=metadata, timeout=60).topic_name == topic


def test_fault_answer_schema_returns_an_error_or_an_invalid_schema(org: LocalOrg, topic: str) -> None:
    stub, metadata = org.stub(), org.metadata()
    schema_id = stub.GetTopic(pb.TopicRequest(topic_name=topic), metadata=metadata, timeout=60).schema_id
    request = pb.SchemaRequest(schema_id=schema_id)
    org.fault("answer_schema", schema_id="another", text="")
    org.fault("answer_schema", schema_id=schema_id, times=1, code="", status="NOT_FOUND")
    org.fault("answer_schema", schema_id=schema_id, text="<html>")
    with pytest.raises(grpc.RpcError) as caught:
        stub.GetSchema(request, metadata=metadata, timeout=60)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    for _ in range(3):
        assert stub.GetSchema(request, metadata=metadata, timeout=60).schema_json == "<html>"
    org.clear_faults()
    assert json.loads(stub.GetSchema(request, metadata=metadata, timeout=60).schema_json)["uuid"] == schema_id


def test_fault_omit_schema_id_delivers_events_without_schema_id(org: LocalOrg, topic: str) -> None:
    number = "WithNumber__e"
    org.define(number, Number__c="int")
    named = org.channel("Unnamed__chn", [number, topic.removeprefix("/event/")])["name"]
    org.publish(topic, [{"Number__c": 1}])
    org.publish(f"/event/{number}", [{"Number__c": 2}])
    recorded = [event["schema_id"] for event in org.record(named)]
    org.fault("omit_schema_id", topic=named, schema_id=recorded[0])
    for subscribed, expected in ((named, ["", recorded[1]]), (topic, recorded[:1])):
        with Subscriber(org).fetch(100, subscribed) as subscriber:
            assert [event.event.schema_id for event in subscriber.events(len(expected))] == expected


@pytest.mark.parametrize("everybody", [True, False])
def test_revoked_token_ends_its_streams_and_fails_its_calls(org: LocalOrg, topic: str, everybody: bool) -> None:
    token, other = org.token(), org.token()
    subscriber = Subscriber(org, token=token).fetch(100, topic)
    wait_until(lambda: any(stream["topic"] == topic for stream in org.streams()))
    assert org.revoke(None if everybody else token) >= 1
    error = subscriber.error()
    assert (error.code(), error_code(error)) == (grpc.StatusCode.UNAUTHENTICATED, "service.auth.error")
    with pytest.raises(grpc.RpcError) as caught:
        org.stub().GetTopic(pb.TopicRequest(topic_name=topic), metadata=org.metadata(token))
    assert error_code(caught.value) == "service.auth.error"
    if not everybody:
        assert org.stub().GetTopic(pb.TopicRequest(topic_name=topic), metadata=org.metadata(other))


def test_client_that_revokes_its_own_token_loses_its_stream(org: LocalOrg, topic: str) -> None:
    token = org.token()
    subscriber = Subscriber(org, token=token).fetch(100, topic)
    wait_until(lambda: any(stream["topic"] == topic for stream in org.streams()))
    body = urlencode({"token": token}).encode()
    urllib.request.urlopen(f"{org.login_url}/services/oauth2/revoke", body, timeout=60).close()
    assert error_code(subscriber.error()) == "service.auth.error"


def test_exhausted_delivery_quota_ends_streams(org: LocalOrg, topic: str) -> None:
    ids = numbers(org, topic, 20)
    org.knobs(delivery_quota=org.admin("GET", "/org")["delivered"] + 15)
    subscriber = Subscriber(org).fetch(100, topic)
    assert [event.replay_id for event in subscriber.next().events] == ids[:15]
    error = subscriber.error()
    assert (error.code(), error_code(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "subscription.limit.exceeded")
    assert error_code(Subscriber(org).fetch(100, topic).error()) == "subscription.limit.exceeded"


def test_silent_stream_sends_nothing_stays_open_and_loses_no_event(org: LocalOrg, topic: str) -> None:
    org.knobs(keepalive_seconds=0.05)
    org.fault("silence", topic=topic)
    with Subscriber(org).fetch(100, topic) as subscriber:
        wait_until(lambda: any(stream["topic"] == topic for stream in org.streams()))
        ids = numbers(org, topic, 5)
        with Subscriber(org, seconds=0.5).fetch(100, topic) as impatient:
            assert impatient.error().code() == grpc.StatusCode.DEADLINE_EXCEEDED
        org.clear_faults()
        assert [event.replay_id for event in subscriber.events(5)] == ids


def test_fault_expire_expires_one_replay_id(org: LocalOrg, topic: str) -> None:
    ids = numbers(org, topic, 3)
    org.fault("expire", topic=topic, replay_id=ids[1].hex())
    assert error_code(Subscriber(org).fetch(1, topic, after=ids[1]).error()) == CORRUPTED
    with Subscriber(org).fetch(2, topic, after=ids[0]) as subscriber:
        assert [event.replay_id for event in subscriber.events(2)] == ids[1:]


def test_fault_expire_before_expires_all_events_before_a_replay_id(org: LocalOrg, topic: str) -> None:
    ids = numbers(org, topic, 5)
    org.fault("expire_before", topic=topic, replay_id=ids[3].hex())
    for expired in ids[:3]:
        assert error_code(Subscriber(org).fetch(1, topic, after=expired).error()) == CORRUPTED
    with Subscriber(org).fetch(100, topic) as subscriber:
        assert [event.replay_id for event in subscriber.events(2)] == ids[3:]
    assert [event["expired"] for event in org.record(topic)] == [True] * 3 + [False] * 2


def test_fault_reset_stream_invalidates_earlier_replay_ids(org: LocalOrg, topic: str) -> None:
    ids = numbers(org, topic, 3)
    open_before = Subscriber(org).fetch(100, topic, after=ids[-1])
    wait_until(lambda: any(stream["topic"] == topic for stream in org.streams()))
    org.fault("reset_stream", topic=topic)
    assert error_code(open_before.error()) == "service.unavailable"
    assert error_code(Subscriber(org).fetch(1, topic, after=ids[-1]).error()) == CORRUPTED
    later = numbers(org, topic, 2)
    with Subscriber(org).fetch(100, topic) as subscriber:
        assert [event.replay_id for event in subscriber.events(2)] == later


def test_events_expire_after_72_hours_of_the_bus_clock(own_org: LocalOrg) -> None:
    topic = "/event/Order__e"
    old = numbers(own_org, topic, 3)
    own_org.knobs(clock_offset_seconds=71 * 3600)
    with Subscriber(own_org).fetch(1, topic, after=old[0]) as subscriber:
        assert [event.replay_id for event in subscriber.events(1)] == old[1:2]
    recent = numbers(own_org, topic, 2)
    own_org.knobs(clock_offset_seconds=73 * 3600)
    assert error_code(Subscriber(own_org).fetch(1, topic, after=old[-1]).error()) == CORRUPTED
    with Subscriber(own_org).fetch(100, topic) as subscriber:
        assert [event.replay_id for event in subscriber.events(2)] == recent
    own_org.restart()
    assert error_code(Subscriber(own_org).fetch(1, topic, after=old[-1]).error()) == CORRUPTED
    assert [event["expired"] for event in own_org.record(topic)] == [True] * 3 + [False] * 2


def test_position_of_an_empty_response_outlives_the_last_event(own_org: LocalOrg) -> None:
    topic = "/event/Order__e"
    (old,) = numbers(own_org, topic, 1)
    own_org.knobs(clock_offset_seconds=71 * 3600, keepalive_seconds=0.1)
    with Subscriber(own_org).fetch(100, topic, after=old) as subscriber:
        confirmed = subscriber.next().latest_replay_id
    own_org.knobs(clock_offset_seconds=(71 + 71) * 3600)
    assert error_code(Subscriber(own_org).fetch(1, topic, after=old).error()) == CORRUPTED
    later = numbers(own_org, topic, 1)
    with Subscriber(own_org).fetch(100, topic, after=confirmed) as subscriber:
        assert [event.replay_id for event in subscriber.events(1)] == later


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/faults/nonsense", {}),
        ("/faults/drop_every", {}),
        ("/faults/drop_every", {"every": 0}),
        ("/faults/drop_every", {"every": 5, "how": "explode"}),
        ("/faults/drop_every", {"every": 5, "topic": "/event/Nowhere__e"}),
        ("/faults/fail_calls", {"rpc": "Nonsense"}),
        ("/faults/fail_calls", {"rpc": "Subscribe", "status": "NONSENSE"}),
        ("/faults/answer_schema", {"text": "{}", "times": 0}),
        ("/faults/omit_schema_id", {"topic": "/event/Nowhere__e"}),
        ("/faults/expire", {"topic": "/data/ChangeEvents", "replay_id": "00"}),
    ],
)
def test_invalid_faults_are_refused(org: LocalOrg, path: str, body: dict[str, object]) -> None:
    before = org.admin("GET", "/faults")
    with pytest.raises(AdminError, match="400"):
        org.admin("POST", path, body)
    assert org.admin("GET", "/faults") == before


@pytest.mark.parametrize(
    "changes",
    [{"nonsense": 1}, {"keepalive_seconds": "soon"}, {"batch_events": 0}, {"client_idle_end": "x", "batch_events": 5}],
)
def test_invalid_knobs_are_refused(org: LocalOrg, changes: dict[str, object]) -> None:
    before = json.dumps(org.admin("GET", "/knobs"))
    with pytest.raises(AdminError, match="400"):
        org.knobs(**changes)
    assert json.dumps(org.admin("GET", "/knobs")) == before
