"""Subscribe calls: start positions, flow control, empty responses and endings."""

from __future__ import annotations

from itertools import pairwise

import grpc
import pytest

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from sfstream_localorg.pubsub import pubsub_api_pb2_grpc as pb_grpc
from tests.support.localorg import LocalOrg, wait_until
from tests.support.subscriber import Subscriber, error_code


def numbers(org: LocalOrg, topic: str, count: int) -> list[bytes]:
    return org.publish(topic, [{"Number__c": n} for n in range(count)])


def test_earliest_delivers_the_orgs_whole_record_in_order(org: LocalOrg, topic: str) -> None:
    org.publish_many(topic, 2_345, {"Number__c": "{n}"})
    with Subscriber(org).fetch(100, topic) as subscriber:
        received = subscriber.events(2_345)
    assert [(e.replay_id, e.event.id, e.event.schema_id, e.event.payload) for e in received] == [
        (e["replay_id"], e["event_id"], e["schema_id"], e["payload"]) for e in org.record(topic)
    ]


def test_replay_ids_have_ten_bytes_and_rise_with_gaps(org: LocalOrg, topic: str) -> None:
    ids = numbers(org, topic, 50)
    counters = [int.from_bytes(replay_id[:8], "big") for replay_id in ids]
    assert all(len(replay_id) == 10 and replay_id.endswith(b"\0\0") for replay_id in ids)
    assert all(later - earlier > 1 for earlier, later in pairwise(counters))


@pytest.mark.parametrize("length", [8, 10])
def test_custom_replay_starts_strictly_after_the_replay_id(org: LocalOrg, topic: str, length: int) -> None:
    ids = numbers(org, topic, 5)
    with Subscriber(org).fetch(100, topic, after=ids[1][:length]) as subscriber:
        assert [event.replay_id for event in subscriber.events(3)] == ids[2:]


def test_latest_delivers_only_later_events(org: LocalOrg, topic: str) -> None:
    numbers(org, topic, 3)
    with Subscriber(org).fetch(100, topic, preset=pb.LATEST) as subscriber:
        wait_until(lambda: any(stream["topic"] == topic for stream in org.streams()))
        later = numbers(org, topic, 2)
        assert [event.replay_id for event in subscriber.events(2)] == later


def test_every_stream_gets_every_event(org: LocalOrg, topic: str) -> None:
    ids = numbers(org, topic, 10)
    with Subscriber(org).fetch(10, topic) as first, Subscriber(org).fetch(10, topic) as second:
        assert [event.replay_id for event in first.events(10)] == ids
        assert [event.replay_id for event in second.events(10)] == ids


def test_at_most_100_events_are_outstanding(org: LocalOrg, topic: str) -> None:
    numbers(org, topic, 350)
    subscriber = Subscriber(org).fetch(1_000, topic).half_close()
    responses = list(subscriber.call)
    assert sum(len(response.events) for response in responses) == 100
    assert responses[-1].pending_num_requested == 0


def test_numbers_of_requested_events_add_up(org: LocalOrg, topic: str) -> None:
    org.knobs(keepalive_seconds=0.1)
    with Subscriber(org).fetch(3, topic).fetch(4) as subscriber:
        wait_until(lambda: subscriber.next().pending_num_requested == 7)
        ids = numbers(org, topic, 10)
        received = next(response for response in subscriber.call if response.events)  # keepalives may come first
        assert [event.replay_id for event in received.events] == ids[:7]
        assert received.pending_num_requested == 0


def test_responses_are_split_by_number_of_events(org: LocalOrg, topic: str) -> None:
    numbers(org, topic, 25)
    org.knobs(batch_events=10)
    responses = list(Subscriber(org).fetch(25, topic).half_close().call)
    assert [len(response.events) for response in responses] == [10, 10, 5]
    assert [response.pending_num_requested for response in responses] == [15, 5, 0]
    assert all(r.latest_replay_id == r.events[-1].replay_id and r.rpc_id for r in responses)


def test_responses_stay_below_three_megabytes(org: LocalOrg) -> None:
    org.define("Heavy__e", Text__c="textarea")
    org.publish_many("/event/Heavy__e", 10, {"Text__c": "x" * 900_000})
    channel_options = [("grpc.max_receive_message_length", 3_000_000)]
    with grpc.insecure_channel(org.grpc_target, channel_options) as channel:
        stub = pb_grpc.PubSubStub(channel)
        responses = list(Subscriber(org, stub=stub).fetch(10, "/event/Heavy__e").half_close().call)
    assert sum(len(response.events) for response in responses) == 10
    assert len(responses) < 10


def test_quiet_stream_gets_empty_responses_with_a_resumable_position(org: LocalOrg, topic: str) -> None:
    org.knobs(keepalive_seconds=0.1)
    ids = numbers(org, topic, 2)
    with Subscriber(org).fetch(100, topic) as subscriber:
        assert len(subscriber.events(2)) == 2
        alive = subscriber.next()
        assert (len(alive.events), alive.pending_num_requested) == (0, 98)
        assert alive.latest_replay_id >= ids[-1]
    later = numbers(org, topic, 3)
    with Subscriber(org).fetch(100, topic, after=alive.latest_replay_id) as subscriber:
        assert [event.replay_id for event in subscriber.events(3)] == later


