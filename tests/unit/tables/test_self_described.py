"""Self-describing events: their fields and values."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_sfstream.tables.decode.json_decoding import SelfDescribedDecoder
from airflow_provider_sfstream.tables.decode.self_described import Field, Format, read_body
from airflow_provider_sfstream.tables.event_log.table_plans import FOUND, found_fields

CREATED = "2016-09-16T19:45:27.454Z"
TIME = datetime(2016, 9, 16, 19, 45, 27, 454000, UTC)
NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,5}", fullmatch=True)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(TEXT, SCALARS, max_size=2)


def push_topic(sobject: Any, **event: Any) -> bytes:
    head = {"createdDate": CREATED, "replayId": 1, "type": "created"} | event
    return json.dumps({"event": head, "sobject": sobject}).encode()


def generic(content: Any, **event: Any) -> bytes:
    return json.dumps({"event": {"createdDate": CREATED, "replayId": 1} | event, "payload": content}).encode()


def survey(format_: Format, payloads: list[bytes]) -> list[dict[str, Any]]:
    window, formats = pa.array([0] * len(payloads)), pa.array([format_] * len(payloads))
    batch = pa.RecordBatch.from_arrays([window, formats, pa.array(payloads)], ["window", "format", "payload"])
    (found,) = found_fields(("T",))(iter([batch]))
    assert found.schema == FOUND
    return sorted(found.to_pylist(), key=lambda row: (row["name"] or "", row["type"] or ""))


def rows(format_: Format, payloads: list[bytes]) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the non-null columns of each event, named ``name:type``, and the indexes of invalid events."""
    fields = list(dict.fromkeys(Field(f["name"].lower(), f["type"]) for f in survey(format_, payloads) if f["name"]))
    decoded, failures = SelfDescribedDecoder(format_, fields).decode_all(payloads)
    bad = [failure.row for failure in failures]
    if decoded is None:
        return [], bad
    columns = {f"{field.name}:{field.type}": c.to_pylist() for field, c in zip(fields, decoded.columns, strict=True)}
    columns["time"] = decoded.event_times.to_pylist()
    table = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return [{name: value for name, value in row.items() if value is not None} for row in table], bad


def test_push_topic_event_has_the_fields_and_the_type_of_its_change() -> None:
    sobject = {"Id": "001", "Amount": 5, "Rate": 0.25, "Open": True, "Note": None, "Address": {"City": "Bonn"}}
    found, bad = rows("push_topic", [push_topic(sobject), push_topic({"Id": "002"}, type="deleted")])
    assert not bad
    assert found == [
        {
            "_event_type:string": "created",
            "id:string": "001",
            "amount:double": 5.0,
            "rate:double": 0.25,
            "open:boolean": True,
            "address:string": '{"City": "Bonn"}',
            "time": TIME,
        },
        {"_event_type:string": "deleted", "id:string": "002", "time": TIME},
    ]


@pytest.mark.parametrize(
    ("text", "column", "value"),
    [
        ("9007199254740992", "double", 2.0**53),
        ("9007199254740993", "long", 2**53 + 1),
        ("1152921504606846976", "double", 2.0**60),
        ("-9223372036854775807", "long", -(2**63) + 1),
        ("9223372036854775809", "string", "9223372036854775809"),
        ("12345678901234567.891", "string", "12345678901234567.891"),
        ("1E400", "string", "1E+400"),
        ("0.1", "double", 0.1),
        ('"0.1"', "string", "0.1"),
        ("[1, 0.1000000000000000055]", "string", "[1, 0.1000000000000000055]"),
    ],
)
def test_no_number_loses_a_digit(text: str, column: str, value: Any) -> None:
    payload = push_topic({"A": "?"}).replace(b'"?"', text.encode())
    assert rows("push_topic", [payload])[0][0][f"a:{column}"] == value


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        ('{"a": 1}', '{"a": 1}'),
        ({"a": ["\u00e9", 1.5, None]}, '{"a": ["\u00e9", 1.5, null]}'),
        (12345678901234567890, "12345678901234567890"),
        (True, "true"),
        (None, None),
    ],
)
def test_a_generic_event_has_one_text(content: Any, text: str | None) -> None:
    expected = {"time": TIME} if text is None else {"payload:string": text, "time": TIME}
    assert rows("generic", [generic(content)]) == ([expected], [])


