"""Events to publish: values, encoding, sizes, requests, results.

Salesforce writes dates and times as Avro longs, in milliseconds since the epoch, and names the real type in each
field's ``doc``; see :func:`~airflow_provider_sfstream.salesforce.schemas.salesforce_type`.
"""

from __future__ import annotations

import io
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeVar

import fastavro

from airflow_provider_sfstream.exceptions import PublishError, SalesforceStreamError, SchemaError
from airflow_provider_sfstream.salesforce import schemas
from airflow_provider_sfstream.salesforce.errors.pubsub import error_from_result
from airflow_provider_sfstream.salesforce.pubsub_api_pb2 import ProducerEvent, PublishRequest, PublishResponse
from airflow_provider_sfstream.salesforce.schemas import salesforce_type

T = TypeVar("T")

MOST_EVENT_BYTES = 1024 * 1024
MOST_REQUEST_BYTES = 3_000_000
MOST_REQUEST_EVENTS = 200
"""Allocations of the Pub/Sub API guide: 1 MB an event, 3 MB and 200 events a publish request."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGERS = {"int", "long"}


def _new_key() -> str:
    return str(uuid.uuid4())


@dataclass(frozen=True)
class OutgoingEvent:
    """One event to publish: its Avro payload, and the schema id that the payload was written with.

    :param correlation_key: Salesforce returns it with the result; default: a new UUID.
    """

    payload: bytes = field(repr=False)
    schema_id: str
    correlation_key: str = field(default_factory=_new_key)


@dataclass(frozen=True)
class PublishedEvent:
    """The result for one event: its replay ID, or the error for which it was not published."""

    correlation_key: str
    replay_id: bytes | None
    error: SalesforceStreamError | None = None


class EventEncoder:
    """Encoder of rows as events of one schema.

    :param created_by: the default of ``CreatedById``. Salesforce requires it and ``CreatedDate`` in the payload of a
        platform event (Pub/Sub API guide, "Publish RPC Method").
    """

    def __init__(self, schema_json: str, schema_id: str, *, created_by: str | None = None) -> None:
        self._written = schemas.parse(schema_json)
        self._schema = fastavro.parse_schema(self._written)
        self._fields = {entry["name"]: entry for entry in self._written["fields"]}
        self._schema_id, self._created_by = schema_id, created_by
        self.event_name = schemas.record_name(schema_json)
        self.field_names = frozenset(self._fields)

    def check_names(self, names: Iterable[str]) -> None:
        """Raise :class:`SchemaError` if names are not fields of the event."""
        unknown = sorted(set(names) - self.field_names)
        if unknown:
            names = ", ".join(sorted(self.field_names))
            raise SchemaError(f"{self.event_name} has no field {', '.join(unknown)}. Its fields are {names}.")

    def encode(self, values: Mapping[str, Any], correlation_key: str | None = None) -> OutgoingEvent:
        """Return an event with ``values`` by field name. Times need a time zone; times and dates may be ISO 8601 text.

        ``CreatedDate`` defaults to now. It is not known whether Salesforce stores another value.

        :raises SchemaError: if a field is unknown, missing or of another type. Values are not part of the message.
        """
        self.check_names(values)
        record, invalid = dict(values), []
        for name, value in values.items():
            try:
                record[name] = event_value(self._fields[name], value)
            except ValueError:
                invalid.append(name)
        if "CreatedDate" in self._fields:
            record.setdefault("CreatedDate", time.time_ns() // 1_000_000)
        if "CreatedById" in self._fields:
            record.setdefault("CreatedById", self._created_by or "")
        buffer = io.BytesIO()
        try:
            if not invalid:
                fastavro.schemaless_writer(buffer, self._schema, record, strict_allow_default=True)
        except (ValueError, TypeError, KeyError, OverflowError, AttributeError):
            invalid = self._invalid_fields(record) or ["an unidentified field"]
        if invalid:
            # Without the cause, which quotes the value.
            raise SchemaError(
                f"{self.event_name}: a value is missing or of the wrong type: {', '.join(invalid)}. Nothing was "
                "published."
            ) from None
        return OutgoingEvent(buffer.getvalue(), self._schema_id, correlation_key or _new_key())

    def _invalid_fields(self, record: Mapping[str, Any]) -> list[str]:
        invalid = []
        for entry in fastavro.parse_schema(self._written, expand=True)["fields"]:
            value = record.get(entry["name"], entry.get("default"))
            if not fastavro.validation.validate(value, entry["type"], raise_errors=False):
                invalid.append(entry["name"])
        return invalid


def size_of(event: OutgoingEvent) -> int:
    """Return the bytes of an event in a request; the maximum is :data:`MOST_EVENT_BYTES`."""
    return _message(event).ByteSize()


def requests(topic: str, events: Sequence[OutgoingEvent]) -> list[PublishRequest]:
    """Return the publish requests for ``events``, in order, each within Salesforce's limits.

    :raises PublishError: if an event is over 1 MB. Nothing was published.
    """
    too_large = [index for index, event in enumerate(events) if size_of(event) > MOST_EVENT_BYTES]
    if too_large:
        raise PublishError(
            f"{topic}: {len(too_large)} of {len(events)} events are over 1 MB, the first at index {too_large[0]}. "
            "Reduce their size. Nothing was published."
        )
    return [PublishRequest(topic_name=topic, events=map(_message, group)) for group in grouped(events, size_of)]


def grouped(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield lists of items, in order, each as large as a publish request may be. ``size``: bytes of an item's event."""
    group: list[T] = []
    total = 0
    for item in items:
        length = size(item) + 16  # its tag and length in the request
        if group and (len(group) == MOST_REQUEST_EVENTS or total + length > MOST_REQUEST_BYTES):
            yield group
            group, total = [], 0
        group.append(item)
        total += length
    if group:
        yield group


