"""How one schema of an event differs from another."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from airflow_provider_sfstream.replay_windows.schema_changes import SchemaChange, fields_of
from airflow_provider_sfstream.salesforce.schemas import parse

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


def with_type(name: str, type_: Any, **said: Any) -> list[dict[str, Any]]:
    return [{**field, "type": type_, **said} if field["name"] == name else field for field in FIELDS]


def test_fields_are_named_by_their_path_also_where_a_record_is_named_again() -> None:
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
    assert not change(with_type("Amount__c", "double")), "nor is a field that may not be null any more"


def test_a_field_that_came_and_one_that_went() -> None:
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
def test_a_field_of_another_type(type_: Any, doc: str | None, now: str) -> None:
    found = change(with_type("Amount__c", type_, doc=doc))
    assert dict(found.retyped) == {"Amount__c": ("double (Double)", now)}
    assert (len(found), dict(found.added), dict(found.removed)) == (1, {}, {})


@pytest.mark.parametrize("nullable", [["null", "long"], ["long", "null"], ["null", {"type": "long"}]])
def test_a_field_that_may_be_null_since(nullable: Any) -> None:
    found = change(with_type("CreatedDate", nullable))
    assert dict(found.became_nullable) == {"CreatedDate": "long (DateTime)"}
    assert (len(found), dict(found.added), dict(found.removed), dict(found.retyped)) == (1, {}, {}, {})
    assert str(found) == "Order__e: CreatedDate became nullable (long (DateTime))"


def test_one_may_be_null_since_and_of_another_type() -> None:
    found = change(with_type("CreatedDate", ["null", "string"]))
    assert dict(found.retyped) == {"CreatedDate": ("long (DateTime)", "string (DateTime)")}
    assert dict(found.became_nullable) == {"CreatedDate": "string (DateTime)"}


def test_of_a_compound_field_each_part_has_its_own() -> None:
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


def test_a_new_field_that_may_be_null_is_told_as_new_alone() -> None:
    assert len(change([*FIELDS, {"name": "Note__c", "type": ["null", "string"]}])) == 1


def test_a_field_inside_a_compound_one() -> None:
    more = copy.deepcopy(ADDRESS)
    more["fields"].append({"name": "Zip", "type": ["null", "string"]})  # type: ignore[attr-defined]
    found = change(with_type("Billing", ["null", more]))
    assert dict(found.added) == {"Billing.Zip": "string", "Shipping.Zip": "string"}


def test_a_field_deleted_and_made_again_as_it_was_is_no_change() -> None:
    assert not change(with_type("Amount__c", ["null", "double"], doc="Data:Double:00N9"))


def test_the_document_is_json() -> None:
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
