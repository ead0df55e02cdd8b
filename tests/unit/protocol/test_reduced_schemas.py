"""Payloads without some fields: what is left reads as before, and nothing of the fields is in it."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Mapping
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_sfstream.exceptions import ConfigurationError, SchemaError
from airflow_provider_sfstream.protocol.bitmaps import field_names
from airflow_provider_sfstream.protocol.field_rules import landing_rules
from airflow_provider_sfstream.protocol.reduced_schemas import ReducedSchema, left_out_names
from airflow_provider_sfstream.spark.rows.replica_columns import replica_columns
from sfstream_localorg.records.entities import STANDARD_ENTITIES
from tests.support.change_events import encode_events, flat_columns, random_bitmap, random_event

SCHEMAS = [entity.schema() for entity in STANDARD_ENTITIES[:2]]
NAMES = sorted(
    {field["name"] for schema in SCHEMAS for field in schema["fields"][1:] if field["name"] != "CreatedDate"}
    | {"BillingAddress.Street", "ShippingAddress.City", "MailingAddress.Latitude", "Name.FirstName", "BillingStreet"}
    | {"Contact.Phone", "LastName", "ChangeEventHeader.commitUser"}
)
PERSON = {
    "type": "record",
    "name": "Person",
    "fields": [{"name": "First", "type": "string"}, {"name": "Flag", "type": "boolean"}],
}
OTHER = {
    "type": "record",
    "name": "Order__e",
    "namespace": "com.sforce.eventbus",
    "fields": [
        {"name": "CreatedDate", "type": "long"},
        {"name": "Kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "Kinds", "type": {"type": "array", "items": "Kind"}},
        {"name": "Sums", "type": {"type": "map", "values": ["null", "double", "float"]}},
        {"name": "Key", "type": {"type": "fixed", "name": "Key", "size": 3}},
        {"name": "Raw", "type": "bytes"},
        {"name": "People", "type": {"type": "array", "items": PERSON}},
        {"name": "Owner", "type": ["null", "Person"]},
    ],
}
ORDER = {
    "CreatedDate": -(1 << 62),
    "Kind": "B",
    "Kinds": ["A"] * 70 + ["B"],
    "Sums": {"é": 1.5, "none": None},
    "Key": b"abc",
    "Raw": b"\xff" * 200,
    "People": [{"First": "Ada", "Flag": True}, {"First": "", "Flag": False}],
    "Owner": {"First": "Grace", "Flag": True},
}


def read(schema: Any, payload: bytes) -> dict[str, Any]:
    stream = io.BytesIO(payload)
    record = fastavro.schemaless_reader(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), None)
    assert stream.tell() == len(payload)
    assert isinstance(record, dict)
    return record


def without(value: Any, path: tuple[str, ...], gone: set[str]) -> Any:
    """Return a value without what is named, lower case and dotted, written without the product's own code."""
    if ".".join(path).lower() in gone:
        return None
    if isinstance(value, Mapping):
        return {name: without(inner, (*path, name), gone) for name, inner in value.items()}
    return value


def named(schema: Any, names: list[str]) -> set[str]:
    """Return what names stand for in a schema, lower case and dotted."""
    table = schema["name"].removesuffix("ChangeEvent")
    own = {name.lower().removeprefix(f"{table.lower()}.") for name in names}
    flat = {name.lower(): (position, part) for name, position, part, *_ in flat_columns(schema) if part is not None}
    records = {b["name"]: b["fields"] for f in schema["fields"] for b in f["type"] if isinstance(b, dict)}
    for name in own & flat.keys():
        field = schema["fields"][flat[name][0]]
        (parts,) = (
            records[k] for b in field["type"] for k in [b["name"] if isinstance(b, dict) else b] if k in records
        )
        own = own | {f"{field['name']}.{parts[flat[name][1]]['name']}".lower()}
    return own


