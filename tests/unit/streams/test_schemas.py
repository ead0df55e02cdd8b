"""Schemas that a drain fetches: once each, with retries, and without failing the drain."""

from __future__ import annotations

import json

import pytest

from airflow_provider_sfstream.exceptions import AccessDeniedError, ServiceUnavailableError, SessionExpiredError
from airflow_provider_sfstream.streams.drain.schemas import MOST_FAULTS, NAMELESS, StreamSchemas
from tests.support.scripted_source import SCHEMA, ScriptedSource

NO_FIELD = json.dumps({"type": "record", "name": "A__e", "fields": ["Text__c"]})
NO_TYPE = json.dumps({"type": "record", "name": "A__e", "fields": [{"name": "N__c", "type": "nowhere"}]})


class Source(ScriptedSource):
    """Source that answers each schema request with the next of ``answers``, then with a valid schema."""

    def __init__(self, *answers):
        super().__init__([])
        self.answers = list(answers)
        self.asked = []

    def schema(self, schema_id):
        self.asked.append(schema_id)
        answer = self.answers.pop(0) if self.answers else SCHEMA
        if isinstance(answer, Exception):
            raise answer
        return answer


def schemas_of(source):
    return StreamSchemas(source, clock=source.time.clock)


def test_each_schema_is_fetched_once():
    source = Source()
    schemas = schemas_of(source)
    assert [schemas.get("a"), schemas.get("b"), schemas.get("a")] == [SCHEMA] * 3
    schemas.ask_again()
    assert source.asked == ["a", "b"]
    assert schemas.missing == {}


def test_json_payload_needs_no_schema():
    source = Source(None)
    schemas = schemas_of(source)
    assert [schemas.get("/u/a"), schemas.get("/u/a")] == [None, None]
    assert (source.asked, schemas.missing) == (["/u/a"], {})


@pytest.mark.parametrize(
    "answer", [AccessDeniedError("hidden"), "<html>", "", "[]", "[" * 100_000, '{"type": "string"}', NO_FIELD, NO_TYPE]
)
def test_refused_schema_is_requested_again_only_after_the_stream_was_read(answer):
    source = Source(answer)
    schemas = schemas_of(source)
    assert [schemas.get("a"), schemas.get("a"), schemas.get("b")] == [None, None, SCHEMA]
    assert (source.asked, list(schemas.missing)) == (["a", "b"], ["a"])
    schemas.ask_again()
    assert (schemas.get("a"), schemas.missing, source.asked) == (SCHEMA, {}, ["a", "b", "a"])


def test_missing_schema_has_the_reason_of_the_last_refusal():
    source = Source(AccessDeniedError("hidden"), AccessDeniedError("still hidden"))
    schemas = schemas_of(source)
    schemas.get("a")
    schemas.ask_again()
    assert schemas.get("a") is None
    assert schemas.missing == {"a": "still hidden"}


def test_schema_request_is_retried_after_a_pause():
    source = Source(ServiceUnavailableError("down"))
    schemas = schemas_of(source)
    assert [schemas.get("a"), schemas.get("a"), schemas.get("b")] == [None] * 3
    assert source.asked == ["a"]
    assert set(schemas.missing) == {"a", "b"}
    source.time.sleep(1.0)
    assert [schemas.get("b"), schemas.get("a")] == [SCHEMA] * 2
    assert schemas.missing == {}


def test_schema_retries_are_bounded():
    source = Source(*[ServiceUnavailableError("down")] * 99)
    schemas = schemas_of(source)
    for _ in range(99):
        assert schemas.get("a") is None
        source.time.sleep(60.0)
    assert len(source.asked) == MOST_FAULTS
    schemas.get("b")
    schemas.ask_again()
    assert len(source.asked) == MOST_FAULTS + 2
    assert schemas.missing == {"a": "down", "b": "down"}


def test_last_try_of_missing_schemas_is_bounded():
    source = Source(*[ServiceUnavailableError("down")] * 99)
    schemas = schemas_of(source)
    for number in range(30):
        schemas.get(f"schema {number}")
    schemas.ask_again()
    assert len(source.asked) == 1 + MOST_FAULTS
    assert len(schemas.missing) == 30


def test_expired_session_of_a_schema_request_is_renewed():
    source = Source(SessionExpiredError("ended"))
    schemas = schemas_of(source)
    assert schemas.get("a") is None
    assert source.renewals == 1
    source.time.sleep(1.0)
    assert schemas.get("a") == SCHEMA


def test_event_without_a_schema_id_causes_no_request():
    source = Source()
    schemas = schemas_of(source)
    assert schemas.get("") is None
    schemas.ask_again()
    assert (source.asked, schemas.missing) == ([], {"": NAMELESS})
