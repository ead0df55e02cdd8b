from __future__ import annotations

from typing import Any

import fastavro
import pytest

from sfstream_localorg.bus.payloads import decode, encode, platform_event_schema

FIELDS = [
    {"name": "Amount__c", "type": "double"},
    {"name": "At__c", "type": "DateTime"},
    {"name": "On__c", "type": "date"},
    {"name": "Note__c", "type": "text"},
]
SYSTEM = {"CreatedDate": 1, "CreatedById": "005"}


@pytest.fixture
def schema() -> Any:
    return fastavro.parse_schema(platform_event_schema("Order__e", FIELDS))


def test_encoded_values_are_decoded_unchanged(schema: Any) -> None:
    values = {**SYSTEM, "Amount__c": 1.5, "At__c": 1_700_000_000_000, "Note__c": "ä"}
    assert decode(schema, encode(schema, values)) == {**values, "On__c": None}


@pytest.mark.parametrize(
    ("field", "text", "milliseconds"),
    [
        ("At__c", "2024-01-02T03:04:05Z", 1_704_164_645_000),
        ("At__c", "2024-01-02T04:04:05+01:00", 1_704_164_645_000),
        ("At__c", "2024-01-02T03:04:05", 1_704_164_645_000),
        ("On__c", "2024-01-02", 1_704_153_600_000),
        ("CreatedDate", "1970-01-01T00:00:01Z", 1_000),
    ],
)
def test_encode_accepts_iso_text_for_dates_and_times(schema: Any, field: str, text: str, milliseconds: int) -> None:
    assert decode(schema, encode(schema, {**SYSTEM, field: text}))[field] == milliseconds


@pytest.mark.parametrize(
    "values", [{"Nope__c": 1}, {"Amount__c": "text"}, {"At__c": "yesterday"}, {"CreatedById": None}, {"Note__c": 5}]
)
def test_encode_refuses_values_that_do_not_fit_the_schema(schema: Any, values: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        encode(schema, {**SYSTEM, **values})


@pytest.mark.parametrize("change", [lambda b: b[:-1], lambda b: b + b"\0", lambda b: b"", lambda b: b"\xff" * 20])
def test_decode_refuses_payloads_that_are_not_one_record(schema: Any, change: Any) -> None:
    with pytest.raises(ValueError, match="payload"):
        decode(schema, change(encode(schema, {**SYSTEM, "Note__c": "text"})))


def test_field_ids_are_stable() -> None:
    assert platform_event_schema("Order__e", FIELDS) == platform_event_schema("Order__e", FIELDS)
    docs = [field["doc"] for field in platform_event_schema("Order__e", FIELDS)["fields"][2:]]
    assert [doc.split(":00N")[0] for doc in docs] == ["Data:Double", "Data:DateTime", "Data:DateOnly", "Data:Text"]
