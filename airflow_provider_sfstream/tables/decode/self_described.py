"""Events that no Avro schema describes: what their JSON holds, and which columns it becomes.

Text is a string, a boolean a boolean and a number a double; an object or an array is kept whole, as JSON text. A
number that a double cannot hold is a long, and where that cannot hold it either, its JSON text. Null tells nothing.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from airflow_provider_sfstream.tables.decode.json_values import as_double, json_text, kind_name, parse_object
from airflow_provider_sfstream.tables.decode.payload_formats import Format

EVENT_TYPE = "_event_type"
"""The column of a PushTopic event's ``event.type``: created, updated, deleted or undeleted."""
_FIELD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_EXACT = 1 << 53
_KEYS: dict[Format, frozenset[str]] = {
    "push_topic": frozenset(("event", "sobject")),
    "generic": frozenset(("event", "payload")),
    "event": frozenset(("schema", "event", "payload")),
}


class Field(NamedTuple):
    """One column that events of a format have: a field by its lower-case name, and the type of its values."""

    name: str
    type: str


class Body(NamedTuple):
    """What one event holds: its fields in the JSON's spelling, none of them null, and the time that it tells."""

    fields: dict[str, Any]
    time: str | int | None


def read_body(format_: Format, payload: bytes) -> Body:
    """Return what the payload of an event holds.

    :raises ValueError: if it is no event of the format, or a field cannot be a column.
    """
    document = parse_object(payload)
    unknown = document.keys() - _KEYS[format_]
    if unknown:
        raise ValueError(f"the event has a key {min(unknown)!r}, which is not known here")
    event = _object(document, "event")
    if format_ == "push_topic":
        fields = _object(document, "sobject")
        if EVENT_TYPE in fields:
            raise ValueError(f"sobject has a field {EVENT_TYPE}, which is the name of another column")
        fields = {EVENT_TYPE: _text(event.get("type"), "event.type"), **fields}
    elif format_ == "generic":
        value = document.get("payload")
        fields = {"payload": value if value is None or type(value) is str else json_text(value)}
    else:
        fields = _object(document, "payload")
    time = event.get("createdDate")
    return Body(_checked(fields), _time(fields) if time is None and format_ == "event" else time)


@lru_cache(maxsize=4096)
def column_name(name: str) -> str:
    """Return a field's name in lower case, as columns are told apart.

    :raises ValueError: if it is no name that a field can have.
    """
    if not _FIELD_NAME.fullmatch(name):
        raise ValueError(f"{name[:80]!r} cannot name a column")
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
    """Return a field's value as its column, of the type that :func:`field_type` gave, takes it."""
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


def _object(document: dict[str, Any], key: str) -> dict[str, Any]:
    value = document.get(key)
    if type(value) is not dict:
        raise ValueError(f"{key} is {kind_name(value)}, not an object")
    return value


def _text(value: Any, name: str) -> str | None:
    if value is not None and type(value) is not str:
        raise ValueError(f"{name} is {kind_name(value)}, not text")
    return value


def _checked(fields: dict[str, Any]) -> dict[str, Any]:
    """Leave out nulls, which say nothing; refuse names that are no field's, or that differ in their case only."""
    if len({column_name(name) for name in fields}) < len(fields):
        raise ValueError("two fields differ only in the case of their names")
    return {name: value for name, value in fields.items() if value is not None}


def _time(payload: dict[str, Any]) -> Any:
    """Return when a platform or change event says that it happened."""
    header = payload.get("ChangeEventHeader")
    return header.get("commitTimestamp") if type(header) is dict else payload.get("CreatedDate")
