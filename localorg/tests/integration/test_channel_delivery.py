"""Delivery on channels with filters and enriched fields, over the Pub/Sub API and the Streaming API."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest

from tests.support.bayeux_client import BayeuxClient
from tests.support.localorg import LocalOrg
from tests.support.sobject_client import SObjectClient
from tests.support.subscriber import Subscriber

_numbers = itertools.count()


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as local_org:
        local_org.define("Order__e", City__c="string", Number__c="double")
        yield local_org


@pytest.fixture(scope="module")
def client(org: LocalOrg) -> Iterator[SObjectClient]:
    client = SObjectClient(org, version="62.0")
    yield client
    client.close()


def channel(org: LocalOrg, *entities: str, **metadata: Any) -> str:
    """Create a channel with the same settings for all members; return its topic."""
    name, kind = f"Part{next(_numbers)}__chn", "event" if entities[0].endswith("__e") else "data"
    body = {"FullName": name, "Metadata": {"channelType": kind, "label": name}}
    org.rest("POST", "/tooling/sobjects/PlatformEventChannel", body)
    for entity in entities:
        body = {
            "FullName": f"{name}_{entity}".replace("__", "_"),
            "Metadata": {"eventChannel": name, "selectedEntity": entity, **metadata},
        }
        org.rest("POST", "/tooling/sobjects/PlatformEventChannelMember", body)
    return f"/{kind}/{name}"


def delivered_count(client: SObjectClient) -> int:
    limits = client.call("GET", "/limits").json()["DailyDeliveredPlatformEvents"]
    return int(limits["Max"] - limits["Remaining"])


def decoded(client: SObjectClient, event: Any) -> dict[str, Any]:
    schema = fastavro.parse_schema(client.schema(event.event.schema_id))
    record = fastavro.schemaless_reader(io.BytesIO(event.event.payload), schema, None)
    return dict(record)  # type: ignore[arg-type]


def streaming_data(org: LocalOrg, topic: str) -> list[dict[str, Any]]:
    """Subscribe over the Streaming API and return the data of all events of a topic."""
    with BayeuxClient(org) as bayeux:
        bayeux.handshake(ext={"replay": True})
        bayeux.send({"channel": "/meta/subscribe", "subscription": topic, "ext": {"replay": {topic: -2}}})
        messages = bayeux.poll() + bayeux.poll()
    return [message["data"] for message in messages if message["channel"] == topic]


def test_events_that_a_channel_filter_drops_are_neither_delivered_nor_counted(
    org: LocalOrg, client: SObjectClient
) -> None:
    org.knobs(delivery_quota=1_000)
    topic = channel(org, "Order__e", filterExpression="City__c = 'Oslo' AND Number__c >= 100")
    cities = ("Oslo", "Bergen", "oslo")
    replay_ids = org.publish("/event/Order__e", [{"City__c": cities[n % 3], "Number__c": n} for n in range(300)])
    expected = [replay_id for n, replay_id in enumerate(replay_ids) if n % 3 != 1 and n >= 100]
    before = delivered_count(client)
    with Subscriber(org).fetch(100, topic) as subscriber:
        assert [event.replay_id for event in subscriber.events(len(expected))] == expected
    assert delivered_count(client) - before == len(expected) == 133
    positions = [data["event"]["replayId"] for data in streaming_data(org, topic)]
    assert positions == [int.from_bytes(one[:8], "big") for one in expected]
    assert delivered_count(client) - before == 2 * len(expected)
    org.reset_knobs()


def test_stream_on_a_channel_without_matching_events_gets_empty_responses(org: LocalOrg) -> None:
    topic = channel(org, "Order__e", filterExpression="City__c = 'Nowhere'")
    replay_ids = org.publish("/event/Order__e", [{"City__c": "Oslo"} for _ in range(250)])
    org.knobs(keepalive_seconds=0.3)
    with Subscriber(org).fetch(100, topic) as subscriber:
        response = subscriber.next()
    assert (list(response.events), response.pending_num_requested) == ([], 100)
    assert response.latest_replay_id >= replay_ids[-1]
    org.reset_knobs()


def test_enriched_update_of_several_records_is_delivered_as_one_event_per_record(
    org: LocalOrg, client: SObjectClient
) -> None:
    topic = channel(org, "AccountChangeEvent", enrichedFields=[{"name": "Industry"}, {"name": "Website"}])
    ids = [client.create("Account", Name=f"A{n}", Industry=("Banking", "Energy")[n]) for n in range(2)]
    records = [{"attributes": {"type": "Account"}, "id": one, "Phone": "1"} for one in ids]
    answer = client.call("PATCH", "/composite/sobjects", {"records": records})
    assert answer.status_code == 200, answer.text
    grouped = org.record("/data/AccountChangeEvent")[-1]
    with Subscriber(org).fetch(100, topic) as subscriber:
        *created, first, second = subscriber.events(4)
    assert [decoded(client, one)["Industry"] for one in created] == ["Banking", "Energy"]
    updated = [first, second]
    assert {one.replay_id for one in updated} == {grouped["replay_id"]}
    assert {one.event.schema_id for one in updated} == {grouped["schema_id"]}
    found = [decoded(client, one) for one in updated]
    assert [one["ChangeEventHeader"]["recordIds"] for one in found] == [[one] for one in ids]
    assert [(one["Phone"], one["Industry"], one["Website"]) for one in found] == [
        ("1", "Banking", None),
        ("1", "Energy", None),
    ]
    payloads = [data["payload"] for data in streaming_data(org, topic)][2:]
    assert [(one["Industry"], "Website" in one) for one in payloads] == [("Banking", False), ("Energy", False)]
    assert all("Industry" not in one["ChangeEventHeader"]["changedFields"] for one in payloads)


def test_replayed_event_has_the_latest_value_of_an_enriched_field(org: LocalOrg, client: SObjectClient) -> None:
    topic = channel(org, "ContactChangeEvent", enrichedFields=[{"name": "Title"}])
    contact = client.create("Contact", LastName="L", Title="Engineer")
    client.update("Contact", contact, Phone="1")
    client.update("Contact", contact, Title="Director")
    with Subscriber(org).fetch(100, topic) as subscriber:
        titles = [decoded(client, event)["Title"] for event in subscriber.events(3)]
    assert titles == ["Engineer", "Director", "Director"]


def test_changed_filter_of_a_channel_member_applies_to_an_open_stream(org: LocalOrg, client: SObjectClient) -> None:
    topic = channel(org, "Order__e", filterExpression="City__c = 'Oslo'")
    soql = f"SELECT Id, Metadata FROM PlatformEventChannelMember WHERE DeveloperName LIKE '{topic[7:-5]}%'"
    (row,) = client.call("GET", "/tooling/query", params={"q": soql}).json()["records"]
    path = f"/tooling/sobjects/PlatformEventChannelMember/{row['Id']}"
    org.publish("/event/Order__e", [{"City__c": "Oslo", "Number__c": 1}])
    with Subscriber(org).fetch(100, topic) as subscriber:
        subscriber.events(1)  # the stream is open
        metadata = {**row["Metadata"], "filterExpression": "City__c = 'Bergen'"}
        assert client.call("PATCH", path, {"Metadata": metadata}).status_code == 204
        replay_ids = org.publish("/event/Order__e", [{"City__c": "Oslo"}, {"City__c": "Bergen"}])
        assert [event.replay_id for event in subscriber.events(1)] == replay_ids[1:]
        assert client.call("DELETE", path).status_code == 204
        org.publish("/event/Order__e", [{"City__c": "Bergen"}])
        org.knobs(keepalive_seconds=0.2)
        assert not subscriber.next().events
    org.reset_knobs()
