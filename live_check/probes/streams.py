"""Topics, schemas, published events, replay IDs."""

from __future__ import annotations

import time
from typing import Any

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from live_check.calls import Stream
from live_check.events import publish, published, sample, sample_schema
from live_check.probe import probe
from live_check.run import ACCOUNT_CHANGES, CHANGE_EVENTS, CHANNEL, SAMPLE_EVENT, ProbeRun, SkippedError

WAIT_SECONDS = 30.0
SECONDS_OF_A_DAY = 86_400


@probe("How does GetTopic describe topics and channels?")
def topics(run: ProbeRun) -> Any:
    names = {"event": SAMPLE_EVENT, "channel": CHANNEL, "change_events": CHANGE_EVENTS, "entity": ACCOUNT_CHANGES}
    return {kind: _topic(run, name) for kind, name in names.items()}


def _topic(run: ProbeRun, name: str) -> Any:
    try:
        info = run.topic(name)
    except SkippedError as missing:
        return {"skipped": str(missing)}
    return {
        "can_publish": info.can_publish,
        "can_subscribe": info.can_subscribe,
        "schema_id": f"{len(info.schema_id)} characters",
        "name_as_asked": info.topic_name == name,
        "tenant": run.org.redact(info.tenant_guid),
        "rpc_id": run.org.redact(info.rpc_id),
    }


@probe("Which fields and types does the schema of a platform event have?")
def schemas(run: ProbeRun) -> Any:
    schema = sample_schema(run)
    fields = [(field["name"], field["type"], field.get("doc")) for field in schema.json["fields"]]
    compact = run.org.rest("GET", f"/event/eventSchema/{schema.id}", params={"payloadFormat": "COMPACT"})
    return {
        "name": schema.json.get("name"),
        "namespace": schema.json.get("namespace"),
        "uuid_is_id": schema.json.get("uuid") == schema.id,
        "keys": sorted(schema.json),
        "fields": {name: {"type": kind, "doc": doc} for name, kind, doc in fields},
        "first_fields": [name for name, _, _ in fields[:2]],
        "same_over_rest": compact.is_success and compact.json().get("fields") == schema.json["fields"],
    }


@probe("Which ID, key and times does a published event have?", events=4)
def published_events(run: ProbeRun) -> Any:
    schema = sample_schema(run)
    yesterday = int((time.time() - SECONDS_OF_A_DAY) * 1000)
    given = sample(schema, created_ms=yesterday, created_by="005000000000000AAA")
    anchor = published(run, 1)[0]
    answer = publish(run, given)
    with Stream(run) as stream:
        stream.send(topic_name=SAMPLE_EVENT, replay_preset=pb.CUSTOM, replay_id=anchor, num_requested=1)
        events = stream.events(1, WAIT_SECONDS)
    if not events:
        return {"delivered": False}
    event = events[0].event
    content = schema.decoded(event.payload) if event.schema_id == schema.id else {}
    (result,) = answer.results
    return {
        "delivered": True,
        "key_is_given_id": result.correlation_key == given.id,
        "event_id_is_given": event.id == given.id,
        "answer_has_schema_id": answer.schema_id == schema.id,
        "schema_id_is_given": event.schema_id == schema.id,
        "payload_unchanged": event.payload == given.payload,
        "created_date": "kept" if content.get("CreatedDate") == yesterday else "replaced",
        "created_by": "kept" if content.get("CreatedById") == "005000000000000AAA" else "replaced",
    }


@probe("Which format do replay IDs have, and from which can a stream resume?", events=12)
def replay_ids(run: ProbeRun) -> Any:
    first, second, third = published(run, 3)
    after_first, response = _after(run, SAMPLE_EVENT, first, requested=2)
    after_short, _ = _after(run, SAMPLE_EVENT, first[:8], requested=1)
    with Stream(run) as stream:
        stream.send(topic_name=SAMPLE_EVENT, replay_preset=pb.CUSTOM, replay_id=third, num_requested=500)
        published(run, 1)
        arrived = stream.next(WAIT_SECONDS)
    owed = getattr(arrived and arrived.response, "pending_num_requested", None)
    came = len(getattr(arrived and arrived.response, "events", ()))
    return {
        "bytes": len(first),
        "last_two_bytes": first[8:].hex(),
        "rising": first < second < third,
        "resumes_strictly_after": after_first[:1] == [second],
        "first_8_bytes_do": after_short[:1] == [second],
        "latest_is_last_event": response is not None and response.latest_replay_id == after_first[-1],
        "owed_of_500_asked": None if owed is None else owed + came,
        "of_another_topic": _other_topic(run, third),
    }


def _after(run: ProbeRun, topic: str, replay_id: bytes, *, requested: int) -> tuple[list[bytes], Any]:
    """Return the replay IDs of the events after one, and the last response."""
    found: list[bytes] = []
    last = None
    with Stream(run) as stream:
        stream.send(topic_name=topic, replay_preset=pb.CUSTOM, replay_id=replay_id, num_requested=requested)
        while len(found) < requested:
            arrived = stream.next(WAIT_SECONDS)
            if arrived is None or arrived.end is not None:
                break
            last = arrived.response
            found += [event.replay_id for event in last.events]
    return found, last


def _other_topic(run: ProbeRun, replay_id: bytes) -> str:
    """Return whether a stream of change events accepts a replay ID of a platform event."""
    with Stream(run) as stream:
        stream.send(topic_name=CHANGE_EVENTS, replay_preset=pb.CUSTOM, replay_id=replay_id, num_requested=1)
        arrived = stream.next(3.0)
    return "taken" if arrived is None or arrived.end is None else str(arrived.end["error_code"])


@probe("Which responses does a stream without events send, and does GetTopic work meanwhile?", events=1)
def silent_stream(run: ProbeRun) -> Any:
    run.topic(SAMPLE_EVENT)
    (last,) = published(run, 1)
    with Stream(run) as stream:
        stream.send(topic_name=SAMPLE_EVENT, replay_preset=pb.CUSTOM, replay_id=last, num_requested=1)
        arrived = stream.next(10.0)
        began = time.monotonic()
        run.topic(SAMPLE_EVENT)
        took = time.monotonic() - began
        if stream.metadata_at is None:
            initial_metadata = "none within 10 s"
        elif arrived is None or stream.metadata_at - stream.began < (arrived.at - stream.began) / 2:
            initial_metadata = "before the first response"
        else:
            initial_metadata = "with the first response"
    return {"initial_metadata": initial_metadata, "get_topic_beside_it": run.seconds("get_topic", took, 5, 30)}


PROBES = [topics, schemas, published_events, replay_ids, silent_stream]
