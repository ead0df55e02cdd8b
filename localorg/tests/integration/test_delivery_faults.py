"""Delivery faults: stalled topics, and streams that seek through their backlog first."""

from __future__ import annotations

from itertools import pairwise

import pytest

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from tests.support.bayeux_client import BayeuxClient, replay_ids
from tests.support.localorg import AdminError, LocalOrg, wait_until
from tests.support.managed_subscriber import ManagedSubscriber
from tests.support.subscriber import Subscriber


def numbers(org: LocalOrg, topic: str, count: int) -> list[bytes]:
    return org.publish(topic, [{"Number__c": n} for n in range(count)])


def position(replay_id: bytes) -> int:
    return int.from_bytes(replay_id[:8], "big")


@pytest.fixture
def other_topic(org: LocalOrg, topic: str) -> str:
    name = topic.removeprefix("/event/").replace("T", "Other", 1)
    org.define(name, Number__c="int")
    return f"/event/{name}"


def test_stalled_cometd_session_gets_replies_without_events(org: LocalOrg, topic: str, other_topic: str) -> None:
    org.knobs(cometd_connect_seconds=0.2)
    stored = numbers(org, topic, 2)
    org.fault("stall_delivery", topic=topic)
    with BayeuxClient(org).opened(topic, -2) as client:
        assert client.subscribe(other_topic)["successful"]
        (reply,) = client.connect()
        assert reply["successful"]
        new = numbers(org, topic, 1)
        (of_other,) = numbers(org, other_topic, 1)
        assert replay_ids(client.poll()) == [position(of_other)]
        assert client.poll() == []
        org.fault("stall_delivery", topic=topic, on=False)
        assert replay_ids(client.poll()) == [position(replay_id) for replay_id in stored + new]


def test_stalled_stream_gets_empty_responses_with_a_position_before_its_events(org: LocalOrg, topic: str) -> None:
    org.knobs(keepalive_seconds=0.05)
    stored = numbers(org, topic, 2)
    org.fault("stall_delivery", topic=topic)
    with (
        Subscriber(org).fetch(100, topic) as earliest,
        Subscriber(org).fetch(100, topic, after=stored[0]) as resumed,
    ):
        assert {earliest.next().latest_replay_id for _ in range(3)}.pop() < stored[0]
        new = numbers(org, topic, 1)
        for _ in range(3):
            response = resumed.next()
            assert (list(response.events), response.latest_replay_id) == ([], stored[0])
        response = earliest.next()
        assert (list(response.events), response.pending_num_requested) == ([], 100)
        org.clear_faults()
        assert [event.replay_id for event in resumed.events(2)] == stored[1:] + new
    with Subscriber(org).fetch(100, topic, after=response.latest_replay_id) as subscriber:
        assert [event.replay_id for event in subscriber.events(3)] == stored + new


def test_position_of_a_stalled_stream_without_stored_events_advances(
    org: LocalOrg, topic: str, other_topic: str
) -> None:
    org.knobs(keepalive_seconds=0.05)
    (stored,) = numbers(org, topic, 1)
    org.fault("stall_delivery", topic=topic)
    (of_other,) = numbers(org, other_topic, 1)
    with Subscriber(org).fetch(100, topic, after=stored) as subscriber:
        assert subscriber.next().latest_replay_id >= of_other
        (new,) = numbers(org, topic, 1)
        assert [subscriber.next().latest_replay_id < new for _ in range(3)] == [True] * 3


@pytest.mark.parametrize("begins_at", ["earliest", "replay_id"])
@pytest.mark.parametrize("backlog", [0, 5])
def test_seeking_stream_gets_empty_responses_before_its_first_event(
    org: LocalOrg, topic: str, other_topic: str, begins_at: str, backlog: int
) -> None:
    (first,) = numbers(org, topic, 1)
    numbers(org, other_topic, backlog)
    ids = numbers(org, topic, 3)
    expected = ids
    if begins_at == "earliest":
        org.fault("expire_before", topic=topic, replay_id=(ids[0]).hex())
    org.fault("seek", topic=topic, responses=4, seconds=0.01)
    with Subscriber(org).fetch(100, topic, after=first if begins_at == "replay_id" else None) as subscriber:
        responses = [subscriber.next() for _ in range(5)]
    *empty, delivered = responses
    assert [(list(each.events), each.pending_num_requested) for each in empty] == [([], 100)] * 4
    assert [event.replay_id for event in delivered.events] == expected
    named = [each.latest_replay_id for each in empty]
    assert all(earlier < later for earlier, later in pairwise([first, *named, ids[0]]))
    org.clear_faults()
    for replay_id in named:
        with Subscriber(org).fetch(100, topic, after=replay_id) as resumed:
            assert [event.replay_id for event in resumed.events(3)] == expected


