"""PushTopics and generic channels of the local org: records, events, filters."""

from __future__ import annotations

import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from tests.support.bayeux_client import BayeuxClient, replay_ids
from tests.support.localorg import AdminError, LocalOrg, wait_until
from tests.support.sobject_client import SObjectClient

QUERY = "SELECT Id, Name, Phone, CreatedDate FROM Account WHERE Industry = 'Energy'"


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"T{abs(hash(request.node.nodeid)) % 10**20}"


def types_and_names(messages: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return [(message["data"]["event"]["type"], message["data"]["sobject"].get("Name")) for message in messages]


def test_changes_that_match_a_push_topic_query_become_events(org: LocalOrg, name: str) -> None:
    topic = org.push_topic(name, QUERY)["name"]
    with BayeuxClient(org).opened(topic) as client:
        account = org.rest("POST", "/sobjects/Account", {"Name": "A", "Industry": "energy"})["id"]
        org.rest("POST", "/sobjects/Account", {"Name": "Other", "Industry": "Shoes"})
        org.rest("PATCH", f"/sobjects/Account/{account}", {"Phone": "1"})
        org.rest("PATCH", f"/sobjects/Account/{account}", {"Fax": "no field of the query"})
        org.rest("DELETE", f"/sobjects/Account/{account}")
        org.rest("POST", f"/sobjects/Account/{account}/undelete")
        org.rest("PATCH", f"/sobjects/Account/{account}", {"Industry": "Shoes"})
        events = client.poll()
    created = org.rest("GET", f"/sobjects/Account/{account}?fields=CreatedDate")["CreatedDate"]
    assert [message["data"]["event"]["type"] for message in events] == ["created", "updated", "deleted", "undeleted"]
    assert events[1]["data"]["sobject"] == {
        "Id": account,
        "Name": "A",
        "Phone": "1",
        "CreatedDate": created.replace("+0000", "Z"),
    }
    assert events[2]["data"]["sobject"] == {"Id": account}
    assert set(events[0]["data"]["event"]) == {"createdDate", "replayId", "type"}
    assert events[0]["data"]["event"]["createdDate"].endswith("Z")


def test_each_record_of_a_transaction_is_an_event_and_a_refused_transaction_has_none(org: LocalOrg, name: str) -> None:
    topic = org.push_topic(name, "SELECT Id, Name FROM Contact")["name"]
    records = [{"attributes": {"type": "Contact"}, "LastName": f"c{n}"} for n in range(200)]
    org.rest("POST", "/composite/sobjects", {"records": records, "allOrNone": True})
    broken = [*records[:5], {"attributes": {"type": "Contact"}}]
    org.rest("POST", "/composite/sobjects", {"records": broken, "allOrNone": True})
    with BayeuxClient(org).opened(topic, -2) as client:
        assert [message["data"]["sobject"]["Name"] for message in client.poll()] == [f"c{n}" for n in range(200)]


@pytest.mark.parametrize(
    ("notify", "changes"),
    [
        ("All", ["Phone", "Industry", "Fax"]),
        ("Referenced", ["Phone", "Industry"]),
        ("Select", ["Phone"]),
        ("Where", ["Industry"]),
    ],
)
def test_notify_for_fields_selects_the_updates_that_become_events(
    org: LocalOrg, name: str, notify: str, changes: list[str]
) -> None:
    query = "SELECT Id, Phone FROM Account WHERE Industry != 'Shoes'"
    topic = org.push_topic(name, query, NotifyForFields=notify)["name"]
    account = org.rest("POST", "/sobjects/Account", {"Name": "A"})["id"]
    with BayeuxClient(org).opened(topic) as client:
        got = []
        for field in ("Phone", "Industry", "Fax"):
            org.rest("PATCH", f"/sobjects/Account/{account}", {field: "x"})
            got += [field] * len(client.poll())
    assert got == changes


def test_push_topic_and_its_operations_can_be_deactivated(org: LocalOrg, name: str) -> None:
    rest = SObjectClient(org)
    body = {"Name": name, "Query": "SELECT Id, Name FROM Account", "ApiVersion": 62.0}
    record = rest.create("PushTopic", **body, NotifyForOperationUpdate=False)
    shown = rest.query(f"SELECT Id, Name, IsActive, NotifyForFields FROM PushTopic WHERE Name = '{name}'")
    assert [(one["Id"], one["IsActive"], one["NotifyForFields"]) for one in shown] == [(record, True, "Referenced")]
    with BayeuxClient(org).opened(f"/topic/{name}") as client:
        account = rest.create("Account", Name="A")
        rest.update("Account", account, Name="B")
        assert types_and_names(client.poll()) == [("created", "A")]
        rest.update("PushTopic", record, IsActive=False)
        rest.create("Account", Name="C")
        assert client.poll() == []
        assert "does not exist" in client.subscribe(f"/topic/{name}", -2)["error"]
        rest.update("PushTopic", record, IsActive=True, Query="SELECT Id FROM Account WHERE Name = 'D'")
        rest.create("Account", Name="E")
        rest.create("Account", Name="D")
        assert [list(message["data"]["sobject"]) for message in client.poll()] == [["Id"]]
        rest.delete("PushTopic", record)
        rest.create("Account", Name="D")
        assert client.poll() == []
    assert rest.query(f"SELECT Id FROM PushTopic WHERE Name = '{name}'") == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"Name": "x" * 26}, "STRING_TOO_LONG"),
        ({"Name": "with blank"}, "INVALID_FIELD"),
        ({"Query": "SELECT Name FROM Account"}, "INVALID_FIELD"),
        ({"Query": "SELECT Id, Nothing FROM Account"}, "INVALID_FIELD"),
        ({"Query": "SELECT Id FROM Nothing"}, "INVALID_TYPE"),
        ({"Query": "SELECT Id FROM PushTopic"}, "INVALID_FIELD"),
        ({"Query": "SELECT Id FROM Account ORDER BY Name"}, "INVALID_FIELD"),
        ({"Query": "SELECT Id FROM Account LIMIT 5"}, "INVALID_FIELD"),
        ({"Query": "SELECT COUNT() FROM Account"}, "INVALID_FIELD"),
        ({"Query": "SELECT COUNT(Id) FROM Account"}, "INVALID_FIELD"),
        ({"Query": "SELECT Id, Parent.Name FROM Account"}, "INVALID_FIELD"),
        ({"Query": "SELECT Id FROM Account WHERE NOT Name = 'a'"}, "INVALID_FIELD"),
        ({"Query": "SELECT Id FROM Account WHERE CreatedDate = TODAY"}, "MALFORMED_QUERY"),
        ({"Query": "nonsense"}, "MALFORMED_QUERY"),
        ({"Query": "SELECT Id FROM Account WHERE Name = '" + "x" * 1300 + "'"}, "STRING_TOO_LONG"),
        ({"NotifyForFields": "Some"}, "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST"),
        ({"ApiVersion": None}, "REQUIRED_FIELD_MISSING"),
    ],
)
def test_push_topics_that_salesforce_would_refuse(org: LocalOrg, change: dict[str, Any], code: str) -> None:
    rest = SObjectClient(org)
    body = {"Name": "Refused", "Query": "SELECT Id FROM Account", "ApiVersion": 62.0}
    response = rest.call("POST", "/sobjects/PushTopic", body | change)
    assert (response.status_code, response.json()[0]["errorCode"]) == (400, code)
    assert rest.query("SELECT Id FROM PushTopic WHERE Name = 'Refused'") == []