def _message(event: OutgoingEvent) -> ProducerEvent:
    return ProducerEvent(id=event.correlation_key, schema_id=event.schema_id, payload=event.payload)


def results(topic: str, request: PublishRequest, response: PublishResponse) -> list[PublishedEvent]:
    """Return the result of each event of ``request``, in its order.

    :raises PublishError: if the response does not show a result of each event.
    """
    if len(response.results) != len(request.events):
        raise PublishError(
            f"{topic}: Salesforce returned {len(response.results)} results for {len(request.events)} events "
            f"(rpc id {response.rpc_id}). It is unknown which of them were published."
        )
    unknown = sum(not result.HasField("error") and not result.replay_id for result in response.results)
    if unknown:
        raise PublishError(
            f"{topic}: Salesforce returned neither a replay ID nor an error for {unknown} of {len(request.events)} "
            f"events (rpc id {response.rpc_id}). It is unknown which of them were published."
        )
    published = []
    for event, result in zip(request.events, response.results, strict=True):
        error = error_from_result(result.error.msg, topic=topic) if result.HasField("error") else None
        published.append(PublishedEvent(event.id, None if error else result.replay_id, error))
    return published


def not_published(request: PublishRequest, error: SalesforceStreamError) -> list[PublishedEvent]:
    """Return ``error`` as the result of each event of ``request``."""
    return [PublishedEvent(event.id, None, error) for event in request.events]


def event_value(field: dict[str, Any], value: Any) -> Any:
    """Return a value for a field of an event's schema in the form that Avro requires, unchanged if possible.

    Times need a time zone, and are not accepted as dates; both may be ISO 8601 text. A ``Decimal`` becomes the nearest
    double, and a whole number of type float (1.0, the form of pandas for integers with gaps) an integer.
    """
    kinds = _kinds(field["type"])
    if "long" in kinds and (field_type := salesforce_type(field)) in ("DateTime", "DateOnly"):
        return _milliseconds(value, is_date=field_type == "DateOnly")
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, float) and value.is_integer() and kinds & _INTEGERS and "double" not in kinds:
        return int(value)
    return value


def _kinds(avro: Any) -> set[str]:
    branches = avro if isinstance(avro, list) else [avro]
    return {str(branch.get("type") if isinstance(branch, dict) else branch) for branch in branches}


def _milliseconds(value: Any, *, is_date: bool) -> Any:
    if isinstance(value, str):
        value = date.fromisoformat(value) if is_date else datetime.fromisoformat(value)
    if isinstance(value, datetime):
        if is_date:
            return value  # the day of a time depends on the time zone: not a date
        if value.utcoffset() is None:
            raise ValueError("a time needs a time zone")
        return (value - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(value, date) and is_date:
        return (value - _EPOCH.date()) // timedelta(milliseconds=1)
    return value