def test_no_event_is_lost_between_empty_responses(org: LocalOrg, topic: str) -> None:
    org.knobs(keepalive_seconds=0.001)
    received: list[bytes] = []
    with Subscriber(org).fetch(100, topic) as subscriber:
        published: list[bytes] = []
        for _ in range(20):
            published += numbers(org, topic, 3)
            while len(received) < len(published):
                response = subscriber.next()
                received += [event.replay_id for event in response.events]
                if response.events:
                    subscriber.fetch(len(response.events))
    assert received == published


@pytest.mark.parametrize("how", ["ok", "reset"])
def test_stream_ends_when_the_client_requests_no_further_events(org: LocalOrg, topic: str, how: str) -> None:
    org.knobs(client_idle_seconds=0.2, client_idle_end=how)
    numbers(org, topic, 1)
    subscriber = Subscriber(org).fetch(1, topic)
    assert len(subscriber.next().events) == 1
    if how == "ok":
        assert subscriber.rest() == []
    else:
        error = subscriber.error()
        assert error.code() == grpc.StatusCode.UNAVAILABLE
        assert not error.trailing_metadata()
    subscriber.cancel()


def test_stream_continues_when_the_client_requests_events_in_time(org: LocalOrg, topic: str) -> None:
    org.knobs(client_idle_seconds=20)
    ids = numbers(org, topic, 3)
    with Subscriber(org).fetch(1, topic) as subscriber:
        assert [event.replay_id for event in subscriber.events(3)] == ids


@pytest.mark.parametrize(
    ("request_fields", "status", "code"),
    [
        ({"topic_name": "/event/Nowhere__e", "num_requested": 1}, "NOT_FOUND", "topic.not.found"),
        ({"num_requested": 1}, "INVALID_ARGUMENT", "topic.validation.empty"),
        ({"num_requested": 0}, "INVALID_ARGUMENT", "subscription.fetch.requested.events.invalid"),
        ({"num_requested": -1}, "INVALID_ARGUMENT", "subscription.fetch.requested.events.invalid"),
        (
            {"num_requested": 1, "replay_preset": pb.CUSTOM},
            "INVALID_ARGUMENT",
            "subscription.fetch.replayid.validation.failed",
        ),
        *(
            (
                {"num_requested": 1, "replay_preset": pb.CUSTOM, "replay_id": replay_id},
                "INVALID_ARGUMENT",
                "subscription.fetch.replayid.corrupted",
            )
            for replay_id in (b"x", b"\xff" * 10, bytes(8), b"\0" * 9, (2**40).to_bytes(8, "big") + b"\0\0")
        ),
    ],
)
def test_invalid_first_requests_are_refused(
    org: LocalOrg, topic: str, request_fields: dict[str, object], status: str, code: str
) -> None:
    if request_fields.get("num_requested") != 1 or "replay_preset" in request_fields:
        request_fields = {"topic_name": topic, **request_fields}
    request = pb.FetchRequest(**request_fields)  # type: ignore[arg-type]
    call = org.stub().Subscribe(iter([request]), metadata=org.metadata(), timeout=60)
    with pytest.raises(grpc.RpcError) as caught:
        next(call)
    assert caught.value.code().name == status
    assert error_code(caught.value) == code
    assert dict(caught.value.trailing_metadata())["type"] == "Subscribe"


def test_replay_id_between_two_events_is_corrupted(org: LocalOrg, topic: str) -> None:
    first, _ = numbers(org, topic, 2)
    between = (int.from_bytes(first[:8], "big") + 1).to_bytes(8, "big") + b"\0\0"
    assert error_code(Subscriber(org).fetch(1, topic, after=between).error()) == "subscription.fetch.replayid.corrupted"


def test_later_requests_may_repeat_the_topic_but_not_change_it(org: LocalOrg, topic: str) -> None:
    ids = numbers(org, topic, 2)
    with Subscriber(org).fetch(1, topic) as subscriber:
        subscriber.next()
        # The replay preset of a later request is ignored.
        assert [e.replay_id for e in subscriber.fetch(1, topic, preset=pb.LATEST).next().events] == ids[1:]
        error = subscriber.fetch(1, "/event/Other__e").error()
    assert error_code(error) == "subscription.fetch.topic.mismatch"


def test_invalid_later_request_ends_the_stream(org: LocalOrg, topic: str) -> None:
    error = Subscriber(org).fetch(1, topic).fetch(0).error()
    assert error_code(error) == "subscription.fetch.requested.events.invalid"


def test_events_keep_the_schema_they_were_written_with(org: LocalOrg) -> None:
    old = org.define("Switch__e", Number__c="int")["schema_id"]
    topic = "/event/Switch__e"
    with Subscriber(org).fetch(100, topic) as subscriber:
        org.publish(topic, [{"Number__c": 1}])
        new = org.define("Switch__e", Number__c="int", Text__c="text")["schema_id"]
        org.publish(topic, [{"Number__c": 2, "Text__c": "new"}])
        org.publish(topic, [{"Number__c": 3}], schema_id=old)
        assert [event.event.schema_id for event in subscriber.events(3)] == [old, new, old]
