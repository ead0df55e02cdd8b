"""Rows without the records that are erased: of typed headers, of headers as JSON text, and of the quarantine."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_sfstream.privacy.record_ids import RecordIds
from airflow_provider_sfstream.salesforce.identifiers import to_18
from airflow_provider_sfstream.tables.erasure.table_erasure import erased_events, erased_quarantine

ADA, BOB = to_18("003xx0000000Ada"), to_18("003xx0000000bOb")
HEADER = pa.struct([("entityName", pa.string()), ("recordIds", pa.list_(pa.string()))])


def header(*ids: str) -> dict[str, Any]:
    return {"entityName": "Contact", "recordIds": list(ids)}


@pytest.mark.parametrize("is_text", [False, True])
def test_rows_go_and_those_of_several_records_lose_the_ids(is_text: bool) -> None:
    headers: list[Any] = [header(ADA), None, header(BOB), header(ADA, BOB), header()]
    values = [json.dumps(each) if is_text and each else each for each in headers]
    name = "ChangeEventHeader__string" if is_text else "ChangeEventHeader"
    schema = pa.schema([(name, pa.string() if is_text else HEADER), ("number", pa.int64())])
    batch = pa.record_batch([pa.array(values, schema[0].type), list(range(5))], schema=schema)
    changed, left = erased_events(batch.slice(0), RecordIds([ADA[:15]]))
    assert changed == 2
    assert left.schema == schema
    found = [json.loads(each) if is_text and each else each for each in left.column(0).to_pylist()]
    assert found == [None, header(BOB), header(BOB), header()]
    assert left.column(1).to_pylist() == [1, 2, 3, 4]
    assert erased_events(left, RecordIds([ADA])) == (0, left)
    assert erased_events(batch.slice(1, 2), RecordIds([ADA]))[0] == 0


def test_a_quarantined_event_of_the_objects_topic_or_a_channel_loses_its_payload_and_its_reason() -> None:
    topics = ["/data/ContactChangeEvent", "/data/ChangeEvents", "/data/CaseChangeEvent", "/event/Order__e"]
    payload = b"\x01" + ADA.encode()
    batch = pa.record_batch({"topic": topics, "payload": [payload] * 4, "reason": [f"bad {ADA}"] * 4})
    changed, left = erased_quarantine(batch, RecordIds([ADA]), "Contact")
    assert changed == 2
    assert left.column("payload").to_pylist() == [None, None, payload, payload]
    assert [ADA in reason for reason in left.column("reason").to_pylist()] == [False, False, True, True]
    assert left.column("topic").to_pylist() == topics
