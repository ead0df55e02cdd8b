"""JSON payloads decoded by their Avro schema into the same columns as Avro payloads."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_sfstream.tables.decode.arrow_columns import DecodedEvents
from airflow_provider_sfstream.tables.decode.avro_columns import members_of
from airflow_provider_sfstream.tables.decode.avro_decoding import AvroDecoder
from airflow_provider_sfstream.tables.decode.json_decoding import JsonDecoder
from tests.support.landing_files import encode

ACCOUNT = Path(__file__).parents[4] / "shared/schemas/AccountChangeEvent.avsc"
PERSON = {"type": "record", "name": "Person", "fields": [{"name": n, "type": ["null", "string"]} for n in ("A", "B")]}
HEADER = {
    "type": "record",
    "name": "ChangeEventHeader",
    "fields": [
        {"name": "recordIds", "type": {"type": "array", "items": "string"}},
        {"name": "changeType", "type": {"type": "enum", "name": "ChangeType", "symbols": ["CREATE", "UPDATE"]}},
        {"name": "commitTimestamp", "type": "long"},
        {"name": "commitNumber", "type": "long"},
    ],
}
FIELDS = [
    {"name": "ChangeEventHeader", "type": HEADER},
    {"name": "Name", "type": ["null", "string", PERSON]},
    {"name": "Either", "type": ["null", "long", "double", "boolean"]},
    {"name": "Born", "type": ["null", "long"], "doc": "Data:DateOnly"},
    {"name": "Seen", "type": ["null", "long"], "doc": "Data:DateTime"},
    {"name": "Opens", "type": ["null", "long"], "doc": "Data:TimeOnly"},
    {"name": "Score", "type": ["null", "double"]},
    {"name": "Single", "type": ["null", "float"]},
    {"name": "Count", "type": ["null", "int"]},
    {"name": "Active", "type": ["null", "boolean"]},
    {"name": "Points", "type": ["null", {"type": "array", "items": ["null", "double"]}]},
    {"name": "Labels", "type": ["null", {"type": "map", "values": "string"}]},
    {"name": "Persons", "type": ["null", {"type": "array", "items": "Person"}]},
    {"name": "Parent", "type": ["null", "Person", {"type": "record", "name": "Group", "fields": []}]},
    {"name": "Raw", "type": ["null", "bytes"]},
]
SCHEMA: dict[str, Any] = {"type": "record", "name": "AccountChangeEvent", "fields": FIELDS}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECONDS = 1_768_006_923_004
CHANGE = {"recordIds": ["001"], "changeType": "UPDATE", "commitTimestamp": MILLISECONDS, "commitNumber": 2**60 + 1}

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
MOMENT = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(  # noqa: DTZ001 (given UTC next)
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=UTC)
)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
PERSONS = st.fixed_dictionaries({"A": st.none() | TEXT, "B": st.none() | TEXT})
EVENTS = st.fixed_dictionaries(
    {
        "ChangeEventHeader": st.fixed_dictionaries(
            {
                "recordIds": st.lists(TEXT, max_size=3),
                "changeType": st.sampled_from(["CREATE", "UPDATE"]),
                "commitTimestamp": MOMENT.map(lambda moment: (moment - EPOCH) // timedelta(milliseconds=1)),
                "commitNumber": st.integers(-(2**63), 2**63 - 1),
            }
        ),
        "Name": st.none() | TEXT | PERSONS,
        "Either": st.none() | st.integers(-(2**63), 2**63 - 1) | FINITE | st.booleans(),
        "Born": st.none() | st.dates(date(1, 1, 2), date(9999, 12, 30)),
        "Seen": st.none() | MOMENT,
        "Score": st.none() | FINITE,
        "Single": st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False),
        "Count": st.none() | st.integers(-(2**31), 2**31 - 1),
        "Active": st.none() | st.booleans(),
        "Points": st.none() | st.lists(st.none() | FINITE, max_size=3),
        "Labels": st.none() | st.dictionaries(TEXT, TEXT, max_size=3),
        "Persons": st.none() | st.lists(PERSONS, max_size=2),
    }
)


def payload(record: dict[str, Any], **other: Any) -> bytes:
    data = {"schema": "one", "payload": record, "event": {"replayId": 1, "EventApiName": "X"}} | other
    return json.dumps(data).encode()


def avro_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(milliseconds=1)
    return (value - EPOCH.date()).days * 86_400_000 if isinstance(value, date) else value


def json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return f"{value:%Y}".zfill(4) + value.strftime("-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
    return value.isoformat() if isinstance(value, date) else value


def without_nulls(value: Any) -> Any:
    """Remove null values, as in CometD bodies."""
    return {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else value


def decode(schema: dict[str, Any], *payloads: bytes) -> DecodedEvents:
    decoded, failures = JsonDecoder(json.dumps(schema)).decode_all(payloads)
    assert not failures
    assert decoded is not None
    return decoded


def row(decoded: DecodedEvents, schema: dict[str, Any] = SCHEMA) -> dict[str, Any]:
    names = [member.name for member in members_of(json.dumps(schema))]
    return dict(zip(names, (column[0].as_py() for column in decoded.columns), strict=True))


@given(st.lists(EVENTS, min_size=1, max_size=3), st.booleans())
@settings(max_examples=30)
def test_json_and_avro_events_have_the_same_columns(events: list[dict[str, Any]], sparse: bool) -> None:
    absent = {"Parent": None, "Raw": None, "Opens": None}
    avro = [encode(SCHEMA, {key: avro_value(value) for key, value in e.items()} | absent) for e in events]
    shape = without_nulls if sparse else dict
    in_json = [
        payload({key: shape(v) if isinstance(v, dict) else json_value(v) for key, v in shape(e).items()})
        for e in events
    ]
    expected, failures = AvroDecoder(json.dumps(SCHEMA)).decode_all(avro)
    assert expected is not None
    assert not failures
    found = decode(SCHEMA, *in_json)
    assert [column.type for column in found.columns] == [column.type for column in expected.columns]
    assert [repr(column.to_pylist()) for column in found.columns] == [repr(c.to_pylist()) for c in expected.columns]
    assert found.event_times.equals(expected.event_times)


def test_event_with_the_captured_account_schema_is_decoded() -> None:
    if not ACCOUNT.exists():
        pytest.skip("the captured change event schemas are not available")
    schema = json.loads(ACCOUNT.read_text())
    header = {"entityName": "Account", "recordIds": ["001"], "changeType": "UPDATE", "commitTimestamp": MILLISECONDS}
    record = {"ChangeEventHeader": header | {"changedFields": ["Name", "LastModifiedDate"]}}
    record |= {
        "Name": {"FirstName": "A"},
        "BillingAddress": {"City": "Bonn"},
        "LastModifiedDate": "2026-01-10T01:02:03Z",
    }
    found = row(decode(schema, payload(record)), schema)
    assert (found["Name"], found["Name_record"]["FirstName"]) == (None, "A")
    assert found["BillingAddress"]["City"] == "Bonn"
    assert found["ChangeEventHeader"]["changedFields"] == ["Name", "LastModifiedDate"]
    assert found["ChangeEventHeader"]["nulledFields"] is None
    assert found["LastModifiedDate"] == datetime(2026, 1, 10, 1, 2, 3, tzinfo=UTC)
    assert sum(value is not None for value in found.values()) == 4


@pytest.mark.parametrize(
    ("field", "text", "expected"),
    [
        ("Seen", '"2016-09-16T19:45:27.454+0000"', datetime(2016, 9, 16, 19, 45, 27, 454000, UTC)),
        ("Seen", '"2016-09-16T21:45:27.454321+02:00"', datetime(2016, 9, 16, 19, 45, 27, 454321, UTC)),
        ("Seen", "-1", datetime(1969, 12, 31, 23, 59, 59, 999000, UTC)),
        ("Born", '"2016-09-16T00:00:00.000Z"', date(2016, 9, 16)),
        ("Born", str(-86_400_000), date(1969, 12, 31)),
        ("Opens", '"18:30:00.050Z"', (18 * 60 + 30) * 60_000 + 50),
        ("Opens", "50", 50),
        ("Opens", "50.0", 50),
        ("Count", "-7.0", -7),
        ("Score", str(2**60), float(2**60)),
        ("Score", "1e3", 1000.0),
        ("Single", "0.1", pytest.approx(0.1, abs=1e-8)),
        ("Either", "7", None),
        ("Parent", '{"Name": "x", "Score": 1.50}', '{"Name": "x", "Score": 1.5}'),
        ("Parent", '[0.1000000000000000055, "é"]', '[0.1000000000000000055, "é"]'),
        ("Labels", '{"a": "b"}', [("a", "b")]),
        ("Points", "[1, null, 2.5]", [1.0, None, 2.5]),
    ],
)
def test_json_value_has_its_real_type(field: str, text: str, expected: Any) -> None:
    body = json.dumps({"ChangeEventHeader": CHANGE})[:-1] + f', "{field}": {text}}}'
    found = row(decode(SCHEMA, f'{{"schema": "one", "payload": {body}, "event": {{}}}}'.encode()))
    if field == "Either":
        assert (found["Either"], found["Either_double"], found["Either_boolean"]) == (7, None, None)
    else:
        assert found[field] == expected


@pytest.mark.parametrize(
    ("field", "text", "reason"),
    [
        ("Unknown", "1", "no field 'Unknown'"),
        ("Unknown", "null", "no field 'Unknown'"),
        ("name", '"a"', "no field 'name'"),
        ("Name", "5", "Name: a number does not fit"),
        ("Name", "true", "Name: a boolean does not fit"),
        ("Name", '{"First": "A"}', "no field 'First'"),
        ("Active", "1", "Active: a number"),
        ("Active", '"true"', "Active: text"),
        ("Count", "2147483648", "Count: "),
        ("Count", "1.5", "1.5 is not a whole number"),
        ("Count", "true", "Count: a boolean"),
        ("Count", "1e300", "Count: "),
        ("Score", "9007199254740993", "Score: "),
        ("Score", "0.1000000000000000055", "Score: a number of many digits"),
        ("Score", '"1"', "Score: text"),
        ("Single", "0.123456789", "32-bit"),
        ("Single", "1e300", "Single: "),
        ("Seen", '"2016-09-16T19:45:27.454"', "Seen: .*zone"),
        ("Seen", '"yesterday"', "Seen: "),
        ("Seen", '"2016-09-16T19:45:27.1234567Z"', "Seen: "),
        ("Seen", '"0000-09-16T19:45:27Z"', "years 1 and 9999"),
        ("Seen", str(2**61), "Seen: .*years 1 and 9999"),
        ("Seen", str(2**70), "Seen: "),
        ("Seen", "1.5", "Seen: a number"),
        ("Born", '"2016-09-16T00:00:01Z"', "a time, not a date"),
        ("Born", '"2016-02-30"', "Born: "),
        ("Born", '"0000-02-03"', "Born: .*years 1 and 9999"),
        ("Opens", '"25:00:00Z"', "time of day"),
        ("Points", "[[1]]", "Points: an array does not fit the type of the items"),
        ("Points", '{"a": 1}', "Points: an object"),
        ("Labels", '{"a": 1}', "Labels: a number"),
        ("Raw", '"AAAA"', "Raw: text does not fit"),
        ("Persons", '[{"A": "x"}, {"A": 1}]', "Persons: A: a number"),
        ("Persons", '[{"Z": "x"}]', "Persons: .*no field 'Z'"),
        ("Name", '"\\ud800"', "surrogates"),
    ],
)
def test_value_that_does_not_fit_is_reported_and_other_events_are_decoded(field: str, text: str, reason: str) -> None:
    good = payload({"ChangeEventHeader": CHANGE, "Name": "good"})
    body = json.dumps({"ChangeEventHeader": CHANGE})[:-1] + f', "{field}": {text}}}'
    bad = f'{{"schema": "one", "payload": {body}, "event": {{}}}}'.encode()
    decoder = JsonDecoder(json.dumps(SCHEMA))
    decoded, failures = decoder.decode_all([good] * 5 + [bad] + [good] * 2_000 + [bad, good])
    assert decoded is not None
    assert len(decoded.event_times) == 2_006
    assert [failure.row for failure in failures] == [5, 2_006]
    assert pa.compute.all(pa.compute.equal(decoded.columns[1], "good")).as_py()
    assert failures[0].reason == failures[1].reason
    assert re.search(reason, failures[0].reason), failures[0].reason


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"null",
        b"[]",
        payload({"ChangeEventHeader": CHANGE}, more=1),
        payload({"ChangeEventHeader": CHANGE}, payload=None),
        payload({"ChangeEventHeader": CHANGE}, payload="text"),
        payload({}),
        payload({"ChangeEventHeader": None}),
        payload({"ChangeEventHeader": {key: value for key, value in CHANGE.items() if key != "commitTimestamp"}}),
        payload({"ChangeEventHeader": CHANGE | {"commitTimestamp": 2**62}}),
        payload({"ChangeEventHeader": CHANGE})[:-1],
        b'{"a":' * 100_000,
    ],
)
def test_invalid_event_or_event_without_its_required_time_fails(broken: bytes) -> None:
    decoder, good = JsonDecoder(json.dumps(SCHEMA)), payload({"ChangeEventHeader": CHANGE})
    decoded, failures = decoder.decode_all([broken, good, broken])
    assert decoded is not None
    assert (len(decoded.event_times), [failure.row for failure in failures]) == (1, [0, 2])
    decoded, failures = decoder.decode_all([broken])
    assert decoded is None
    assert [failure.row for failure in failures] == [0]


def test_event_without_a_required_time_has_no_event_time() -> None:
    schema = {"type": "record", "name": "X", "fields": [{"name": "a", "type": ["null", "string"]}]}
    assert decode(schema, payload({"a": "b"}), payload({})).event_times.to_pylist() == [None, None]
    optional = {"name": "CreatedDate", "type": ["null", "long"], "doc": "CreatedDate:DateTime"}
    assert decode(schema | {"fields": [optional]}, payload({})).event_times.to_pylist() == [None]


def test_decoding_no_payloads_returns_no_rows() -> None:
    assert JsonDecoder(json.dumps(SCHEMA)).decode_all([]) == (None, [])