def test_events_published_while_a_stream_seeks_follow_its_positions(org: LocalOrg, topic: str) -> None:
    (first,) = numbers(org, topic, 1)
    org.fault("seek", topic=topic, responses=3, seconds=0.3)
    with Subscriber(org).fetch(100, topic, after=first) as subscriber:
        assert subscriber.next().latest_replay_id > first
        (new,) = numbers(org, topic, 1)
        named = [subscriber.next().latest_replay_id for _ in range(2)]
        assert first < named[0] < named[1] < new
        assert [event.replay_id for event in subscriber.events(1)] == [new]


def test_filtered_channel_seeks_through_events_that_its_filter_drops(org: LocalOrg, topic: str) -> None:
    name = topic.removeprefix("/event/").removesuffix("__e")
    channel = f"/event/{name}__chn"
    made = org.rest(
        "POST",
        "/tooling/sobjects/PlatformEventChannel",
        {"FullName": f"{name}__chn", "Metadata": {"channelType": "event", "label": name}},
    )
    member = {"eventChannel": f"{name}__chn", "selectedEntity": f"{name}__e", "filterExpression": "Number__c = 9"}
    org.rest("POST", "/tooling/sobjects/PlatformEventChannelMember", {"FullName": f"{name}_m", "Metadata": member})
    assert made["success"]
    *dropped, wanted = org.publish(topic, [{"Number__c": number} for number in (*range(8), 9)])
    org.fault("seek", topic=channel, responses=3, seconds=0.01)
    with Subscriber(org).fetch(100, channel, after=dropped[0]) as subscriber:
        named = [subscriber.next().latest_replay_id for _ in range(3)]
        assert dropped[0] < named[0] < dropped[-1] < wanted
        assert [event.replay_id for event in subscriber.events(1)] == [wanted]


def test_streams_from_latest_and_streams_of_other_topics_do_not_seek(
    org: LocalOrg, topic: str, other_topic: str
) -> None:
    org.knobs(keepalive_seconds=30)
    org.fault("seek", topic=topic, responses=100, seconds=0.01)
    ids = numbers(org, other_topic, 1)
    with Subscriber(org).fetch(1, other_topic) as subscriber:
        assert [event.replay_id for event in subscriber.events(1)] == ids
    with Subscriber(org).fetch(1, topic, preset=pb.LATEST) as subscriber:
        wait_until(lambda: any(stream["topic"] == topic for stream in org.streams()))
        ids = numbers(org, topic, 1)
        assert [event.replay_id for event in subscriber.next().events] == ids


def test_seeking_managed_stream_may_commit_the_position_of_an_empty_response(
    org: LocalOrg, topic: str, managed: str
) -> None:
    ids = numbers(org, topic, 2)
    org.fault("seek", topic=topic, responses=2, seconds=0.05)
    with ManagedSubscriber(org).fetch(100, managed) as subscriber:
        named = subscriber.next().latest_replay_id
        assert named < ids[0]
        assert not subscriber.answer(subscriber.commit(named)).HasField("error")
    assert org.managed_subscriptions()[managed]["committed"] == named


@pytest.mark.parametrize(
    ("fault", "body"),
    [
        ("stall_delivery", {"topic": "/event/Nowhere__e"}),
        ("stall_delivery", {"on": 1}),
        ("stall_delivery", {"seconds": 1}),
        ("seek", {}),
        ("seek", {"responses": -1}),
        ("seek", {"responses": True}),
        ("seek", {"responses": 1, "seconds": 0}),
        ("seek", {"responses": 1, "steps": 0}),
    ],
)
def test_invalid_delivery_faults_are_refused(org: LocalOrg, fault: str, body: dict[str, object]) -> None:
    before = org.admin("GET", "/faults")
    with pytest.raises(AdminError, match="400"):
        org.fault(fault, **body)
    assert org.admin("GET", "/faults") == before


def test_admin_faults_lists_stalled_topics_and_seeks(org: LocalOrg, topic: str) -> None:
    org.fault("seek", responses=2)
    org.fault("seek", topic=topic, responses=3, seconds=1)
    shown = org.fault("stall_delivery", topic=topic)
    assert shown["stalled"] == [topic]
    assert shown["seeks"] == {"*": {"responses": 2, "seconds": 0.05}, topic: {"responses": 3, "seconds": 1.0}}
    assert org.fault("stall_delivery", topic=topic, on=False)["stalled"] == []
    assert org.fault("seek", topic=topic, responses=0)["seeks"] == {"*": {"responses": 2, "seconds": 0.05}}
    org.clear_faults()
    assert org.admin("GET", "/faults")["seeks"] == {}
