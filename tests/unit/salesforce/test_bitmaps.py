"""Bitmaps of change events: positions and names of fields."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_sfstream.exceptions import SchemaError
from airflow_provider_sfstream.salesforce.bitmaps import FieldPositions, decode_bitmap
from live_check.bitmap_names import field_names
from sfstream_localorg.records.bitmaps import bitmap

ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": n, "type": "string"} for n in ("Street", "City")]}
PERSON = {
    "type": "record",
    "name": "Switchable_PersonName",
    "fields": [{"name": n, "type": ["null", "string"]} for n in ("Salutation", "FirstName", "LastName")],
}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "AccountChangeEvent",
    "namespace": "com.sforce.eventbus",
    "fields": [
        {"name": "ChangeEventHeader", "type": {"type": "record", "name": "ChangeEventHeader", "fields": []}},
        {"name": "Name", "type": ["null", "string", PERSON]},
        {"name": "Phone", "type": ["null", "string"]},
        {"name": "BillingAddress", "type": ["null", ADDRESS]},
        {"name": "ShippingAddress", "type": ["null", "Address"]},
        {"name": "OtherAddress", "type": ["null", "com.sforce.eventbus.Address"]},
    ],
}

positions = st.frozensets(st.integers(0, 200), max_size=40)
nested = st.dictionaries(st.integers(0, 999), positions.filter(bool), max_size=6)


def test_0x14_is_positions_2_and_4() -> None:
    assert decode_bitmap(["0x14"]) == FieldPositions(frozenset({2, 4}))


def test_bitmap_example_of_the_field_guide_is_decoded() -> None:
    decoded = decode_bitmap(["0x650004E0", "4-0x10", "7-0x06"])
    assert decoded.top == {5, 6, 7, 10, 24, 26, 29, 30}
    assert decoded.nested == {4: {4}, 7: {1, 2}}


def test_nested_entry_without_a_top_level_entry_is_accepted() -> None:
    assert field_names(["3-0x01"], SCHEMA) == ["BillingAddress.Street"]


@given(positions, nested)
def test_the_bitmaps_of_the_local_org_are_read(top: frozenset[int], inside: dict[int, frozenset[int]]) -> None:
    entries = bitmap(top, inside)
    assert decode_bitmap(entries) == FieldPositions(top, inside)
    assert decode_bitmap([entry.lower() for entry in entries]) == FieldPositions(top, inside)


def test_empty_array_has_no_positions() -> None:
    assert decode_bitmap([]) == FieldPositions()


@given(st.frozensets(st.integers(0, 5)))
def test_names_of_top_level_fields(top: frozenset[int]) -> None:
    assert field_names(bitmap(top, {}), SCHEMA) == [SCHEMA["fields"][i]["name"] for i in sorted(top)]


@pytest.mark.parametrize(
    ("entries", "names"),
    [
        (["1-0x06"], ["Name.FirstName", "Name.LastName"]),  # string or record: the record's fields
        (["0x06"], ["Name", "Phone"]),
        (
            ["0x04", "3-0x02", "4-0x03"],
            ["Phone", "BillingAddress.City", "ShippingAddress.Street", "ShippingAddress.City"],
        ),
        (["5-0x01"], ["OtherAddress.Street"]),
        (["0xFF04"], ["Phone"]),  # bits beyond the schema
        (["3-0xF1"], ["BillingAddress.Street"]),
        (["99-0x01"], []),
    ],
)
def test_names_of_nested_and_unknown_fields(entries: list[str], names: list[str]) -> None:
    assert field_names(entries, SCHEMA) == names


def test_nested_entry_of_a_field_that_is_not_compound_is_refused() -> None:
    with pytest.raises(SchemaError, match="Phone, which is not compound"):
        field_names(["2-0x01"], SCHEMA)


def test_a_schema_that_fastavro_has_parsed_gives_the_same_names() -> None:
    parsed = fastavro.parse_schema(json.loads(json.dumps(SCHEMA)))
    assert isinstance(parsed, dict)
    assert field_names(["0x04", "4-0x01"], parsed) == field_names(["0x04", "4-0x01"], SCHEMA)


@pytest.mark.parametrize("entry", ["", "14", "0x", "0xZZ", "-0x10", "a-0x10", "1-2-0x10", "0x10 ", "Name"])
def test_invalid_bitmap_entry_is_refused(entry: str) -> None:
    with pytest.raises(SchemaError, match=r"^Invalid entry .* field bitmap"):
        decode_bitmap([entry])
