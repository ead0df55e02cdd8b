"""First and last event time of payloads with several schemas, decoded in batches."""

from __future__ import annotations

import json

import pytest

from airflow_provider_sfstream.salesforce.event_time import EventTimeBounds, TimeReaders
from tests.support.scripted_source import SCHEMA, avro_payload

TIMELESS = json.dumps({"type": "record", "name": "Other__e", "fields": [{"name": "Text__c", "type": "string"}]})


def test_bounds_cover_all_batches_and_schemas_and_skip_events_without_a_time() -> None:
    bounds = EventTimeBounds(TimeReaders("avro", {"timed": SCHEMA, "also": SCHEMA, "none": TIMELESS}.__getitem__))
    bounds.settle()
    assert (bounds.first, bounds.last) == (None, None)
    bounds.add(["none", "none"], [b"\x02a", b"\x02b"])
    bounds.settle()
    assert (bounds.first, bounds.last) == (None, None)
    bounds.add(["timed", "none", "also"], [avro_payload(50), b"\x02c", avro_payload(20)])
    bounds.add(["timed", "timed"], [avro_payload(70), avro_payload(60)])
    bounds.settle()
    assert (bounds.first, bounds.last) == (20, 70)
    bounds.add(["also"], [avro_payload(10)])
    bounds.settle()
    bounds.settle()
    assert (bounds.first, bounds.last) == (10, 70)


def test_each_event_is_decoded_with_its_own_schema() -> None:
    times = TimeReaders("avro", {"timed": SCHEMA, "also": SCHEMA, "none": TIMELESS}.__getitem__).times
    ids, payloads = ["timed", "none", "also", "timed"], [avro_payload(50), b"\x02c", avro_payload(20), avro_payload(7)]
    assert times(ids, payloads) == [50, None, 20, 7]
    assert times(["none", "none"], [b"\x02a", b"\x02b"]) == [None, None]


def test_damaged_payload_does_not_affect_other_event_times() -> None:
    bounds = EventTimeBounds(TimeReaders("avro", lambda _: SCHEMA))
    bounds.add(["timed"] * 3, [avro_payload(5), b"", avro_payload(9)])
    bounds.settle()
    assert (bounds.first, bounds.last) == (5, 9)


@pytest.mark.parametrize("text", ["", "<html>", '{"type": "record", "name": "A", "fields": [7]}'])
def test_event_without_a_usable_schema_has_no_time(text: str) -> None:
    texts = {"timed": SCHEMA, "unusable": text}
    readers = TimeReaders("avro", texts.get)
    times, bounds = readers.times, EventTimeBounds(readers)
    ids, payloads = ["unusable", "timed", "unknown"], [avro_payload(5), avro_payload(7), avro_payload(9)]
    assert times(ids, payloads) == [None, 7, None]
    bounds.add(ids, payloads)
    bounds.settle()
    assert (bounds.first, bounds.last, bounds.unread) == (7, 7, {"unusable", "unknown"})
    texts["unknown"] = SCHEMA
    assert times(["unknown"], payloads[2:]) == [9]
