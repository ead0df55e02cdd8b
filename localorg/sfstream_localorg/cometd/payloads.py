"""Conversion of events on the bus to the JSON of the Streaming API.

The JSON of a platform event or change event has the fields of its Avro record, with dates as ISO 8601 text. Change
events omit null fields, spell out their changed fields, have no ``nulledFields`` and ``diffFields`` (§3.1 of the
notes), and carry the difference of a long text in an object (``{"diff": ...}``, Salesforce's guide to Change Data
Capture). Events of PushTopics and generic channels are stored on the bus as JSON without the replay ID.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any

from sfstream_localorg.bus.event_bus import StoredEvent
from sfstream_localorg.bus.payloads import decode
from sfstream_localorg.bus.schemas import SchemaRegistry
from sfstream_localorg.records.bitmaps import bitmap_fields

to_json: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""JSON encoder of the Streaming API."""

_REPLAY_ID = b'"replayId":null'
_DAY = 86_400_000
_EPOCH = date(1970, 1, 1).toordinal()
_OMITTED_HEADER_FIELDS = ("nulledFields", "diffFields")

Convert = Callable[[int], str]


def json_event(created_date: str, *, type: str | None = None, **body: Any) -> bytes:
    """Return the ``data`` of a PushTopic or generic event for the bus, with a null in place of the replay ID.

    :param created_date: ISO 8601.
    :param type: ``created``, ``updated``, ``deleted`` or ``undeleted``.
    :param body: ``sobject`` or ``payload``.
    """
    event = {"createdDate": created_date, "replayId": None} | ({"type": type} if type else {})
    return to_json({"event": event, **body}).encode()


def iso_moment(milliseconds: int) -> str:
    """Format a time as in event messages: ``2026-11-21T09:30:00.250Z``."""
    seconds, thousandths = divmod(milliseconds, 1000)
    return f"{_iso_second(seconds)}.{thousandths:03d}Z"


@lru_cache(maxsize=4096)
def _iso_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()


class EventData:
    """Encoder of the ``data`` of event messages, with a cache of the newest results.

    :param memory: size of the cache, in bytes of JSON.
    """

    def __init__(self, schemas: SchemaRegistry, *, memory: int = 64 * 1024 * 1024) -> None:
        self._schemas = schemas
        self._memory = memory
        self._dates: dict[str, dict[str, Convert]] = {}
        self._cache: OrderedDict[tuple[int, bytes], bytes] = OrderedDict()
        self._size = 0

    def __call__(self, event: StoredEvent) -> bytes:
        """Return the JSON of an event's ``data``: always the same bytes for the same event."""
        if not event.schema_id:
            # json_event writes the replay ID before any text of a user, so the first match is the placeholder.
            return event.payload.replace(_REPLAY_ID, b'"replayId":%d' % event.position, 1)
        key = event.position, event.payload  # a channel may change the payload of an event
        data = self._cache.get(key)
        if data is None:
            data = self._cache[key] = self._make(event)
            self._size += len(data)
            while self._size > self._memory:
                self._size -= len(self._cache.popitem(last=False)[1])
        return data

    def _make(self, event: StoredEvent) -> bytes:
        schema = self._schemas.parsed(event.schema_id)
        record = decode(schema, event.payload)
        header = record.get("ChangeEventHeader")
        envelope: dict[str, Any] = {"replayId": event.position}
        if header is not None:
            record = _change_event_json(record, header, schema)
        else:
            envelope = {"EventUuid": event.event_id, **envelope, "EventApiName": self._schemas.name(event.schema_id)}
        for name, convert in self._converters(event.schema_id, schema).items():
            if record.get(name) is not None:
                record[name] = convert(record[name])
        return to_json({"schema": event.schema_id, "payload": record, "event": envelope}).encode()

    def _converters(self, schema_id: str, schema: Mapping[str, Any]) -> dict[str, Convert]:
        if schema_id not in self._dates:
            kinds = {field["name"]: field.get("doc", "").split(":") for field in schema["fields"]}
            self._dates[schema_id] = {
                name: convert for name, doc in kinds.items() for kind, convert in _CONVERT.items() if kind in doc
            }
        return self._dates[schema_id]


def _change_event_json(
    record: Mapping[str, Any], header: Mapping[str, Any], schema: Mapping[str, Any]
) -> dict[str, Any]:
    changed = bitmap_fields(header["changedFields"], schema)
    shown = {name: value for name, value in header.items() if name not in _OMITTED_HEADER_FIELDS}
    body = {name: _without_nulls(value) for name, value in record.items() if value is not None and value is not header}
    body |= {name: {"diff": record[name]} for name in bitmap_fields(header["diffFields"], schema)}
    for name in changed:  # a changed field without a value became null
        parent, _, child = name.partition(".")
        if not child:
            body.setdefault(parent, None)
        elif record.get(parent) is None or isinstance(record[parent], Mapping):
            body.setdefault(parent, {})
            body[parent].setdefault(child, None)
    return {"ChangeEventHeader": {**shown, "changedFields": changed}, **body}


def _without_nulls(value: Any) -> Any:
    """Return a value without the null parts of a compound field."""
    return {k: v for k, v in value.items() if v is not None} if isinstance(value, Mapping) else value


def _day(milliseconds: int) -> str:
    return date.fromordinal(_EPOCH + milliseconds // _DAY).isoformat()


def _time(milliseconds: int) -> str:
    return iso_moment(milliseconds)[11:]


_CONVERT: dict[str, Convert] = {"DateTime": iso_moment, "DateOnly": _day, "TimeOnly": _time}
