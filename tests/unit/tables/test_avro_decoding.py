from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime
from typing import Any

import pytest

from airflow_provider_sfstream.tables.decode.avro_decoding import AvroDecoder
from tests.support.decoders import LIBRARIES, decoding_with
from tests.support.landing_files import encode

PERSON = {"type": "record", "name": "Person", "fields": [{"name": "First", "type": ["null", "string"]}]}
HEADER = {
    "type": "record",
    "name": "ChangeEventHeader",
    "fields": [
        {"name": "changedFields", "type": {"type": "array", "items": "string"}},
        {"name": "commitTimestamp", "type": "long"},
    ],
}
SCHEMA = {
    "type": "record",
    "name": "AccountChangeEvent",
    "namespace": "com.sforce.eventbus",
    "fields": [
        {"name": "ChangeEventHeader", "type": HEADER},
        {"name": "Name", "type": ["null", "string", PERSON]},
        {"name": "Born", "type": ["null", "long"], "doc": "Data:DateOnly"},
        {"name": "Seen", "type": ["null", "long"], "doc": "Data:DateTime"},
        {"name": "Score", "type": ["null", "double"]},
    ],
}
MOMENT = datetime(2026, 1, 10, 1, 2, 3, 4000, tzinfo=UTC)
MILLISECONDS = 1_768_006_923_004


def event(**fields: Any) -> bytes:
    header = {"changedFields": ["0x2"], "commitTimestamp": MILLISECONDS}
    return encode(
        SCHEMA, {"ChangeEventHeader": header, "Name": None, "Born": None, "Seen": None, "Score": None} | fields
    )


def rows(decoder: AvroDecoder, payloads: list[bytes]) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the decoded rows, and the indexes of undecodable payloads."""
    decoded, failures = decoder.decode_all(payloads)
    if decoded is None:
        return [], [failure.row for failure in failures]
    columns = {m.name: c.to_pylist() for m, c in zip(decoder.members, decoded.columns, strict=True)}
    columns["time"] = decoded.event_times.to_pylist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)], [
        f.row for f in failures
    ]


@pytest.fixture(params=LIBRARIES)
def decoder(request: pytest.FixtureRequest) -> AvroDecoder:
    with decoding_with(request.param):
        return AvroDecoder(json.dumps(SCHEMA))


def test_values_have_their_real_types(decoder: AvroDecoder) -> None:
    born, seen = -40 * 365 * 86_400_000, MILLISECONDS
    found, failures = rows(decoder, [event(Name="Acme", Born=born, Seen=seen), event(Name={"First": "A"}, Score=0.5)])
    header = {"changedFields": ["0x2"], "commitTimestamp": MILLISECONDS}
    shared = {"ChangeEventHeader": header, "time": MOMENT}
    assert not failures
    assert found == [
        {**shared, "Name": "Acme", "Name_record": None, "Born": date(1930, 1, 11), "Seen": MOMENT, "Score": None},
        {**shared, "Name": None, "Name_record": {"First": "A"}, "Born": None, "Seen": None, "Score": 0.5},
    ]


def test_pyruhvro_is_used_if_it_supports_the_schema() -> None:
    decoder = AvroDecoder(json.dumps(SCHEMA))
    rows(decoder, [event()])
    assert decoder.decoder == "pyruhvro"


@pytest.mark.parametrize(
    "avro",
    [["null", "bytes"], {"type": "fixed", "name": "F", "size": 3}, ["null", "int", "long"]],
    ids=["bytes", "fixed", "ambiguous"],
)
def test_fastavro_decodes_schemas_that_pyruhvro_does_not_support(avro: Any) -> None:
    schema = {"type": "record", "name": "X__e", "fields": [{"name": "a", "type": avro}]}
    value: Any = b"abc" if "bytes" in avro or isinstance(avro, dict) else 1 << 40
    decoder = AvroDecoder(json.dumps(schema))
    found, failures = rows(decoder, [encode(schema, {"a": value})])
    assert decoder.decoder == "fastavro"
    expected = value if isinstance(value, bytes) else json.dumps(value)
    assert (found, failures) == ([{"a": expected, "time": None}], [])


@pytest.mark.parametrize(
    "damage", [lambda p: p[:-1], lambda p: p + b"\0", lambda p: b"", lambda p: b"\xff" * 40, lambda p: p + p]
)
def test_damaged_payload_is_found_and_other_payloads_are_decoded(decoder: AvroDecoder, damage: Any) -> None:
    payloads = [event(Name=str(number)) for number in range(33)]
    for place in (0, 7, 8, 32):
        payloads[place] = damage(payloads[place])
    found, failures = rows(decoder, payloads)
    assert failures == [0, 7, 8, 32]
    assert [row["Name"] for row in found] == [str(n) for n in range(33) if n not in failures]


@pytest.mark.parametrize("damage", [lambda p: p[:-1], lambda p: b"\xff", lambda p: p.replace(b"Acme", b"Ac\xffe")])
def test_the_reason_depends_on_the_payload_only(damage: Any) -> None:
    reasons = set()
    for _ in range(20):
        failures = AvroDecoder(json.dumps(SCHEMA)).decode_all([event(), damage(event(Name="Acme"))])[1]
        reasons.update(failure.reason for failure in failures)
    assert len(reasons) == 1


def test_batch_after_a_fully_damaged_batch_is_decoded(decoder: AvroDecoder) -> None:
    assert rows(decoder, [b"\xff"] * 20) == ([], list(range(20)))
    assert rows(decoder, []) == ([], [])
    assert len(rows(decoder, [event()])[0]) == 1


@pytest.mark.parametrize(
    "fields", [{"Born": 1 << 62}, {"Seen": 1 << 62}, {"Seen": MILLISECONDS * 1000}, {"Born": -(1 << 60)}]
)
def test_impossible_time_counts_as_damage(decoder: AvroDecoder, fields: dict[str, int]) -> None:
    found, failures = rows(decoder, [event(), event(**fields), event()])
    assert (len(found), failures) == (2, [1])


def test_text_that_is_not_utf_8_is_damage(decoder: AvroDecoder) -> None:
    payloads = [event(Name="plain"), event(Name="plain").replace(b"plain", b"p\xff\xfein")]
    assert rows(decoder, payloads)[1] == [1]


def test_both_libraries_return_the_same_rows_or_fail() -> None:
    chance = random.Random(7)
    payloads = []
    for number in range(400):
        payload = bytearray(event(Name="Acme" if number % 2 else {"First": "A"}, Seen=MILLISECONDS, Score=1.5))
        if number % 4:
            payload[chance.randrange(len(payload))] = chance.randrange(256)
        payloads.append(bytes(payload))
    fast = AvroDecoder(json.dumps(SCHEMA))
    with decoding_with("fastavro"):
        slow = AvroDecoder(json.dumps(SCHEMA))
    slow_rows, slow_failures = rows(slow, payloads)
    fast_rows, fast_failures = rows(fast, payloads)
    assert len(slow_failures) > 50
    # fastavro counts a negative branch index from the end; pyruhvro rejects it.
    only_fast = set(fast_failures) - set(slow_failures)
    assert set(slow_failures) <= set(fast_failures)
    kept = [n for n in range(400) if n not in slow_failures]
    expected = [row for n, row in zip(kept, slow_rows, strict=True) if n not in only_fast]
    assert repr(fast_rows) == repr(expected)
    assert len(only_fast) < 10
