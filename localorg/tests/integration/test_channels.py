"""Custom channels: an event has the same replay ID on all its topics."""

from __future__ import annotations

import pytest

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from tests.support.localorg import AdminError, LocalOrg
from tests.support.subscriber import Subscriber


def test_a_channel_carries_its_members_in_the_order_of_the_bus(org: LocalOrg) -> None:
    org.define("Paid__e", Number__c="int")
    org.define("Sent__e", Text__c="text")
    assert org.channel("Orders__chn", ["Paid__e", "/event/Sent__e"])["name"] == "/event/Orders__chn"
    paid = org.publish("/event/Paid__e", [{"Number__c": 1}])
    sent = org.publish("/event/Sent__e", [{"Text__c": "a"}])
    paid += org.publish("/event/Paid__e", [{"Number__c": 2}])
    with Subscriber(org).fetch(100, "/event/Orders__chn") as subscriber:
        events = subscriber.events(3)
    assert [event.replay_id for event in events] == [paid[0], sent[0], paid[1]]
    assert len({event.event.schema_id for event in events}) == 2
    with Subscriber(org).fetch(100, "/event/Orders__chn", after=sent[0]) as subscriber:
        assert [event.replay_id for event in subscriber.events(1)] == paid[1:]
    with Subscriber(org).fetch(100, "/event/Paid__e") as subscriber:
        assert [event.replay_id for event in subscriber.events(2)] == paid


def test_channels_cannot_be_published_to(org: LocalOrg) -> None:
    org.define("Member__e", Number__c="int")
    org.channel("Members__chn", ["Member__e"])
    info = org.stub().GetTopic(pb.TopicRequest(topic_name="/event/Members__chn"), metadata=org.metadata())
    assert (info.can_publish, info.can_subscribe) == (False, True)
    with pytest.raises(AdminError, match="cannot be published to"):
        org.publish("/event/Members__chn", [{"Number__c": 1}])


@pytest.mark.parametrize("members", [[], ["Nowhere__e"], ["/data/ChangeEvents"]])
def test_channel_without_existing_members_is_refused(org: LocalOrg, members: list[str]) -> None:
    with pytest.raises(AdminError):
        org.channel("Bad__chn", members)


def test_channel_name_without_the_suffix_chn_is_refused(org: LocalOrg) -> None:
    org.define("Suffix__e", Number__c="int")
    with pytest.raises(AdminError, match="__chn"):
        org.channel("Suffix", ["Suffix__e"])