@given(st.data())
@settings(deadline=None, max_examples=12)
def test_what_is_left_reads_as_the_whole_does_without_the_fields(data: st.DataObject) -> None:
    schema = data.draw(st.sampled_from(SCHEMAS))
    names = data.draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=12, unique=True))
    shape = random.Random(data.draw(st.integers(0, 1 << 30)))
    reduced = ReducedSchema("an-id", json.dumps(schema), landing_rules(names))
    gone = named(schema, names)
    left = json.loads(reduced.schema_json)
    for event, payload in [(e, encode_events(schema, [e])[0]) for e in (random_event(schema, shape) for _ in range(5))]:
        kept = reduced.reduced(payload)
        expected = without(event, (), gone)
        assert read(left, kept) == expected
        # The same rows of a replica: each bit means the field that it meant, or one that is not there.
        columns = {column.name for column in replica_columns(left)}
        clear = {column.name: (column.position, column.part) for column in replica_columns(schema)}
        places = {column.name: (column.position, column.part) for column in replica_columns(left)}
        assert {name: place for name, place in clear.items() if name in columns} == places
    bitmap = random_bitmap(schema, shape, 0.5)
    if not any("-" in entry for entry in bitmap):
        assert field_names(bitmap, left) == field_names(bitmap, schema)


def test_the_bytes_of_a_field_are_not_in_what_is_left() -> None:
    schema = SCHEMAS[0]
    event = random_event(schema, random.Random(1), "CREATE")
    event |= {"Phone": "MARK-1", "Website": "KEPT", "BillingAddress": None, "Name": {"FirstName": "MARK-2"}}
    event["Name"] |= {"Salutation": None, "LastName": "KEPT-2"}
    (payload,) = encode_events(schema, [event])
    kept = ReducedSchema("a", json.dumps(schema), landing_rules(["phone", "FirstName"])).reduced(payload)
    assert b"MARK" in payload
    assert b"MARK" not in kept
    assert b"KEPT" in kept
    assert b"KEPT-2" in kept


@pytest.mark.parametrize(
    "names", [[name] for name in ORDER if name != "CreatedDate"] + [["Owner.First"], ["People.First"]]
)
def test_every_type_can_be_left_out_and_passed_by(names: list[str]) -> None:
    reduced = ReducedSchema("a", json.dumps(OTHER), landing_rules(names))
    (payload,) = encode_events(OTHER, [ORDER])
    gone = {"people"} if names == ["People.First"] else {name.lower() for name in names}
    assert read(json.loads(reduced.schema_json), reduced.reduced(payload)) == without(ORDER, (), gone)
    assert reduced.schema_id != "a"


def test_a_schema_without_the_fields_is_left_as_it_is() -> None:
    reduced = ReducedSchema("a", json.dumps(OTHER), landing_rules(["Phone", "Account.Owner"]))
    assert (reduced.schema_id, reduced.schema_json, reduced.reduced(b"any")) == ("a", json.dumps(OTHER), b"any")


@given(st.binary(max_size=300), st.integers(0, 2000))
@settings(deadline=None, max_examples=100)
def test_a_payload_that_is_no_event_is_an_error_that_quotes_nothing(garbage: bytes, cut: int) -> None:
    (payload,) = encode_events(OTHER, [ORDER])
    reduced = ReducedSchema("a", json.dumps(OTHER), landing_rules(["Owner"]))
    for broken in (payload[: cut % len(payload)], payload + b"\0", garbage):
        told = ""
        try:
            read(json.loads(reduced.schema_json), reduced.reduced(broken))
        except ValueError as error:
            told = str(error)
        assert told in ("", "the payload is no event of its schema")


def test_the_names_of_what_a_schema_is_without() -> None:
    reduced = ReducedSchema("a", json.dumps(SCHEMAS[0]), landing_rules(["ShippingAddress", "FirstName", "Phone"]))
    found = left_out_names(json.loads(reduced.schema_json))
    assert {"shippingaddress", "shippingstreet", "firstname", "name.firstname", "phone"} <= found
    assert "billingstreet" not in found
    assert left_out_names(SCHEMAS[0]) == set()


@pytest.mark.parametrize(
    "name", ["CreatedDate", "Account.CreatedDate", "ChangeEventHeader", "ChangeEventHeader.recordIds", "Id"]
)
def test_what_events_are_told_apart_and_ordered_by_stays(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"landing_exclude_fields: .* by {name}; leave it out"):
        landing_rules([name])


def test_a_text_that_is_no_schema() -> None:
    with pytest.raises(SchemaError):
        ReducedSchema("a", "{}", landing_rules(["Phone"]))
