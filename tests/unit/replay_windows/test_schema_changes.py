"""Schema changes of windows: new schemas, and the earlier schema of each comparison."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import LandingError
from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.landing.storage import write_once
from airflow_provider_sfstream.replay_windows import schema_changes as module
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.replay_windows.schema_changes import SchemaChange, fields_of, schema_changes
from airflow_provider_sfstream.salesforce.schemas import parse
from tests.support.windows import STREAM, manifest


class Lake:
    """Landing whose windows have schemas but no events."""

    def __init__(self, folder: Path) -> None:
        self.catalog = LandingCatalog(Landing.from_url(str(folder)))
        self.landed = LandedStream(STREAM, self.catalog, None)  # type: ignore[arg-type]  # live windows need no store
        self._last: str | None = None
        self._number = 0

    def schema(self, schema_id: str, *fields: str, event: str = "Order__e", text: str | None = None) -> None:
        listed = [{"name": name, "type": ["null", "string"]} for name in fields]
        text = text or json.dumps({"type": "record", "name": event, "fields": listed})
        landing = self.catalog.landing
        write_once(landing.filesystem, landing.schema_path(STREAM, schema_id), text.encode())

    def window(self, *schema_ids: str) -> Manifest:
        """Land the next window, with these schemas."""
        self._number += 1
        plain = manifest(self.catalog.landing, number=self._number, previous=self._last)
        written = self.catalog.write_manifest(
            replace(plain, schemas={each: Landing.schema_reference(each) for each in schema_ids})
        )
        self._last = written.window.window_id
        return written

    def changes(self, *windows: Manifest) -> list[tuple[str, str, list[str], list[str]]]:
        found = schema_changes(self.landed, windows)
        return [(each.before, each.schema_id, list(each.added), list(each.removed)) for each in found]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    one = Lake(tmp_path)
    one.schema("A", "Name")
    one.schema("B", "Name", "Note")
    one.schema("C", "Name", "Note", "More")
    one.schema("other", "Name", event="Invoice__e")
    return one


def test_a_new_schema_is_compared_with_the_one_before(lake: Lake) -> None:
    assert lake.changes(lake.window("A")) == [], "no earlier schema"
    assert lake.changes(lake.window("A")) == []
    assert lake.changes(lake.window("A", "B")) == [("A", "B", ["Note"], [])]
    assert lake.changes(lake.window("B")) == []


def test_windows_without_events_do_not_affect_the_comparison(lake: Lake) -> None:
    lake.window("A")
    for _ in range(3):
        assert lake.changes(lake.window()) == []
    assert lake.changes(lake.window("B")) == [("A", "B", ["Note"], [])]


def test_returning_older_schema_is_not_new(lake: Lake) -> None:
    """A publisher may continue with the schema that it has cached."""
    lake.window("A")
    lake.window("B")
    assert lake.changes(lake.window("A")) == []
    assert lake.changes(lake.window("B")) == []


def test_older_schema_that_returns_after_many_windows_is_new(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KNOWN_FOR", 3)
    lake.window("A")
    for _ in range(5):
        lake.window("B")
    assert lake.changes(lake.window("A")) == [("B", "A", [], ["Note"])]


def test_schema_is_compared_within_its_own_event(lake: Lake) -> None:
    lake.window("A")
    lake.window("other")
    assert lake.changes(lake.window("B", "other")) == [("A", "B", ["Note"], [])]


def test_new_event_of_a_stream_is_not_a_change(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.window("A")
    assert lake.changes(lake.window("other")) == []
    monkeypatch.setattr(module, "LONGEST_POLL", 2)
    for _ in range(4):
        lake.window("A")
    reads: list[str] = []
    read = lake.catalog.read_manifest
    monkeypatch.setattr(lake.catalog, "read_manifest", lambda stream, id_: reads.append(id_) or read(stream, id_))
    lake.schema("third", "Name", event="Third__e")
    assert lake.changes(lake.window("third")) == []
    assert len(reads) <= 4, "the search of earlier windows is bounded"


def test_most_similar_earlier_schema_is_compared(lake: Lake) -> None:
    lake.window("A", "B")
    assert lake.changes(lake.window("C")) == [("B", "C", ["More"], [])]


def test_schemas_that_differ_only_in_texts_are_no_change(lake: Lake) -> None:
    lake.window("A")
    text = json.dumps(
        {"type": "record", "name": "Order__e", "doc": "x", "fields": [{"name": "Name", "type": "string"}]}
    )
    lake.schema("A2", text=text)
    assert lake.changes(lake.window("A2")) == []


def test_field_that_is_no_longer_nullable_is_no_change(lake: Lake) -> None:
    required = {"type": "record", "name": "Order__e", "fields": [{"name": "Name", "type": "string"}]}
    lake.schema("required", text=json.dumps(required))
    lake.window("required")
    [change] = schema_changes(lake.landed, [lake.window("A")])
    assert (change.before, change.schema_id, dict(change.became_nullable)) == ("required", "A", {"Name": "string"})
    assert lake.changes(lake.window("required")) == []


def test_several_windows_report_each_change_once(lake: Lake) -> None:
    lake.window("A")
    windows = [lake.window("B"), lake.window("B"), lake.window("C")]
    assert [(before, now) for before, now, *_ in lake.changes(*windows)] == [("A", "B"), ("B", "C")]


def test_unchanged_schema_needs_one_manifest_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(5):
        lake.window("A")
    last, reads = lake.window("A"), []
    read = lake.catalog.read_manifest
    monkeypatch.setattr(lake.catalog, "read_manifest", lambda stream, id_: reads.append(id_) or read(stream, id_))
    monkeypatch.setattr(lake.catalog.landing.filesystem, "cat_file", _only_manifests(lake.catalog.landing.filesystem))
    assert lake.changes(last) == []
    assert len(reads) == 1


def _only_manifests(filesystem: Any) -> Any:
    read = filesystem.cat_file

    def cat_file(path: str, *arguments: Any, **options: Any) -> Any:
        assert path.endswith("manifest.json"), path
        return read(path, *arguments, **options)

    return cat_file


def test_invalid_schema_is_left_out(lake: Lake) -> None:
    lake.window("A")
    lake.schema("broken", text="no JSON")
    assert lake.changes(lake.window("broken", "B")) == [("A", "B", ["Note"], [])]


def test_unreadable_schema_is_an_error(lake: Lake) -> None:
    lake.window("A")
    with pytest.raises(LandingError, match="Schema gone"):
        lake.changes(lake.window("gone"))


ADDRESS = {
    "type": "record",
    "name": "Address",
    "fields": [
        {"name": "Street", "type": ["null", "string"], "doc": "Data:TextArea"},
        {"name": "City", "type": ["null", "string"], "doc": "Data:Text"},
    ],
}
FIELDS: list[dict[str, Any]] = [
    {"name": "CreatedDate", "type": "long", "doc": "CreatedDate:DateTime"},
    {"name": "Amount__c", "type": ["null", "double"], "doc": "Data:Double:00N1"},
    {"name": "Billing", "type": ["null", ADDRESS], "doc": "Data:Address"},
    {"name": "Shipping", "type": ["null", "Address"], "doc": "Data:Address"},
    {"name": "Tags", "type": {"type": "array", "items": "string"}},
]


def schema(fields: list[dict[str, Any]]) -> dict[str, Any]:
    document = {"type": "record", "name": "Order__e", "namespace": "com.sforce.eventbus", "fields": fields}
    return parse(json.dumps(document))


def change(fields: list[dict[str, Any]], before: list[dict[str, Any]] = FIELDS) -> SchemaChange:
    return SchemaChange.between("old", schema(before), "new", schema(fields))


def with_type(name: str, type_: Any, **attributes: Any) -> list[dict[str, Any]]:
    return [{**field, "type": type_, **attributes} if field["name"] == name else field for field in FIELDS]


def test_fields_of_repeated_records_are_named_by_their_path() -> None:
    assert {name: field.type for name, field in fields_of(schema(FIELDS)).items()} == {
        "CreatedDate": "long (DateTime)",
        "Amount__c": "double (Double)",
        "Billing": "record (Address)",
        "Billing.Street": "string (TextArea)",
        "Billing.City": "string (Text)",
        "Shipping": "record (Address)",
        "Shipping.Street": "string (TextArea)",
        "Shipping.City": "string (Text)",
        "Tags": "array<string>",
    }


def test_equal_schemas_do_not_differ() -> None:
    assert not change(copy.deepcopy(FIELDS))
    assert not change(list(reversed(FIELDS[:3])) + FIELDS[3:]), "the order of fields is no difference"
    assert not change(with_type("Amount__c", "double")), "a field that is no longer nullable is no difference"


def test_added_and_removed_fields_are_reported() -> None:
    new = {"name": "Note__c", "type": ["null", "string"], "doc": "Data:Text:00N2"}
    found = change([*FIELDS[:1], *FIELDS[2:], new])
    assert (dict(found.added), dict(found.removed), dict(found.retyped)) == (
        {"Note__c": "string (Text)"},
        {"Amount__c": "double (Double)"},
        {},
    )
    assert len(found) == 2
    assert str(found) == "Order__e: Note__c added (string (Text)), Amount__c removed (double (Double))"


@pytest.mark.parametrize(
    ("type_", "doc", "now"),
    [
        (["null", "string"], "Data:Text:00N1", "string (Text)"),
        (["null", "double"], "Data:Percent:00N1", "double (Percent)"),
        (["null", "double", "string"], "Data:Double:00N1", "double|string (Double)"),
        ({"type": "map", "values": "long"}, None, "map<long>"),
        ({"type": "long", "logicalType": "timestamp-millis"}, None, "timestamp-millis"),
    ],
)
def test_field_with_another_type_is_reported_as_retyped(type_: Any, doc: str | None, now: str) -> None:
    found = change(with_type("Amount__c", type_, doc=doc))
    assert dict(found.retyped) == {"Amount__c": ("double (Double)", now)}
    assert (len(found), dict(found.added), dict(found.removed)) == (1, {}, {})


@pytest.mark.parametrize("nullable", [["null", "long"], ["long", "null"], ["null", {"type": "long"}]])
def test_field_that_became_nullable_is_reported(nullable: Any) -> None:
    found = change(with_type("CreatedDate", nullable))
    assert dict(found.became_nullable) == {"CreatedDate": "long (DateTime)"}
    assert (len(found), dict(found.added), dict(found.removed), dict(found.retyped)) == (1, {}, {}, {})
    assert str(found) == "Order__e: CreatedDate became nullable (long (DateTime))"


def test_field_that_became_nullable_and_retyped_is_reported_as_both() -> None:
    found = change(with_type("CreatedDate", ["null", "string"]))
    assert dict(found.retyped) == {"CreatedDate": ("long (DateTime)", "string (DateTime)")}
    assert dict(found.became_nullable) == {"CreatedDate": "string (DateTime)"}


def test_parts_of_a_compound_field_are_reported_separately() -> None:
    strict, loose = copy.deepcopy(ADDRESS), copy.deepcopy(ADDRESS)
    strict["fields"][1]["type"] = "string"  # type: ignore[index]
    before = with_type("Billing", ["null", strict])
    assert set(change(with_type("Billing", ["null", loose]), before).became_nullable) == {
        "Billing.City",
        "Shipping.City",
    }
    assert set(change(with_type("Billing", ["null", strict]), with_type("Billing", strict)).became_nullable) == {
        "Billing"
    }


def test_new_nullable_field_is_reported_only_as_added() -> None:
    assert len(change([*FIELDS, {"name": "Note__c", "type": ["null", "string"]}])) == 1


def test_field_added_inside_a_compound_field_is_reported() -> None:
    more = copy.deepcopy(ADDRESS)
    more["fields"].append({"name": "Zip", "type": ["null", "string"]})  # type: ignore[attr-defined]
    found = change(with_type("Billing", ["null", more]))
    assert dict(found.added) == {"Billing.Zip": "string", "Shipping.Zip": "string"}


def test_field_that_is_recreated_unchanged_is_no_change() -> None:
    assert not change(with_type("Amount__c", ["null", "double"], doc="Data:Double:00N9"))


def test_schema_change_document_is_json() -> None:
    found = change(with_type("Amount__c", "string", doc="Data:Text:1"))
    assert json.loads(json.dumps(found.document())) == {
        "event": "Order__e",
        "schema_id": "new",
        "before": "old",
        "added": [],
        "removed": [],
        "retyped": [{"name": "Amount__c", "from": "double (Double)", "to": "string (Text)"}],
        "became_nullable": [],
    }
    loose = change(with_type("CreatedDate", ["null", "long"])).document()
    assert loose["became_nullable"] == [{"name": "CreatedDate", "type": "long (DateTime)"}]
