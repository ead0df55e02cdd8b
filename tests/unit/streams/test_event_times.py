"""The bounds of event times over payloads of several schemas, read many at a time."""

from __future__ import annotations

import json

import pytest

from airflow_provider_sfstream.streams.event_times import EventTimeBounds, StreamEventTimes, TimeReaders
from tests.support.scripted_source import SCHEMA, avro_payload

TIMELESS = json.dumps({"type": "record", "name": "Other__e", "fields": [{"name": "Text__c", "type": "string"}]})


def test_bounds_span_batches_and_schemas_and_leave_out_what_tells_no_time() -> None:
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


def test_each_event_is_read_by_its_own_schema() -> None:
    times = StreamEventTimes(TimeReaders("avro", {"timed": SCHEMA, "also": SCHEMA, "none": TIMELESS}.__getitem__))
    ids, payloads = ["timed", "none", "also", "timed"], [avro_payload(50), b"\x02c", avro_payload(20), avro_payload(7)]
    assert times(ids, payloads) == [50, None, 20, 7]
    assert times(["none", "none"], [b"\x02a", b"\x02b"]) == [None, None]


def test_a_damaged_payload_does_not_hide_its_neighbours() -> None:
    bounds = EventTimeBounds(TimeReaders("avro", lambda _: SCHEMA))
    bounds.add(["timed"] * 3, [avro_payload(5), b"", avro_payload(9)])
    bounds.settle()
    assert (bounds.first, bounds.last) == (5, 9)


@pytest.mark.parametrize("text", ["", "<html>", '{"type": "record", "name": "A", "fields": [7]}'])
def test_without_a_usable_schema_no_time_is_known_and_none_is_an_error(text: str) -> None:
    texts = {"timed": SCHEMA, "unusable": text}
    readers = TimeReaders("avro", texts.get)
    times, bounds = StreamEventTimes(readers), EventTimeBounds(readers)
    ids, payloads = ["unusable", "timed", "unknown"], [avro_payload(5), avro_payload(7), avro_payload(9)]
    assert times(ids, payloads) == [None, 7, None]
    bounds.add(ids, payloads)
    bounds.settle()
    assert (bounds.first, bounds.last, bounds.unread) == (7, 7, {"unusable", "unknown"})
    texts["unknown"] = SCHEMA
    assert times(["unknown"], payloads[2:]) == [9]