def test_push_topic_names_are_unique_regardless_of_case(org: LocalOrg, name: str) -> None:
    org.push_topic(name, "SELECT Id FROM Account")
    record = {"attributes": {"type": "PushTopic"}, "Query": "SELECT Id FROM Account", "ApiVersion": 62}
    body = {"records": [{**record, "Name": name.lower()}, {**record, "Name": "Tw1"}, {**record, "Name": "tW1"}]}
    taken, new, again = org.rest("POST", "/composite/sobjects", body)
    assert [one["errors"][0]["statusCode"] for one in (taken, again)] == ["DUPLICATE_VALUE"] * 2
    assert new["success"]


def test_filters_in_channel_names_select_events(org: LocalOrg, name: str) -> None:
    topic = org.push_topic(name, "SELECT Id, Name, AnnualRevenue, CreatedDate FROM Account")["name"]
    filtered = f"{topic}?Name='A & B'&AnnualRevenue>=10"
    with BayeuxClient(org).opened(filtered, -2) as client:
        for number, revenue in enumerate((9, 10, None, 11)):
            org.rest("POST", "/sobjects/Account", {"Name": "A & B", "AnnualRevenue": revenue})
            if number == 0:
                org.rest("POST", "/sobjects/Account", {"Name": "A", "AnnualRevenue": 99})
        messages = client.poll()
        assert {message["channel"] for message in messages} == {filtered}
        assert [message["data"]["sobject"]["AnnualRevenue"] for message in messages] == [10, 11]
        assert client.subscribe(f"{topic}?CreatedDate<2020-01-01T00:00:00Z", -2)["successful"]
        assert client.poll() == []
        for query, fields in (("Phone='1'", "Phone"), ("Nothing='1'", "Nothing")):
            refused = client.subscribe(f"{topic}?{query}", -2)
            assert refused["error"] == f"400::Query fields {{{fields}}} do not exist on the topic entity"
        assert client.subscribe(f"{topic}?Name like 'x'", -2)["error"].startswith("400::")
        assert client.subscribe(f"{topic}?", -2)["error"].startswith("400::")
        mapped = client.subscribe(f"{topic}?Name='A'", ext={"replay": {f"{topic}?Name='A'": -2}})
        assert f"The replayId for channel {{{topic}}} wasn't found" in mapped["error"]


