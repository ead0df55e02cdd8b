"""Schemas: parsing, Salesforce types, and clients that load each schema once."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airflow_provider_sfstream.exceptions import SchemaError, ServiceUnavailableError
from airflow_provider_sfstream.salesforce import schemas
from airflow_provider_sfstream.salesforce.event_time import EventTimeReader
from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient
from airflow_provider_sfstream.salesforce.schemas import LARGEST_SCHEMA, parse
from airflow_provider_sfstream.tables.decode.avro_decoding import AvroDecoder
from tests.support.hostile_schemas import HOSTILE, record

ORDER = json.dumps(
    {
        "type": "record",
        "name": "com.sforce.eventbus.Order__e",
        "fields": [
            {"name": "CreatedDate", "type": "long", "doc": "CreatedDate:DateTime"},
            {"name": "Note__c", "type": ["null", "string"], "doc": "Data:Text:00NRO000000Wq7V", "default": None},
            {"name": "Plain__c", "type": "string"},
        ],
    }
)


def test_the_record_name_is_the_event_name_without_its_namespace() -> None:
    assert schemas.record_name(ORDER) == "Order__e"


def test_the_doc_names_the_salesforce_type() -> None:
    types = [schemas.salesforce_type(field) for field in schemas.parse(ORDER)["fields"]]
    assert types == ["DateTime", "Text", None]


@pytest.mark.parametrize("text", ["", "{", '"string"', "[]", '{"type": "record"}', '{"type": "enum", "fields": []}'])
def test_schema_that_is_not_a_record_is_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        schemas.parse(text)


class SchemaClient(PubSubClient):
    """Client whose requests of schemas have these answers, then ``ORDER``."""

    def __init__(self, *answers: str | Exception) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self.answers = list(answers)
        self.loads: list[str] = []

    def _load_schema(self, schema_id: str) -> str:
        self.loads.append(schema_id)
        answer = self.answers.pop(0) if self.answers else ORDER
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_many_threads_load_a_schema_once() -> None:
    barrier = threading.Barrier(8)

    def get(_: int) -> str:
        barrier.wait(60)
        return client.schema("abc")

    with SchemaClient() as client, ThreadPoolExecutor(8) as pool:
        assert set(pool.map(get, range(8))) == {ORDER}
    assert client.loads == ["abc"]


def test_failed_or_invalid_load_is_not_cached() -> None:
    with SchemaClient(ServiceUnavailableError("busy"), "nonsense") as client:
        with pytest.raises(ServiceUnavailableError):
            client.schema("abc")
        with pytest.raises(SchemaError):
            client.schema("abc")
        assert client.schema("abc") == ORDER


CAPTURED = sorted((Path(__file__).parents[3].parent / "shared" / "schemas").glob("*.avsc"))


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_schema_is_refused(what: str) -> None:
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
def test_schemas_of_a_real_org_are_accepted() -> None:
    for path in CAPTURED:
        assert parse(path.read_text()) == json.loads(path.read_text())


def test_named_types_may_be_referenced_again() -> None:
    schema = record(record("int", name="Inner"), ["null", "Inner"], {"type": "map", "values": "Inner"}, namespace="x.y")
    assert parse(json.dumps(schema)) == schema
