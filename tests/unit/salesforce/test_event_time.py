"""Event times read from the start of payloads, one by one and in batches."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_sfstream.salesforce.event_time import EventTimeReader

CAPTURED = Path(__file__).parents[3].parent / "shared" / "schemas"
MILLISECONDS = 1_700_000_000_123
TIME = datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
HEADER_FIELDS = [
    {"name": "entityName", "type": "string"},
    {"name": "recordIds", "type": {"type": "array", "items": "string"}},
    {"name": "changeType", "type": {"type": "enum", "name": "ChangeType", "symbols": ["CREATE", "UPDATE"]}},
    {"name": "commitTimestamp", "type": "long"},
    {"name": "changedFields", "type": {"type": "array", "items": "string"}},
]


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order__e", "namespace": "com.sforce.eventbus", "fields": list(fields)}


CREATED = {"name": "CreatedDate", "type": "long", "doc": "CreatedDate:DateTime"}
NOTE = {"name": "Note__c", "type": ["null", "string"], "default": None}
PLATFORM = record(CREATED, NOTE)
CHANGE = record(
    {"name": "ChangeEventHeader", "type": {"type": "record", "name": "ChangeEventHeader", "fields": HEADER_FIELDS}},
    NOTE,
)


def written(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return buffer.getvalue()


def change(milliseconds: int, *record_ids: str, note: str | None = "n") -> dict[str, Any]:
    header = {
        "entityName": "Account",
        "recordIds": list(record_ids),
        "changeType": "UPDATE",
        "commitTimestamp": milliseconds,
        "changedFields": ["0x02"],
    }
    return {"ChangeEventHeader": header, "Note__c": note}


def reader(schema: dict[str, Any]) -> EventTimeReader:
    return EventTimeReader(json.dumps(schema))


def test_event_time_of_a_platform_event_is_its_created_date() -> None:
    payload = written(PLATFORM, {"CreatedDate": MILLISECONDS, "Note__c": "hello"})
    assert reader(PLATFORM).read(payload) == TIME
    assert reader(PLATFORM).read_many([payload, payload]).to_pylist() == [MILLISECONDS] * 2


def test_event_time_of_a_change_event_is_its_commit_timestamp() -> None:
    payloads = [written(CHANGE, change(MILLISECONDS + n, *["001"] * n)) for n in range(5)]
    assert reader(CHANGE).read(payloads[0]) == TIME
    assert reader(CHANGE).read_many(payloads).to_pylist() == [MILLISECONDS + n for n in range(5)]


def test_the_prefix_schema_ends_with_the_time() -> None:
    prefix = json.loads(reader(CHANGE)._prefix_json or "")
    assert [field["name"] for field in prefix["fields"]] == ["ChangeEventHeader"]
    assert prefix["fields"][0]["type"]["fields"][-1]["name"] == "commitTimestamp"
    late = json.loads(reader(record(NOTE, CREATED, {"name": "X__c", "type": "string"}))._prefix_json or "")
    assert [field["name"] for field in late["fields"]] == ["Note__c", "CreatedDate"]


@pytest.mark.parametrize(
    "type_",
    ["long", {"type": "long", "logicalType": "timestamp-millis"}, ["null", "long"], ["long", "null"]],
    ids=["long", "timestamp-millis", "null first", "null last"],
)
def test_event_time_is_read_from_each_avro_form_of_a_long(type_: Any) -> None:
    schema = record({"name": "CreatedDate", "type": type_}, NOTE)
    payload = written(schema, {"CreatedDate": MILLISECONDS, "Note__c": None})
    assert reader(schema).read(payload) == TIME
    assert reader(schema).read_many([payload]).to_pylist() == [MILLISECONDS]


def test_event_time_is_none_for_a_null_time() -> None:
    schema = record({"name": "CreatedDate", "type": ["null", "long"]}, NOTE)
    payload = written(schema, {"CreatedDate": None, "Note__c": None})
    assert reader(schema).read(payload) is None
    assert reader(schema).read_many([payload]).to_pylist() == [None]


@pytest.mark.parametrize(
    "schema", [record(NOTE), record({"name": "CreatedDate", "type": "string"}), record()], ids=["none", "text", "empty"]
)
def test_event_time_is_none_without_a_time_field(schema: dict[str, Any]) -> None:
    assert reader(schema).read(b"anything") is None
    assert reader(schema).read_many([b"", b"x"]).to_pylist() == [None, None]


def test_damaged_payload_has_no_time_and_does_not_affect_others() -> None:
    good = written(CHANGE, change(MILLISECONDS, "001"))
    times = reader(CHANGE)
    assert times.read(b"\xff") is None
    assert times.read_many([good, b"", b"\xff" * 5, good[:4], good]).to_pylist() == [
        MILLISECONDS,
        *[None] * 3,
        MILLISECONDS,
    ]
    assert times.read_many([good]).to_pylist() == [MILLISECONDS], "and the next batch is decoded as before"


def test_event_time_beyond_the_calendar_is_none() -> None:
    payload = written(PLATFORM, {"CreatedDate": 2**62, "Note__c": None})
    assert reader(PLATFORM).read(payload) is None


def test_field_that_the_vectorised_decoder_cannot_read_is_read_one_by_one() -> None:
    # A bytes field before the time makes the decoder panic.
    schema = record({"name": "Blob__c", "type": "bytes"}, CREATED)
    payloads = [written(schema, {"Blob__c": b"\x00\x01", "CreatedDate": MILLISECONDS + n}) for n in range(3)]
    times = reader(schema)
    for _ in range(2):
        assert times.read_many(payloads).to_pylist() == [MILLISECONDS + n for n in range(3)]


def test_event_times_of_no_payloads_are_empty() -> None:
    assert reader(CHANGE).read_many([]).to_pylist() == []


@given(
    st.lists(st.tuples(st.integers(-(2**40), 2**45), st.integers(0, 3), st.none() | st.text(max_size=5)), max_size=30)
)
def test_event_times_of_a_batch_equal_those_read_one_by_one(events: list[tuple[int, int, str | None]]) -> None:
    payloads = [written(CHANGE, change(time, *["001xx"] * ids, note=note)) for time, ids, note in events]
    assert reader(CHANGE).read_many(payloads).to_pylist() == [time for time, _, _ in events]


@pytest.mark.skipif(not CAPTURED.is_dir(), reason="no captured schemas beside the repository")
@pytest.mark.parametrize("name", ["AccountChangeEvent", "ContactChangeEvent"])
def test_event_time_is_read_with_schemas_of_a_real_org(name: str) -> None:
    text = (CAPTURED / f"{name}.avsc").read_text()
    fields = json.loads(text)["fields"]
    header = {
        "entityName": "Account",
        "recordIds": ["001"],
        "changeType": "UPDATE",
        "changeOrigin": "",
        "transactionKey": "t",
        "sequenceNumber": 1,
        "commitTimestamp": MILLISECONDS,
        "commitNumber": 2,
        "commitUser": "005",
        "nulledFields": [],
        "diffFields": [],
        "changedFields": ["0x02"],
    }
    value = {field["name"]: None for field in fields} | {"ChangeEventHeader": header}
    payload = written(json.loads(text), value)
    assert EventTimeReader(text).read(payload) == TIME
    assert EventTimeReader(text).read_many([payload] * 3).to_pylist() == [MILLISECONDS] * 3