def test_filter_finds_one_event_among_thousands(org: LocalOrg, name: str) -> None:
    topic = org.push_topic(name, "SELECT Id, Name FROM Account")["name"]
    org.publish_many(topic, 3_000, {"sobject": {"Id": "{n}", "Name": "no {n}"}})
    org.publish(topic, [{"sobject": {"Id": "1", "Name": "yes"}}])
    with BayeuxClient(org).opened(f"{topic}?Name='yes'", -2) as client:
        assert types_and_names(client.poll()) == [("created", "yes")]
        assert client.poll() == []


def test_generic_events_are_pushed_over_rest(org: LocalOrg, name: str) -> None:
    channel = f"/u/notifications/{name}"
    rest = SObjectClient(org)
    record = rest.create("StreamingChannel", Name=channel)
    path = f"/sobjects/StreamingChannel/{record}/push"
    user = org.admin("GET", "/org")["user_id"]
    assert rest.call("GET", path).json() == {"OnlineUserIds": [], "ChannelName": channel}
    with BayeuxClient(org).opened(channel) as client:
        assert rest.call("GET", path).json() == {"OnlineUserIds": [user], "ChannelName": channel}
        body = {"pushEvents": [{"payload": "text é", "userIds": []}, {"payload": {"a": [1, None]}, "userIds": []}]}
        answer = rest.call("POST", path, body)
        assert (answer.status_code, answer.json()) == (200, [{"fanoutCount": -1, "userOnlineStatus": {}}] * 2)
        other = "005000000000001AAA"
        body = {"pushEvents": [{"payload": "mine", "userIds": [user]}, {"payload": "no", "userIds": [other]}]}
        assert rest.call("POST", path, body).json() == [
            {"fanoutCount": 1, "userOnlineStatus": {user: True}},
            {"fanoutCount": 0, "userOnlineStatus": {other: False}},
        ]
        messages = client.poll()
    assert [message["data"]["payload"] for message in messages] == ["text é", {"a": [1, None]}, "mine"]
    assert {tuple(message["data"]["event"]) for message in messages} == {("createdDate", "replayId")}
    assert rest.call("POST", "/sobjects/StreamingChannel/0M6000000000zzz/push", body).status_code == 404
    for bad in ({}, {"pushEvents": []}, {"pushEvents": [{}]}, {"pushEvents": [{"payload": "x" * 3001}]}):
        assert rest.call("POST", path, bad).status_code == 400, bad
    for bad_name in ("orders", "/u/", "/u/a b", "/u/a?b", channel.upper().replace("/U/", "/u/")):
        assert rest.call("POST", "/sobjects/StreamingChannel", {"Name": bad_name}).status_code == 400, bad_name


