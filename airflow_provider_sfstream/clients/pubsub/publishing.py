"""Events on their way to the bus: encoding, sizes, requests, results."""

from __future__ import annotations

import io
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import fastavro

from airflow_provider_sfstream.exceptions import PublishError, SalesforceStreamError, SchemaError
from airflow_provider_sfstream.protocol import schemas
from airflow_provider_sfstream.protocol.pubsub_api_pb2 import ProducerEvent, PublishRequest, PublishResponse

MOST_EVENT_BYTES = 1024 * 1024
MOST_REQUEST_BYTES = 3_000_000
MOST_REQUEST_EVENTS = 200
"""Allocations of the Pub/Sub API guide: 1 MB an event, 3 MB and 200 events a publish request."""


def _new_key() -> str:
    return str(uuid.uuid4())


@dataclass(frozen=True)
class OutgoingEvent:
    """One event to publish: its Avro payload, and the schema id that the payload was written with.

    :param correlation_key: comes back with the result; a new UUID if not given.
    """

    payload: bytes = field(repr=False)
    schema_id: str
    correlation_key: str = field(default_factory=_new_key)


@dataclass(frozen=True)
class PublishedEvent:
    """The result for one event: the replay ID it got, or the error that kept it from the bus."""

    correlation_key: str
    replay_id: bytes | None
    error: SalesforceStreamError | None = None


def encode(
    schema_json: str, schema_id: str, values: Mapping[str, Any], *, created_by: str | None = None
) -> OutgoingEvent:
    """Return an event with ``values`` by field name. ``CreatedDate`` (milliseconds) defaults to now, ``CreatedById``
    to ``created_by``; Salesforce requires both in the payload of a platform event and then sets its own.

    :raises SchemaError: if a field is unknown, missing or of another type. Values are not part of the message.
    """
    schema = schemas.parse(schema_json)
    names = {entry["name"] for entry in schema["fields"]}
    unknown = sorted(set(values) - names)
    event_name = schemas.record_name(schema_json)
    if unknown:
        raise SchemaError(f"{event_name} has no field {', '.join(unknown)}; it has {', '.join(sorted(names))}.")
    record = dict(values)
    if "CreatedDate" in names:
        record.setdefault("CreatedDate", time.time_ns() // 1_000_000)
    if "CreatedById" in names:
        record.setdefault("CreatedById", created_by or "")
    buffer = io.BytesIO()
    try:
        fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), record, strict_allow_default=True)
    except (ValueError, TypeError, KeyError, OverflowError, AttributeError):
        # The cause would quote the value.
        raise SchemaError(
            f"{_misfits(schema, record)} of a {event_name} is not of its type. Nothing was published."
        ) from None
    return OutgoingEvent(buffer.getvalue(), schema_id)


def _misfits(schema: dict[str, Any], record: Mapping[str, Any]) -> str:
    """Return the names of fields whose value is missing or of another type."""
    misfits = []
    for entry in fastavro.parse_schema(schema, expand=True)["fields"]:
        value = record.get(entry["name"], entry.get("default"))
        if not fastavro.validation.validate(value, entry["type"], raise_errors=False):
            misfits.append(entry["name"])
    return ", ".join(misfits) or "A value"


def requests(topic: str, events: Sequence[OutgoingEvent]) -> list[PublishRequest]:
    """Return the publish requests for ``events``, in order, each within Salesforce's limits.

    :raises PublishError: if an event is over 1 MB. Nothing was published.
    """
    messages = [ProducerEvent(id=e.correlation_key, schema_id=e.schema_id, payload=e.payload) for e in events]
    too_large = [index for index, message in enumerate(messages) if message.ByteSize() > MOST_EVENT_BYTES]
    if too_large:
        raise PublishError(
            f"{topic}: {len(too_large)} of {len(events)} events are over 1 MB, the first at index {too_large[0]}. "
            "Make them smaller; nothing was published."
        )
    return [PublishRequest(topic_name=topic, events=group) for group in _groups(messages)]


def _groups(messages: Sequence[ProducerEvent]) -> Iterator[list[ProducerEvent]]:
    group: list[ProducerEvent] = []
    size = 0
    for message in messages:
        length = message.ByteSize() + 16  # its tag and length in the request
        if group and (len(group) == MOST_REQUEST_EVENTS or size + length > MOST_REQUEST_BYTES):
            yield group
            group, size = [], 0
        group.append(message)
        size += length
    if group:
        yield group


def results(topic: str, request: PublishRequest, response: PublishResponse) -> list[PublishedEvent]:
    """Return the result of each event of ``request``, in its order.

    :raises PublishError: if Salesforce answered with another number of results.
    """
    if len(response.results) != len(request.events):
        raise PublishError(
            f"{topic}: Salesforce answered {len(response.results)} results for {len(request.events)} events "
            f"(rpc id {response.rpc_id}); which of them were published is unknown."
        )
    published = []
    for event, result in zip(request.events, response.results, strict=True):
        error = None
        if result.HasField("error"):
            error = PublishError(f"{topic}: the event was not published: {result.error.msg or 'no reason given'}")
        published.append(PublishedEvent(event.id, None if error else result.replay_id, error))
    return published


def not_published(request: PublishRequest, error: SalesforceStreamError) -> list[PublishedEvent]:
    """Return ``error`` as the result of each event of ``request``."""
    return [PublishedEvent(event.id, None, error) for event in request.events]
