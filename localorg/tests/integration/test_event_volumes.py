"""Standard-volume platform events: their retention in both APIs, and their definition in the Tooling API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.bayeux_client import BayeuxClient, replay_ids
from tests.support.localorg import AdminError, LocalOrg, reset_org
from tests.support.sobject_client import SObjectClient, error_of
from tests.support.subscriber import Subscriber, error_code

HOUR = 3600
TOPICS = {
    "platform_events": [
        {"name": "Old__e", "fields": [{"name": "Number__c", "type": "int"}], "volume": "standard"},
        {"name": "New__e", "fields": [{"name": "Number__c", "type": "int"}]},
    ]
}


@pytest.fixture(scope="module")
def module_org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org") / "org", topics=TOPICS) as org:
        yield org


@pytest.fixture
def org(module_org: LocalOrg) -> Iterator[LocalOrg]:
    yield module_org
    reset_org(module_org)


@pytest.fixture
def client(org: LocalOrg) -> Iterator[SObjectClient]:
    client = SObjectClient(org, version="62.0")
    yield client
    client.close()


def event_type(client: SObjectClient, developer_name: str) -> str:
    where = f"DeveloperName = '{developer_name}' AND NamespacePrefix = null"
    answer = client.call("GET", "/tooling/query", params={"q": f"SELECT Metadata FROM CustomObject WHERE {where}"})
    (record,) = answer.json()["records"]
    return str(record["Metadata"]["eventType"])


def test_standard_volume_events_are_retained_for_24_hours_on_either_api(tmp_path: Path) -> None:
    with LocalOrg.running(tmp_path / "org", topics=TOPICS) as org:
        retained = {}
        for name in ("Old__e", "New__e"):
            (retained[name],) = org.publish(f"/event/{name}", [{"Number__c": 1}])
        org.knobs(clock_offset_seconds=25 * HOUR)
        expired = Subscriber(org).fetch(1, "/event/Old__e", after=retained["Old__e"]).error()
        assert error_code(expired) == "subscription.fetch.replayid.corrupted"
        later = {name: org.publish(f"/event/{name}", [{"Number__c": 2}]) for name in retained}
        for name, expected in (("Old__e", later["Old__e"]), ("New__e", [retained["New__e"], *later["New__e"]])):
            with Subscriber(org).fetch(10, f"/event/{name}") as subscriber:
                assert [event.replay_id for event in subscriber.next().events] == expected
            with BayeuxClient(org).opened(f"/event/{name}", -2) as bayeux:
                assert replay_ids(bayeux.poll()) == [int.from_bytes(one[:8], "big") for one in expected]


def test_tooling_api_shows_the_volume_of_an_event(org: LocalOrg, client: SObjectClient) -> None:
    assert (event_type(client, "Old"), event_type(client, "New")) == ("StandardVolume", "HighVolume")
    assert event_type(client, "Shipment") == "None"  # a custom object has no event type
    found = client.call(
        "GET", "/tooling/query", params={"q": "SELECT Id FROM CustomObject WHERE DeveloperName = 'Old'"}
    )
    (record,) = found.json()["records"]
    shown = client.call("GET", f"/tooling/sobjects/CustomObject/{record['Id']}").json()
    assert (shown["FullName"], shown["Metadata"]["eventType"]) == ("Old__e", "StandardVolume")


def test_metadata_of_several_objects_is_refused(client: SObjectClient) -> None:
    answer = client.call("GET", "/tooling/query", params={"q": "SELECT Metadata FROM CustomObject"})
    assert error_of(answer)[:2] == (400, "MALFORMED_QUERY")


def test_tooling_object_does_not_exist_without_the_permission_view_setup(org: LocalOrg, client: SObjectClient) -> None:
    org.knobs(view_setup=False)
    query = {"q": "SELECT Metadata FROM CustomObject WHERE DeveloperName = 'Old'"}
    answer = client.call("GET", "/tooling/query", params=query)
    assert answer.status_code == 400
    assert answer.json() == [{"errorCode": "INVALID_TYPE", "message": "sObject type 'CustomObject' is not supported."}]
    answer = client.call("GET", "/tooling/sobjects/CustomObject/01I000000000001AAA")
    assert error_of(answer)[:2] == (404, "NOT_FOUND")


def test_volume_of_an_event_stays_until_it_is_changed(org: LocalOrg, client: SObjectClient) -> None:
    topic: dict[str, Any] = org.define("Changed__e", volume="standard", Number__c="int")
    assert topic["volume"] == "standard"
    assert org.define("Changed__e", Number__c="int", Text__c="text")["volume"] == "standard"
    assert event_type(client, "Changed") == "StandardVolume"
    assert org.define("Changed__e", volume="high", Number__c="int")["volume"] == "high"
    with pytest.raises(AdminError, match="volume='low'"):
        org.define("Changed__e", volume="low", Number__c="int")


def test_volume_of_an_event_survives_a_restart(tmp_path: Path) -> None:
    with LocalOrg.running(tmp_path / "org", topics=TOPICS) as org:
        org.restart()
        assert {one["name"]: one["volume"] for one in org.admin("GET", "/topics")["topics"]}[
            "/event/Old__e"
        ] == "standard"
