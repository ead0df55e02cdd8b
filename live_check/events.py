"""The sample event: its schema, and events of it."""

from __future__ import annotations

import io
import json
import uuid
from dataclasses import dataclass
from typing import Any

import fastavro

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from live_check.run import CALL_SECONDS, SAMPLE_EVENT, ProbeRun, SkippedError

_PUBLISHED_AT_ONCE = 200
"""Salesforce recommends no more in one request."""


@dataclass(frozen=True)
class Schema:
    """A schema as the org gives it."""

    id: str
    json: dict[str, Any]

    @classmethod
    def of(cls, run: ProbeRun, schema_id: str) -> Schema:
        """Ask the org for a schema."""
        answer = run.stub().GetSchema(
            pb.SchemaRequest(schema_id=schema_id), metadata=run.metadata(), timeout=CALL_SECONDS
        )
        return cls(schema_id, json.loads(answer.schema_json))

    def encoded(self, fields: dict[str, Any]) -> bytes:
        """Return an event's payload; fields that are not given are null."""
        target = io.BytesIO()
        fastavro.schemaless_writer(target, fastavro.parse_schema(dict(self.json)), fields)
        return target.getvalue()

    def decoded(self, payload: bytes) -> dict[str, Any]:
        """Return an event's fields."""
        schema = fastavro.parse_schema(dict(self.json))
        return dict(fastavro.schemaless_reader(io.BytesIO(payload), schema, None))


def sample_schema(run: ProbeRun) -> Schema:
    """Return the newest schema of the sample event.

    :raises SkippedError: if the org does not have the event.
    """
    return Schema.of(run, run.topic(SAMPLE_EVENT).schema_id)


def sample(schema: Schema, *, created_ms: int, created_by: str, **fields: Any) -> pb.ProducerEvent:
    """Return a sample event to publish."""
    content = {"CreatedDate": created_ms, "CreatedById": created_by, "Order_Number__c": "live check", "Amount__c": 1.0}
    return pb.ProducerEvent(id=str(uuid.uuid4()), schema_id=schema.id, payload=schema.encoded(content | fields))


def publish(run: ProbeRun, *events: pb.ProducerEvent) -> pb.PublishResponse:
    """Publish sample events, which count."""
    run.spend(len(events))
    request = pb.PublishRequest(topic_name=SAMPLE_EVENT, events=events)
    response: pb.PublishResponse = run.stub().Publish(request, metadata=run.metadata(), timeout=CALL_SECONDS)
    return response


def publish_undelivered(run: ProbeRun, count: int) -> list[bytes]:
    """Publish sample events that no open stream is sent, so that they do not count; return their replay IDs.

    :raises SkippedError: if the org refuses one.
    """
    schema = sample_schema(run)
    user = run.org.login.token.user_id or "005000000000000AAA"
    replay_ids: list[bytes] = []
    while len(replay_ids) < count:
        number = min(_PUBLISHED_AT_ONCE, count - len(replay_ids))
        events = [sample(schema, created_ms=1_700_000_000_000, created_by=user) for _ in range(number)]
        request = pb.PublishRequest(topic_name=SAMPLE_EVENT, events=events)
        results = run.stub().Publish(request, metadata=run.metadata(), timeout=CALL_SECONDS).results
        if refused := [result.error.msg for result in results if not result.replay_id]:
            raise SkippedError(f"an event of the backlog was not published: {refused[0]}")
        replay_ids += [bytes(result.replay_id) for result in results]
    return replay_ids


def published(run: ProbeRun, count: int) -> list[bytes]:
    """Publish so many sample events; return their replay IDs."""
    schema = sample_schema(run)
    user = run.org.login.token.user_id or "005000000000000AAA"
    events = [sample(schema, created_ms=1_700_000_000_000, created_by=user) for _ in range(count)]
    return [result.replay_id for result in publish(run, *events).results]
