"""Erasure of records from rows with typed headers, rows with JSON headers, and quarantine rows."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_sfstream.erasure.records import RecordIds, events_without, quarantine_without
from airflow_provider_sfstream.salesforce.identifiers import to_18

ADA, BOB = to_18("003xx0000000Ada"), to_18("003xx0000000bOb")
HEADER = pa.struct([("entityName", pa.string()), ("recordIds", pa.list_(pa.string()))])


def header(*ids: str) -> dict[str, Any]:
    return {"entityName": "Contact", "recordIds": list(ids)}


@pytest.mark.parametrize("is_text", [False, True])
def test_rows_of_erased_records_are_removed_and_shared_rows_lose_the_ids(is_text: bool) -> None:
    headers: list[Any] = [header(ADA), None, header(BOB), header(ADA, BOB), header()]
    values = [json.dumps(each) if is_text and each else each for each in headers]
    name = "ChangeEventHeader__string" if is_text else "ChangeEventHeader"
    schema = pa.schema([(name, pa.string() if is_text else HEADER), ("number", pa.int64())])
    batch = pa.record_batch([pa.array(values, schema[0].type), list(range(5))], schema=schema)
    changed, remaining = events_without(batch.slice(0), RecordIds([ADA[:15]]))
    assert changed == 2
    assert remaining.schema == schema
    found = [json.loads(each) if is_text and each else each for each in remaining.column(0).to_pylist()]
    assert found == [None, header(BOB), header(BOB), header()]
    assert remaining.column(1).to_pylist() == [1, 2, 3, 4]
    assert events_without(remaining, RecordIds([ADA])) == (0, remaining)
    assert events_without(batch.slice(1, 2), RecordIds([ADA]))[0] == 0


def test_quarantined_event_of_the_object_loses_its_payload_and_its_reason() -> None:
    topics = ["/data/ContactChangeEvent", "/data/ChangeEvents", "/data/CaseChangeEvent", "/event/Order__e"]
    payload = b"\x01" + ADA.encode()
    batch = pa.record_batch({"topic": topics, "payload": [payload] * 4, "reason": [f"bad {ADA}"] * 4})
    changed, remaining = quarantine_without(batch, RecordIds([ADA]), "Contact")
    assert changed == 2
    assert remaining.column("payload").to_pylist() == [None, None, payload, payload]
    assert [ADA in reason for reason in remaining.column("reason").to_pylist()] == [False, False, True, True]
    assert remaining.column("topic").to_pylist() == topics