def test_streaming_events_can_be_published_with_their_time_and_are_recorded(org: LocalOrg, name: str) -> None:
    topic = org.push_topic(name, QUERY)["name"]
    channel = org.generic_channel(f"/u/{name}")["name"]
    assert org.generic_channel(channel)["name"] == channel
    sent = org.publish(topic, [{"sobject": {"Id": "1"}, "type": "updated", "createdDate": "2026-11-20T10:00:00Z"}])
    sent += org.publish(channel, [{"payload": {"replayId": None}, "createdDate": 1_000}])
    first, last = org.publish_many(channel, 2_500, {"payload": {"n": "{n}", "t": "no {n}"}})
    (updated,), (generic, *many) = org.record(topic), org.record(channel)
    assert json.loads(updated["payload"]) == {
        "event": {
            "createdDate": "2026-11-20T10:00:00.000Z",
            "replayId": int.from_bytes(sent[0], "big"),
            "type": "updated",
        },
        "sobject": {"Id": "1"},
    }
    assert json.loads(generic["payload"]) == {
        "event": {"createdDate": "1970-01-01T00:00:01.000Z", "replayId": int.from_bytes(sent[1], "big")},
        "payload": {"replayId": None},
    }
    assert (generic["schema_id"], generic["event_id"]) == (channel, None)
    assert [json.loads(event["payload"])["payload"] for event in many[:2]] == [
        {"n": n, "t": f"no {n}"} for n in range(2)
    ]
    assert (len(many), many[0]["replay_id"], many[-1]["replay_id"]) == (2_500, first, last)
    for topic_name, event in ((channel, {}), (channel, {"payload": 1, "type": "x"}), (topic, {"payload": 1})):
        with pytest.raises(AdminError, match="is an object with"):
            org.publish(topic_name, [event])
    with pytest.raises(AdminError, match="there is no topic"):
        org.publish("/topic/Nowhere", [{"sobject": {}}])


def test_generic_events_expire_by_streaming_retention_and_platform_events_do_not(
    org: LocalOrg, name: str, topic: str
) -> None:
    channel = org.generic_channel(f"/u/{name}")["name"]
    org.publish(topic, [{"Number__c": 1}])
    number = int.from_bytes(org.publish(channel, [{"payload": "old"}])[0], "big")
    org.knobs(streaming_retention_seconds=0.001)
    with BayeuxClient(org).opened(topic, -2) as client:
        assert "was invalid" in client.subscribe(channel, number)["error"]
        assert client.subscribe(channel, -2)["successful"]
        assert [message["channel"] for message in client.poll()] == [topic]
    assert [event["expired"] for event in org.record(channel)] == [True]


def test_limits_count_delivered_push_topic_and_generic_events(org: LocalOrg, name: str) -> None:
    topic, channel = org.push_topic(name, QUERY)["name"], org.generic_channel(f"/u/{name}")["name"]
    before = org.rest("GET", "/limits")
    with BayeuxClient(org).opened(topic) as client:
        assert client.subscribe(channel, -2)["successful"]
        org.publish(topic, [{"sobject": {"Id": "1"}}] * 3)
        org.publish(channel, [{"payload": "x"}] * 2)
        assert len(client.poll()) == 5
    after = org.rest("GET", "/limits")
    for allocation, events in (("DailyDurableStreamingApiEvents", 3), ("DailyDurableGenericStreamingApiEvents", 2)):
        assert before[allocation]["Remaining"] - after[allocation]["Remaining"] == events


