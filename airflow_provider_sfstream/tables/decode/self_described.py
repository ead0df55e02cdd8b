"""Formats of landed payloads, and events without an Avro schema: their tables, JSON values and columns.

An Avro schema describes ``avro`` and ``json`` events. The other formats are self-described: a ``push_topic`` event has
a record's fields, a ``generic`` event the content that its publisher sent, and an ``event`` (a platform or change
event) lacks the schema because Salesforce did not provide it.

Text is a string, a boolean a boolean and a number a double; an object or an array is stored whole, as JSON text. A
number that a double cannot hold is a long, and if that cannot hold it either, its JSON text. Null adds no column.
"""

from __future__ import annotations

import hashlib
import re
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from airflow_provider_sfstream.tables.decode.json_values import as_double, json_text, kind_name, parse_object

Format = Literal["avro", "json", "push_topic", "generic", "event"]

WITH_SCHEMA: tuple[Format, ...] = ("avro", "json")

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,119}")
_SEGMENT = r"[A-Za-z0-9]+(?:_[A-Za-z0-9]+)*"
_GENERIC = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")
_LONGEST = 120


def own_format(topic: str) -> Format:
    """Return the format of a topic's JSON payloads without a schema."""
    if topic.startswith("/topic/"):
        return "push_topic"
    return "generic" if topic.startswith("/u/") else "event"


def table_of_topic(topic: str) -> str:
    """Return the table of self-described events: one for each channel, regardless of the topic's filter.

    ``/topic/InvoiceUpdates?Status='Open'`` becomes ``InvoiceUpdates``, ``/event/Order__e`` becomes ``Order__e`` and
    ``/u/notifications/Orders`` becomes ``u_notifications__Orders``. Other names keep their safe characters, followed by
    ``___`` and eight hex digits of their SHA-256: two channels of a kind never share a table.
    """
    channel = topic.partition("?")[0]
    kind, _, name = channel.lstrip("/").partition("/")
    if kind == "u":
        table = "u_" + name.replace("/", "__")
        readable = _GENERIC.fullmatch(name) is not None
    else:
        table = name
        readable = _NAME.fullmatch(name) is not None and not name.startswith("u_") and "___" not in name
    if readable and len(table) <= _LONGEST:
        return table
    safe = re.sub(r"[^A-Za-z0-9]+", "_", f"{kind}/{name}").strip("_")[:100]
    return f"{safe if safe[:1].isalpha() else 'u'}___{hashlib.sha256(channel.encode()).hexdigest()[:8]}"


EVENT_TYPE = "_event_type"
"""Column of a PushTopic event's ``event.type``: created, updated, deleted or undeleted."""
_FIELD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_EXACT = 1 << 53
"""A double represents every integer up to this one exactly."""
_KEYS: dict[Format, frozenset[str]] = {
    "push_topic": frozenset(("event", "sobject")),
    "generic": frozenset(("event", "payload")),
    "event": frozenset(("schema", "event", "payload")),
}


class Field(NamedTuple):
    """Column of the events of a format: a field by its lower-case name, and the type of its values."""

    name: str
    type: str


class Body(NamedTuple):
    """Content of one event: its non-null fields in the JSON's spelling, and its time."""

    fields: dict[str, Any]
    time: str | int | None


def parse_event(format_: Format, payload: bytes) -> dict[str, Any]:
    """Return the JSON object of an event.

    :raises ValueError: if it has a key that the format does not have.
    """
    document = parse_object(payload)
    unknown = document.keys() - _KEYS[format_]
    if unknown:
        raise ValueError(f"the event has an unknown key {min(unknown)!r}")
    return document


def read_body(format_: Format, payload: bytes) -> Body:
    """Return the content of an event's payload.

    :raises ValueError: if it is not an event of the format, or a field cannot be a column.
    """
    document = parse_event(format_, payload)
    event = object_in(document, "event")
    if format_ == "push_topic":
        fields = object_in(document, "sobject")
        if EVENT_TYPE in fields:
            raise ValueError(f"sobject has a field {EVENT_TYPE}, which is the name of another column")
        fields = {EVENT_TYPE: _text(event.get("type"), "event.type"), **fields}
    elif format_ == "generic":
        value = document.get("payload")
        fields = {"payload": value if value is None or type(value) is str else json_text(value)}
    else:
        fields = object_in(document, "payload")
    time = event.get("createdDate")
    return Body(_checked(fields), _time(fields) if time is None and format_ == "event" else time)


@lru_cache(maxsize=4096)
def column_name(name: str) -> str:
    """Return a field's name in lower case, because column names are not case-sensitive.

    :raises ValueError: if it is not a valid field name.
    """
    if not _FIELD_NAME.fullmatch(name):
        raise ValueError(f"{name[:80]!r} is not a valid column name")
    return name.lower()


def field_type(value: Any) -> str:
    """Return the column type of a field's value, which is not null."""
    if type(value) is not int:
        return _TYPES[type(value)]
    if -_EXACT <= value <= _EXACT:
        return "double"
    try:
        as_double(value)
    except ValueError:
        return "long" if -(1 << 63) <= value < 1 << 63 else "string"
    return "double"


def column_value(value: Any, type_: str) -> Any:
    """Return a field's value converted for its column, of the type that :func:`field_type` returned."""
    if type_ == "string":
        return value if type(value) is str else json_text(value)
    return float(value) if type_ == "double" else value


_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    float: "double",
    Decimal: "string",
    dict: "string",
    list: "string",
}


def object_in(document: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the object with a key.

    :raises ValueError: if the value is not an object.
    """
    value = document.get(key)
    if type(value) is not dict:
        raise ValueError(f"{key} is {kind_name(value)}, not an object")
    return value


def _text(value: Any, name: str) -> str | None:
    if value is not None and type(value) is not str:
        raise ValueError(f"{name} is {kind_name(value)}, not text")
    return value


def _checked(fields: dict[str, Any]) -> dict[str, Any]:
    """Remove null fields; reject invalid field names and names that differ only in case."""
    if len({column_name(name) for name in fields}) < len(fields):
        raise ValueError("two fields differ only in the case of their names")
    return {name: value for name, value in fields.items() if value is not None}


def _time(payload: dict[str, Any]) -> Any:
    """Return the time of a platform or change event."""
    header = payload.get("ChangeEventHeader")
    return header.get("commitTimestamp") if type(header) is dict else payload.get("CreatedDate")
