"""Schema and events of the sample platform event."""

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
"""Maximum number of events in one request that Salesforce recommends."""


@dataclass(frozen=True)
class Schema:
    """An Avro schema from the org."""

    id: str
    json: dict[str, Any]

    @classmethod
    def of(cls, run: ProbeRun, schema_id: str) -> Schema:
        """Fetch a schema from the org."""
        answer = run.rpc("GetSchema")(
            pb.SchemaRequest(schema_id=schema_id), metadata=run.metadata(), timeout=CALL_SECONDS
        )
        return cls(schema_id, json.loads(answer.schema_json))

    def encoded(self, fields: dict[str, Any]) -> bytes:
        """Return the payload of an event; fields that are not passed are null."""
        target = io.BytesIO()
        fastavro.schemaless_writer(target, fastavro.parse_schema(dict(self.json)), fields)
        return target.getvalue()

    def decoded(self, payload: bytes) -> dict[str, Any]:
        """Return the fields of an event."""
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
    """Publish sample events, which count as spent."""
    run.spend(len(events))
    request = pb.PublishRequest(topic_name=SAMPLE_EVENT, events=events)
    response: pb.PublishResponse = run.rpc("Publish")(request, metadata=run.metadata(), timeout=CALL_SECONDS)
    return response


def publish_undelivered(run: ProbeRun, count: int) -> list[bytes]:
    """Publish sample events while no stream receives them, so that they do not count; return their replay IDs.

    :raises SkippedError: if the org refuses an event.
    """
    schema = sample_schema(run)
    user = run.org.login.token.user_id or "005000000000000AAA"
    replay_ids: list[bytes] = []
    while len(replay_ids) < count:
        number = min(_PUBLISHED_AT_ONCE, count - len(replay_ids))
        events = [sample(schema, created_ms=1_700_000_000_000, created_by=user) for _ in range(number)]
        request = pb.PublishRequest(topic_name=SAMPLE_EVENT, events=events)
        results = run.rpc("Publish")(request, metadata=run.metadata(), timeout=CALL_SECONDS).results
        if refused := [result.error.msg for result in results if not result.replay_id]:
            raise SkippedError(f"an event of the backlog was not published: {refused[0]}")
        replay_ids += [bytes(result.replay_id) for result in results]
    return replay_ids


def published(run: ProbeRun, count: int) -> list[bytes]:
    """Publish ``count`` sample events; return their replay IDs."""
    schema = sample_schema(run)
    user = run.org.login.token.user_id or "005000000000000AAA"
    events = [sample(schema, created_ms=1_700_000_000_000, created_by=user) for _ in range(count)]
    return [result.replay_id for result in publish(run, *events).results]