def test_pubsub_api_has_no_push_topics_and_generic_channels(org: LocalOrg, name: str) -> None:
    for topic in (org.push_topic(name, QUERY)["name"], org.generic_channel(f"/u/{name}")["name"]):
        with pytest.raises(grpc.RpcError) as caught:
            org.stub().GetTopic(pb.TopicRequest(topic_name=topic), metadata=org.metadata())
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        request = pb.FetchRequest(topic_name=topic, num_requested=1)
        with pytest.raises(grpc.RpcError) as caught:
            next(org.stub().Subscribe(iter([request]), metadata=org.metadata()))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_faults_expire_and_reset_stream_apply_to_generic_channels(org: LocalOrg, name: str) -> None:
    channel = org.generic_channel(f"/u/{name}")["name"]
    ids = org.publish(channel, [{"payload": n} for n in range(4)])
    numbers = [int.from_bytes(replay_id, "big") for replay_id in ids]
    org.fault("expire", topic=channel, replay_id=ids[2].hex())
    with BayeuxClient(org).opened(channel, -2) as client:
        assert replay_ids(client.poll()) == numbers
        assert "was invalid" in client.subscribe(channel, numbers[2])["error"]
        org.fault("reset_stream", topic=channel)
        assert client.connect()[0]["error"] == "403::Unknown client"
        client.opened(channel, -2)
        assert client.poll() == []
        assert "was invalid" in client.subscribe(channel, numbers[3])["error"]


def test_topics_file_defines_push_topics_and_generic_channels(tmp_path: Path) -> None:
    topics = {
        "push_topics": [{"Name": "FromFile", "Query": "SELECT Id, Name FROM Account", "NotifyForFields": "All"}],
        "generic_channels": ["/u/from/file"],
    }
    with LocalOrg.running(tmp_path / "org", topics=topics) as org:
        assert org.admin("GET", "/topics")["streaming_channels"] == ["/topic/FromFile", "/u/from/file"]
        org.restart()  # the org loads the file again
        org.rest("POST", "/sobjects/Account", {"Name": "A"})
        assert len(org.record("/topic/FromFile")) == 1
        org.revoke()
        assert org.rest("GET", "/query?q=SELECT+COUNT()+FROM+PushTopic")["totalSize"] == 1
        refused = {
            "Required fields are missing": {"push_topics": [{"Name": "X"}]},
            "must be a mapping with the keys 'Name' and 'Query'": {"push_topics": ["X"]},
            "Invalid channel name: x": {"generic_channels": ["x"]},
            "topics are a mapping": {"push_topic": []},
        }
        for words, document in refused.items():
            with pytest.raises(AdminError, match=words):
                org.admin("PUT", "/topics", document)


def test_kill_9_leaves_exactly_one_push_topic_event_for_each_record(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as thread, LocalOrg.running(tmp_path / "org") as org:
        topic = org.push_topic("All", "SELECT Id FROM Contact")["name"]
        records = [{"attributes": {"type": "Contact"}, "LastName": f"c{n}"} for n in range(50)]

        def write_until_it_ends() -> int:
            for written in itertools.count():
                try:
                    org.rest("POST", "/composite/sobjects", {"records": records, "allOrNone": True})
                except ConnectionError:
                    return written * len(records)
            raise AssertionError("count() never ends")

        writing = thread.submit(write_until_it_ends)
        wait_until(lambda: len(org.record(topic)) >= 200)
        org.kill()
        acknowledged = writing.result(60)
        org.start()
        event_ids = [json.loads(event["payload"])["sobject"]["Id"] for event in org.record(topic)]
        contacts = org.rest("GET", "/query?q=SELECT+COUNT()+FROM+Contact")["totalSize"]
        assert (len(event_ids), len(set(event_ids))) == (contacts, contacts)
        assert acknowledged <= contacts <= acknowledged + len(records)
        with BayeuxClient(org).opened(topic, -2) as client:
            assert [message["data"]["sobject"]["Id"] for message in client.poll()] == event_ids
