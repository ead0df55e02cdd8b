"""Schemas that libraries would stumble over are refused; those of Salesforce are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_provider_sfstream.exceptions import SchemaError
from airflow_provider_sfstream.salesforce.event_time import EventTimeReader
from airflow_provider_sfstream.salesforce.schemas import LARGEST_SCHEMA, parse
from airflow_provider_sfstream.tables.decode.avro_decoding import AvroDecoder
from tests.support.hostile_schemas import HOSTILE, record

CAPTURED = sorted((Path(__file__).parents[3].parent / "shared" / "schemas").glob("*.avsc"))


@pytest.mark.parametrize("what", HOSTILE)
def test_a_schema_that_would_take_its_reader_down_is_refused(what: str) -> None:
    schema, reason = HOSTILE[what]
    text = json.dumps(schema)
    for reader in (parse, EventTimeReader, AvroDecoder):
        with pytest.raises(SchemaError, match=reason):
            reader(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "record", "name": "R", "fields": [], "doc": "\\ud800"}',
        "[" * 100_000,
        '{"type": ' * 100_000,
        "null",
        "[]",
        '"int"',
        '{"type": "enum", "name": "E", "symbols": ["A"]}',
        '{"type": ["record"], "name": "R", "fields": []}',
        "{",
        "",
        " " * (LARGEST_SCHEMA + 1),
    ],
    ids=lambda text: text[:20],
)
def test_a_text_that_is_no_record_schema_is_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        parse(text)


@pytest.mark.skipif(not CAPTURED, reason="the captured schemas are not in this checkout")
def test_schemas_of_a_real_org_are_taken() -> None:
    for path in CAPTURED:
        assert parse(path.read_text()) == json.loads(path.read_text())


def test_named_types_may_be_used_again() -> None:
    schema = record(record("int", name="Inner"), ["null", "Inner"], {"type": "map", "values": "Inner"}, namespace="x.y")
    assert parse(json.dumps(schema)) == schema
