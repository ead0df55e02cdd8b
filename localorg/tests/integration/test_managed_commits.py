"""Commits of managed subscriptions: validation, acknowledgement and durability."""

from __future__ import annotations

import time

import pytest

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from sfstream_localorg.managed.commits import COMMIT_ERRORS
from tests.support.localorg import LocalOrg
from tests.support.managed_subscriber import ManagedSubscriber


def publish(org: LocalOrg, topic: str, count: int) -> list[bytes]:
    return org.publish(topic, [{"Number__c": n} for n in range(count)])


def commit_error(subscriber: ManagedSubscriber, replay_id: bytes) -> str:
    """Commit an invalid replay ID; return the kind of the error."""
    answer = subscriber.answer(subscriber.commit(replay_id))
    assert answer.error.code == pb.COMMIT
    return next(kind for kind, text in COMMIT_ERRORS.items() if text == answer.error.msg)


def test_acknowledgement_has_the_request_id_and_the_time_of_the_commit(org: LocalOrg, topic: str, managed: str) -> None:
    (replay_id,) = publish(org, topic, 1)
    with ManagedSubscriber(org).fetch(1, managed) as subscriber:
        subscriber.events(1)
        before = int(time.time() * 1000)
        request_id = subscriber.commit(replay_id)
        response = subscriber.next()
        after = int(time.time() * 1000)
    answer = response.commit_response
    assert (answer.commit_request_id, answer.replay_id) == (request_id, replay_id)
    assert not answer.HasField("error")
    assert before <= answer.process_time <= after
    assert (response.latest_replay_id, list(response.events), response.pending_num_requested) == (replay_id, [], 0)


def test_commit_without_requested_events_returns_no_events(org: LocalOrg, topic: str, managed: str) -> None:
    ids = publish(org, topic, 3)
    with ManagedSubscriber(org).fetch(1, managed) as subscriber:
        subscriber.events(1)
        subscriber.commit(ids[0])
        response = subscriber.next()
        assert response.HasField("commit_response")
        assert (list(response.events), response.latest_replay_id) == ([], ids[0])
        subscriber.fetch(1)
        assert [event.replay_id for event in subscriber.next().events] == ids[1:2]


def test_one_request_may_fetch_and_commit(org: LocalOrg, topic: str, managed: str) -> None:
    ids = publish(org, topic, 3)
    with ManagedSubscriber(org).fetch(1, managed) as subscriber:
        subscriber.events(1)
        request_id = subscriber.commit(ids[0], fetch=2)
        events, answers = [], []
        while len(events) < 2 or not answers:
            response = subscriber.next()
            events += [event.replay_id for event in response.events]
            answers += [response.commit_response.commit_request_id] if response.HasField("commit_response") else []
    assert (events, answers) == (ids[1:], [request_id])


def test_refused_commit_does_not_end_the_stream(org: LocalOrg, topic: str, managed: str) -> None:
    ids = publish(org, topic, 6)
    with ManagedSubscriber(org).fetch(4, managed) as subscriber:
        subscriber.events(4)
        subscriber.committed(ids[2])
        assert commit_error(subscriber, b"") == "missing"
        assert commit_error(subscriber, b"nonsense") == "invalid"
        assert commit_error(subscriber, b"\0" * 10) == "invalid"
        assert (
            commit_error(subscriber, (int.from_bytes(ids[2][:8], "big") + 1).to_bytes(8, "big") + b"\0\0") == "invalid"
        )
        assert commit_error(subscriber, ids[1]) == "older"
        assert commit_error(subscriber, ids[4]) == "not_delivered"
        assert org.managed_subscriptions()[managed]["committed"] == ids[2]
        subscriber.committed(ids[2])  # committing the same replay ID again is not an error
        subscriber.committed(ids[3])
        subscriber.fetch(1)
        assert [event.replay_id for event in subscriber.events(1)] == ids[4:5]
    assert org.managed_subscriptions()[managed]["committed"] == ids[3]


def test_expired_replay_id_cannot_be_committed(org: LocalOrg, topic: str, managed: str) -> None:
    ids = publish(org, topic, 3)
    with ManagedSubscriber(org).fetch(3, managed) as subscriber:
        subscriber.events(3)
        org.fault("expire_before", topic=topic, replay_id=ids[1].hex())
        assert commit_error(subscriber, ids[0]) == "invalid"
        subscriber.committed(ids[1])


def test_replay_id_delivered_by_an_earlier_stream_only_cannot_be_committed(
    org: LocalOrg, topic: str, managed: str
) -> None:
    ids = publish(org, topic, 2)
    with ManagedSubscriber(org).fetch(2, managed) as first:
        first.events(2)
        first.half_close()
        assert list(first.call) == []
    with ManagedSubscriber(org).fetch(1, managed) as second:
        second.events(1)
        assert commit_error(second, ids[1]) == "not_delivered"
        second.fetch(1).events(1)
        second.committed(ids[1])


