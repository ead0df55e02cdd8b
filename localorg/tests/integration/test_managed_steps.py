"""Eight steps of a managed subscription in Salesforce's documentation, with a plain gRPC stub."""

from __future__ import annotations

from tests.support.localorg import LocalOrg, wait_until
from tests.support.managed_subscriber import ManagedSubscriber


def test_a_managed_subscription_resumes_after_the_committed_event(org: LocalOrg, topic: str) -> None:
    org.managed_subscription("Steps", topic, default_replay="EARLIEST")
    ids = org.publish(topic, [{"Number__c": n} for n in range(6)])

    first = ManagedSubscriber(org).fetch(3, "Steps")  # 1 subscribe
    received = [event.replay_id for event in first.events(3)]  # 2 receive the requested events
    assert received == ids[:3]
    processed = received[1]  # 3 process
    acknowledgement = first.answer(first.commit(processed))  # 4 commit, 5 acknowledged
    assert acknowledgement.replay_id == processed
    assert not acknowledgement.HasField("error")
    assert org.managed_subscriptions()["Steps"]["committed"] == processed
    first.fetch(2)
    assert [event.replay_id for event in first.events(2)] == ids[3:5]
    first.cancel()  # 6 disconnect with events that were not processed
    wait_until(lambda: org.managed_subscriptions()["Steps"]["slot"] == "free")

    with ManagedSubscriber(org).fetch(10, "Steps") as second:  # 7 subscribe again
        assert [event.replay_id for event in second.events(4)] == ids[2:]  # 8 after the committed event
