from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_sfstream.tables.decode.avro_columns import members_of, needs_fastavro


def record(*fields: dict[str, Any], name: str = "Order__e") -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": "com.sforce.eventbus", "fields": list(fields)}


def columns(*fields: dict[str, Any]) -> dict[str, Any]:
    return {member.name: member.value.type for member in members_of(json.dumps(record(*fields)))}


@pytest.mark.parametrize(
    ("doc", "avro", "expected"),
    [
        ("CreatedDate:DateTime", "long", "timestamp"),
        ("Data:DateTime", ["null", "long"], "timestamp"),
        ("Data:DateTime:00NDp000009Rr9D", ["long", "null"], "timestamp"),
        ("Data:DateOnly:00NDp000009Rr9I", ["null", "long"], "date"),
        ("Data:TimeOnly:00NDp000009RrA1", ["null", "long"], "long"),
        ("Data:Double:00N1", ["null", "double"], "double"),
        ("Data:DateTime", ["null", "string"], "string"),
        ("Data:Boolean", ["null", "boolean"], "boolean"),
        ("Data:Integer", ["null", "int"], "int"),
        (None, ["null", "bytes"], "binary"),
        ("DateTime", ["null", "long"], "long"),
        (None, {"type": "enum", "name": "E", "symbols": ["A"]}, "string"),
        (None, {"type": "array", "items": ["null", "string"]}, {"array": "string"}),
        (None, ["null", {"type": "map", "values": "long"}], {"map": "long"}),
        (None, {"type": "long", "logicalType": "timestamp-millis"}, "timestamp"),
        (None, {"type": "int", "logicalType": "date"}, "date"),
    ],
)
def test_doc_of_a_field_determines_its_type(doc: str | None, avro: Any, expected: Any) -> None:
    assert columns({"name": "Field__c", "type": avro, "doc": doc}) == {"Field__c": expected}


def test_union_of_text_and_record_becomes_two_columns_in_either_order() -> None:
    person = {"type": "record", "name": "Person", "fields": [{"name": "First", "type": ["null", "string"]}]}
    expected = {"Name": "string", "Name_record": {"struct": {"First": "string"}}}
    assert columns({"name": "Name", "type": ["null", "string", person]}) == expected
    assert columns({"name": "Name", "type": [person, "string"]}) == expected
    assert [m.branch for m in members_of(json.dumps(record({"name": "Name", "type": ["null", "string", person]})))] == [
        1,
        2,
    ]


def test_named_type_is_resolved_by_its_name_and_namespace() -> None:
    address = {"type": "record", "name": "Address", "fields": [{"name": "City", "type": ["null", "string"]}]}
    struct = {"struct": {"City": "string"}}
    assert columns(
        {"name": "Billing", "type": ["null", address]},
        {"name": "Shipping", "type": ["null", "Address"]},
        {"name": "Other", "type": "com.sforce.eventbus.Address"},
    ) == {"Billing": struct, "Shipping": struct, "Other": struct}


@pytest.mark.parametrize(
    "avro",
    [
        ["null", "int", "long"],
        {"type": "array", "items": ["int", "string"]},
    ],
)
def test_union_without_a_column_type_is_stored_as_text_by_fastavro(avro: Any) -> None:
    members = members_of(json.dumps(record({"name": "Field__c", "type": avro})))
    assert needs_fastavro(members)
    assert members[0].value.type in ("string", {"array": "string"})


def test_a_null_field_has_no_column() -> None:
    assert columns({"name": "Nothing", "type": "null"}, {"name": "Neither", "type": ["null"]}) == {}