def test_replay_id_before_the_start_of_the_stream_cannot_be_committed(org: LocalOrg, topic: str, managed: str) -> None:
    org.managed_subscription(managed, topic, default_replay="LATEST")
    skipped = publish(org, topic, 2)[0]
    with ManagedSubscriber(org).fetch(2, managed) as subscriber:
        assert commit_error(subscriber, b"") == "missing"  # the answer shows that the stream has started
        (delivered,) = publish(org, topic, 1)
        subscriber.events(1)
        assert commit_error(subscriber, skipped) == "not_delivered"
        subscriber.committed(delivered)


def test_replay_id_of_an_empty_response_can_be_committed(org: LocalOrg, topic: str, managed: str) -> None:
    (replay_id,) = publish(org, topic, 1)
    org.define("Noise__e", Number__c="int")
    org.knobs(keepalive_seconds=0.1)
    with ManagedSubscriber(org).fetch(100, managed) as subscriber:
        subscriber.events(1)
        (elsewhere,) = publish(org, "/event/Noise__e", 1)
        while (empty := subscriber.next()).latest_replay_id == replay_id:
            assert list(empty.events) == []
        assert empty.latest_replay_id == elsewhere
        subscriber.committed(elsewhere)
    assert org.managed_subscriptions()[managed]["committed"] == elsewhere
    assert [event["replay_id"] for event in org.record(topic)] == [replay_id]


def test_replay_id_of_eight_bytes_can_be_committed(org: LocalOrg, topic: str, managed: str) -> None:
    (replay_id,) = publish(org, topic, 1)
    with ManagedSubscriber(org).fetch(1, managed) as subscriber:
        subscriber.events(1)
        assert subscriber.committed(replay_id[:8]).replay_id == replay_id[:8]
    assert org.managed_subscriptions()[managed]["committed"] == replay_id


def test_one_acknowledgement_covers_several_commits(org: LocalOrg, topic: str, managed: str) -> None:
    ids = publish(org, topic, 7)
    org.knobs(managed_ack_every=3, managed_ack_seconds=600)
    with ManagedSubscriber(org).fetch(7, managed) as subscriber:
        subscriber.events(7)
        requests, answered = [], []
        for part in (ids[:3], ids[3:6]):
            requests += [subscriber.commit(replay_id) for replay_id in part]
            answered.append(subscriber.next().commit_response.commit_request_id)
        requests.append(subscriber.commit(ids[6]))
        assert answered == [requests[2], requests[5]]
        subscriber.half_close()  # no further commit can follow, so the last one is acknowledged too
        assert [one.commit_response.commit_request_id for one in subscriber.call] == [requests[6]]
    assert org.managed_subscriptions()[managed]["committed"] == ids[-1]


def test_commit_is_acknowledged_after_managed_ack_seconds(org: LocalOrg, topic: str, managed: str) -> None:
    (replay_id,) = publish(org, topic, 1)
    org.knobs(managed_ack_every=100, managed_ack_seconds=0.1)
    with ManagedSubscriber(org).fetch(1, managed) as subscriber:
        subscriber.events(1)
        subscriber.committed(replay_id)


def test_refused_commit_gets_a_separate_answer(org: LocalOrg, topic: str, managed: str) -> None:
    ids = publish(org, topic, 3)
    org.knobs(managed_ack_every=100, managed_ack_seconds=600)
    with ManagedSubscriber(org).fetch(3, managed) as subscriber:
        subscriber.events(3)
        requests = [subscriber.commit(replay_id) for replay_id in (ids[0], ids[1], b"", ids[2])]
        subscriber.half_close()
        answers = [response.commit_response for response in subscriber.call]
    assert [answer.commit_request_id for answer in answers] == requests[1:]
    assert [answer.HasField("error") for answer in answers] == [False, True, False]


@pytest.mark.parametrize("end", [pytest.param("stop", marks=pytest.mark.extended), "kill"])
def test_committed_replay_ids_survive_a_restart_of_the_org(tmp_path_factory: pytest.TempPathFactory, end: str) -> None:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as own:
        own.define("Order__e", Number__c="int")
        own.managed_subscription("Orders", "/event/Order__e", label="All orders")
        ids = own.publish("/event/Order__e", [{"Number__c": n} for n in range(4)])
        with ManagedSubscriber(own).fetch(4, "Orders") as subscriber:
            subscriber.events(4)
            subscriber.committed(ids[1])
            before = own.managed_subscriptions()["Orders"]
            if end == "stop":
                own.stop()
            else:
                own.kill()
            own.start()
        assert own.managed_subscriptions()["Orders"] == {**before, "slot": "free"}
        with ManagedSubscriber(own).fetch(2, "Orders") as subscriber:
            assert [event.replay_id for event in subscriber.events(2)] == ids[2:]
