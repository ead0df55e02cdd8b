"""Events on their way to a landing that may not hold some fields."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_sfstream.drain.left_out import WithoutFields
from airflow_provider_sfstream.drain.schemas import StreamSchemas
from airflow_provider_sfstream.exceptions import AccessDeniedError, ServiceUnavailableError
from airflow_provider_sfstream.protocol.field_rules import landing_rules
from airflow_provider_sfstream.protocol.manifest import LeftOut
from airflow_provider_sfstream.reading.source import EventBatch
from tests.support.landing_files import encode
from tests.support.scripted_source import ScriptedSource

FIELDS = [{"name": "CreatedDate", "type": "long"}, {"name": "Phone", "type": "string"}]
ORDER = {"type": "record", "name": "Order__e", "fields": FIELDS}
OTHER = {"type": "record", "name": "Other__e", "fields": FIELDS[:1]}


class Source(ScriptedSource):
    """Gives the schemas that it was made with; an error is raised, once if it may pass."""

    def __init__(self, **schemas: Any) -> None:
        super().__init__([])  # type: ignore[no-untyped-call]
        self.schemas = schemas

    def schema(self, schema_id: str) -> str:
        answer = self.schemas[schema_id]
        if isinstance(answer, list):
            answer = answer.pop(0) if answer else ORDER
        if isinstance(answer, Exception):
            raise answer
        return json.dumps(answer)


class Sink:
    def __init__(self) -> None:
        self.batches: list[EventBatch] = []

    def append(self, batch: EventBatch) -> None:
        self.batches.append(batch)


def batch(*events: tuple[str, bytes]) -> EventBatch:
    count = len(events)
    ids = [bytes([number]) for number in range(count)]
    return EventBatch(ids, [None] * count, [e[0] for e in events], [e[1] for e in events], b"", 0, 0)


def passing(source: Source, *names: str) -> tuple[WithoutFields, Sink]:
    sink = Sink()
    rules = landing_rules(names)
    return WithoutFields("/event/Order__e", StreamSchemas(source, clock=lambda: 0.0), rules).into(sink), sink


def test_events_pass_with_what_may_be_landed_of_them() -> None:
    without, sink = passing(Source(one=ORDER, two=OTHER), "Phone", "Nowhere__c")
    order, other = encode(ORDER, {"CreatedDate": 1, "Phone": "+43"}), encode(OTHER, {"CreatedDate": 2})
    without.append(batch(("one", order), ("two", other)))
    (given,) = sink.batches
    assert given.payloads == [encode(OTHER, {"CreatedDate": 1}), other]
    assert given.replay_ids == [b"\0", b"\1"]
    reduced, same = given.schema_ids
    assert (reduced != "one", same) == (True, "two")
    assert json.loads(without.schema(reduced) or "")["fields"][1]["type"] == "null"
    assert without.schema("one") is None
    assert without.told() == LeftOut(("Phone", "Nowhere__c"), {reduced: "one"}, 0)


def test_an_event_whose_fields_cannot_be_told_passes_empty_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    hidden = AccessDeniedError("hidden")
    without, sink = passing(Source(one=ORDER, hidden=hidden), "Phone")
    without.append(batch(("one", b"\xff+43 555"), ("hidden", b"+43 555"), ("one", b"")))
    (given,) = sink.batches
    assert given.payloads == [b"", b"", b""]
    assert given.schema_ids[1] == "hidden"
    assert without.told().emptied == 3
    assert "3 events landed without their payload" in caplog.text
    assert "+43" not in caplog.text


def test_a_schema_that_cannot_be_had_now_lets_nothing_pass() -> None:
    without, sink = passing(Source(one=[ServiceUnavailableError("down"), ORDER]), "Phone")
    event = ("one", encode(ORDER, {"CreatedDate": 1, "Phone": "+43"}))
    with pytest.raises(ServiceUnavailableError, match=r"schema one cannot be had now .*position was not moved"):
        without.append(batch(event))
    assert sink.batches == []
