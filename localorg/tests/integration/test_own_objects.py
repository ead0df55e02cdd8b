"""Custom objects and fields from a topics file or /admin: records, change events, queries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sfstream_localorg.records.fields import COMPOUND_TYPES, FIELD_TYPES, TYPE_NAMES
from tests.support.localorg import AdminError, LocalOrg
from tests.support.sobject_client import SObjectClient, not_null

TOPIC = "/data/Invoice__ChangeEvent"
VALUES: dict[str, Any] = {
    "Text": "text",
    "Phone": "+43 1",
    "Email": "a@example.com",
    "Url": "https://example.com",
    "DynamicEnum": "One",
    "StaticEnum": "Two",
    "MultiEnum": "One;Two",
    "StringPlusClob": "long text",
    "HtmlStringPlusClob": "<p>rich</p>",
    "ExternalId": "X-1",
    "Currency": 12.5,
    "Double": 1.25,
    "Percent": 99.0,
    "Integer": 7,
    "Boolean": True,
    "DateTime": "2026-11-21T08:00:00.000+0000",
    "CreatedDate": "2026-11-22T08:00:00.000+0000",
    "DateOnly": "2026-11-21",
    "TimeOnly": "08:30:00.000Z",
}
FIELDS = [
    *({"name": f"Own_{kind}__c", "type": kind} for kind in VALUES),
    {"name": "Own_Place__c", "type": "Location"},
    {"name": "Number__c", "type": "AutoNumber", "externalId": True},
    {"name": "Paid__c", "type": "Checkbox"},
    {"name": "Customer__c", "type": "Lookup", "referenceTo": "Account"},
    {"name": "Parent__c", "type": "Lookup", "referenceTo": "Invoice__c"},
    {"name": "Industry__c", "type": "Text", "formula": "Customer__r.Industry"},
]
TOPICS = {
    "objects": [
        {"name": "Invoice__c", "fields": FIELDS},
        {"name": "Account", "fields": [{"name": "Tier__c", "type": "Picklist"}]},
    ],
    "channels": [{"name": "Sales__chn", "members": ["Invoice__ChangeEvent", "AccountChangeEvent"]}],
}


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org") / "org", topics=TOPICS) as org:
        yield org


@pytest.fixture
def client(org: LocalOrg) -> Iterator[SObjectClient]:
    client = SObjectClient(org, version="62.0")
    yield client
    client.close()


def last_event(org: LocalOrg, topic: str = TOPIC) -> dict[str, Any]:
    return dict(org.record(topic)[-1]["fields"])


def test_a_record_with_all_types_of_fields_is_read_as_written(org: LocalOrg, client: SObjectClient) -> None:
    assert {*FIELD_TYPES, "Location"} - {"EntityId"} == {*VALUES, "Location"}
    account = client.create("Account", Name="customer", Industry="Banking", Tier__c="Gold")
    values = {f"Own_{kind}__c": value for kind, value in VALUES.items()}
    values |= {"Own_Place__Latitude__s": 48.2, "Own_Place__Longitude__s": 16.4, "Customer__c": account, "Paid__c": True}
    record_id = client.create("Invoice__c", **values)
    assert record_id.startswith("a01")
    shown = client.call("GET", f"/sobjects/Invoice__c/{record_id}").json()
    assert {name: shown[name] for name in values} == values
    assert shown["Industry__c"] == "Banking"
    event = not_null(last_event(org))
    assert (event["Own_Text__c"], event["Own_Integer__c"], event["Own_Place__c.Latitude"]) == ("text", 7, 48.2)
    assert "Industry__c" not in event
    assert last_event(org, "/data/Sales__chn") == last_event(org, "/data/ChangeEvents") == last_event(org)


def test_changes_of_a_custom_object_are_change_events_with_the_changed_fields(
    org: LocalOrg, client: SObjectClient
) -> None:
    record_id = client.create("Invoice__c", Own_Text__c="before", Own_Currency__c=1)
    client.update("Invoice__c", record_id, Own_Text__c="after", Own_Currency__c=None)
    event = last_event(org)
    assert (event["ChangeEventHeader"]["changeType"], event["Own_Text__c"]) == ("UPDATE", "after")
    assert (event["ChangeEventHeader"]["entityName"], event["Own_Currency__c"]) == ("Invoice__c", None)
    client.delete("Invoice__c", record_id)
    assert last_event(org)["ChangeEventHeader"]["recordIds"] == [record_id]


def test_lookups_and_external_ids_of_a_custom_object(client: SObjectClient) -> None:
    account = client.create("Account", Name="parent")
    for expected in (201, 200):
        answer = client.call("PATCH", "/sobjects/Invoice__c/Number__c/R-1", {"Customer__c": account})
        assert answer.status_code == expected
    (record,) = client.query("SELECT Customer__r.Name FROM Invoice__c WHERE Number__c = 'R-1'")
    assert record["Customer__r"]["Name"] == "parent"
    described = {one["name"]: one for one in client.call("GET", "/sobjects/Invoice__c/describe").json()["fields"]}
    assert described["Customer__c"]["referenceTo"] == ["Account"]
    assert described["Parent__c"]["referenceTo"] == ["Invoice__c"]
    assert described["Number__c"]["externalId"]


def test_objects_survive_a_restart_and_a_topics_file_may_add_to_them(tmp_path: Path) -> None:
    with LocalOrg.running(tmp_path / "org", topics=TOPICS) as org:
        org.define_object("Other__c", Sum__c="Number")
        record_id = org.rest("POST", "/sobjects/Other__c", {"Sum__c": 1.5})["id"]
        before = {one["name"]: one for one in org.admin("GET", "/entities")["entities"]}
        org.restart()
        assert {one["name"]: one for one in org.admin("GET", "/entities")["entities"]} == before
        assert org.rest("GET", f"/sobjects/Other__c/{record_id}")["Sum__c"] == 1.5
        org.define_object("Other__c", Sum__c="Number", Of__c={"type": "Lookup", "referenceTo": "Invoice__c"})
        after = {one["name"]: one for one in org.admin("GET", "/entities")["entities"]}
        assert [one["name"] for one in after["Other__c"]["fields"]][-2:] == ["Sum__c", "Of__c"]
        assert after["Other__c"]["schema_id"] != before["Other__c"]["schema_id"]
        third = org.define_object("Third__c")
        assert third["topic"] == "/data/Third__ChangeEvent"
        ids = [org.rest("POST", f"/sobjects/{name}", {})["id"][:3] for name in ("Invoice__c", "Other__c", "Third__c")]
        assert ids == ["a01", "a02", "a03"]


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("Invoice", []),
        ("Lead", []),
        ("PushTopic", [{"name": "Own__c", "type": "Text"}]),
        ("New__c", [{"name": "Own", "type": "Text"}]),
        ("New__c", [{"name": "Own__c", "type": "Nothing"}]),
        ("New__c", [{"name": "Own__c", "type": "Address"}]),
        ("New__c", [{"name": "Own__c"}]),
        ("New__c", [{"name": "Own__c", "type": "Text", "length": 5}]),
        ("New__c", [{"name": "Own__c", "type": "Text", "referenceTo": "Account"}]),
        ("New__c", [{"name": "Own__c", "type": "Lookup", "referenceTo": "Nothing"}]),
        ("New__c", [{"name": "Own__c", "type": "Checkbox", "externalId": True}]),
        ("New__c", [{"name": "Own__c", "type": "Text"}, {"name": "Own__c", "type": "Number"}]),
        ("Invoice__c", [{"name": "Paid__c", "type": "Text"}]),
        ("New__c", {"Own__c": "Text"}),
        ("New__c", ["Own__c"]),
    ],
)
def test_invalid_custom_objects_are_refused(org: LocalOrg, name: str, fields: Any) -> None:
    before = org.admin("GET", "/entities")
    with pytest.raises(AdminError, match="400"):
        org.admin("PUT", f"/entities/{name}", {"fields": fields})
    assert org.admin("GET", "/entities") == before


def test_each_field_type_of_the_metadata_api_maps_to_a_field_type() -> None:
    assert set(TYPE_NAMES.values()) <= set(FIELD_TYPES)
    assert not set(TYPE_NAMES) & {*FIELD_TYPES, *COMPOUND_TYPES}


def test_a_topics_document_can_be_loaded_while_the_org_runs(org: LocalOrg) -> None:
    org.admin("PUT", "/topics", json.loads(json.dumps(TOPICS)))
    with pytest.raises(AdminError, match="an object is a mapping"):
        org.admin("PUT", "/topics", {"objects": ["Invoice__c"]})