@pytest.mark.parametrize(
    ("payload", "time"),
    [
        ({"CreatedDate": CREATED, "A__c": 1}, TIME),
        ({"CreatedDate": 1_474_055_127_454}, TIME),
        ({"ChangeEventHeader": {"commitTimestamp": 1_474_055_127_454}, "CreatedDate": "2020-01-01T00:00:00Z"}, TIME),
        ({"ChangeEventHeader": {}}, None),
        ({}, None),
    ],
)
def test_event_time_of_a_platform_or_change_event_is_read(payload: dict[str, Any], time: datetime | None) -> None:
    (found,), bad = rows("event", [json.dumps({"schema": "x", "payload": payload, "event": {}}).encode()])
    assert (found.get("time"), bad) == (time, [])


def test_time_of_the_event_header_takes_precedence() -> None:
    data = {"schema": "x", "payload": {"CreatedDate": "2020-01-01T00:00:00Z"}, "event": {"createdDate": CREATED}}
    assert rows("event", [json.dumps(data).encode()])[0][0]["time"] == TIME


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"[]",
        b'{"event": {}}',
        push_topic(None),
        push_topic("text"),
        push_topic({"A": 1}, type=5),
        push_topic({"A": 1}, createdDate="yesterday"),
        push_topic({"A": 1}, createdDate={}),
        push_topic({"A": 1}, createdDate=True),
        push_topic({"A": 1}, createdDate=2**62),
        push_topic({"a b": 1}),
        push_topic({"": 1}),
        push_topic({"Name": "a", "name": "b"}),
        push_topic({"_event_type": "a"}),
        push_topic({"_Event_Type": "a"}),
        push_topic({"A": "?"}).replace(b"?", b"\\ud800"),
        push_topic({"A": "?"}).replace(b"?", b"\xff"),
        push_topic({"A": "?"}).replace(b'"?"', b"NaN"),
        push_topic({"A": "?"}).replace(b'"?"', b"[" * 100_000),
        push_topic({"A": "?"}).replace(b'"?"', b"1e99999999999999999999"),
        push_topic({"A": 1})[:-1] + b', "more": 1}',
        push_topic({"A": 1})[:-1] + b', "event": 1}',
    ],
)
def test_invalid_event_is_reported_and_other_events_are_decoded(broken: bytes) -> None:
    good = push_topic({"A": 1})
    found, bad = rows("push_topic", [broken, good, broken, good])
    assert bad == [0, 2]
    assert found == [{"_event_type:string": "created", "a:double": 1.0, "time": TIME}] * 2


def test_survey_lists_each_field_once_and_a_missing_time() -> None:
    payloads = [push_topic({"A": 1, "b": "x"}), push_topic({"A": "1", "B": "y", "C": None}), b"broken"]
    found = [("T", "push_topic", name, type_) for name, type_ in (("A", "double"), ("A", "string"), ("B", "string"))]
    found += [("T", "push_topic", "_event_type", "string"), ("T", "push_topic", "b", "string")]
    assert [tuple(row.values()) for row in survey("push_topic", payloads)] == found
    timeless = push_topic({}, createdDate=None, type=None)
    assert [tuple(row.values()) for row in survey("push_topic", [timeless])] == [("T", "push_topic", None, None)]


@given(st.lists(st.dictionaries(NAMES, VALUES, max_size=4), min_size=1, max_size=3))
@settings(max_examples=40)
def test_every_value_can_be_recovered_from_its_column(sobjects: list[dict[str, Any]]) -> None:
    payloads = [push_topic(sobject) for sobject in sobjects]
    found, bad = rows("push_topic", payloads)
    good = [sobject for place, sobject in enumerate(sobjects) if place not in bad]
    assert all(len({name.lower() for name in sobjects[place]}) < len(sobjects[place]) for place in bad)
    for row, sobject in zip(found, good, strict=True):
        values = {name: value for name, value in row.items() if name not in ("time", "_event_type:string")}
        assert len(values) == sum(value is not None for value in sobject.values())
        for column, value in values.items():
            name, _, type_ = column.rpartition(":")
            (wanted,) = (item for key, item in sobject.items() if key.lower() == name)
            assert value == wanted or (type_ == "string" and json.loads(value) == wanted)


def test_header_and_body_are_read_together() -> None:
    body = read_body("push_topic", push_topic({"Id": "001", "Note": None}))
    assert body == ({"_event_type": "created", "Id": "001"}, CREATED)
