"""Avro schemas of platform events, and encoding and decoding of payloads."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import fastavro

from sfstream_localorg.identifiers import derived

_TYPES = {
    "string": ("string", "Data:Text"),
    "text": ("string", "Data:Text"),
    "textarea": ("string", "Data:TextArea"),
    "double": ("double", "Data:Double"),
    "number": ("double", "Data:Double"),
    "datetime": ("long", "Data:DateTime"),
    "date": ("long", "Data:DateOnly"),
    "boolean": ("boolean", "Data:Boolean"),
    "int": ("int", "Data:Integer"),
    "long": ("long", "Data:Long"),
}
_MILLISECONDS_PER_DAY = 86_400_000


def platform_event_schema(name: str, fields: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the Avro schema of a platform event: the two system fields, then the custom fields in order.

    :param fields: mappings such as ``{"name": "Amount__c", "type": "double"}``.
    :raises ValueError: if a field name is invalid or a duplicate, or a type is unknown.
    """
    columns: list[dict[str, Any]] = [
        {"name": "CreatedDate", "type": "long", "doc": "CreatedDate:DateTime"},
        {"name": "CreatedById", "type": "string", "doc": "CreatedBy:EntityId"},
    ]
    for field in fields:
        field_name, kind = str(field.get("name", "")), str(field.get("type", "")).lower()
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", field_name) or any(c["name"] == field_name for c in columns):
            raise ValueError(f"{name}: {field_name!r} is not a field name, or is there twice")
        if kind not in _TYPES:
            raise ValueError(f"{name}.{field_name}: there is no type {kind!r}; there are {', '.join(sorted(_TYPES))}")
        avro_type, doc = _TYPES[kind]
        identifier = derived("00N", f"{name}.{field_name}")
        columns.append({"name": field_name, "type": ["null", avro_type], "doc": f"{doc}:{identifier}", "default": None})
    return {"type": "record", "name": name, "fields": columns}


def encode(schema: Any, values: Mapping[str, Any]) -> bytes:
    """Return ``values`` as schemaless Avro. Fields whose ``doc`` names a date or time also accept ISO 8601 text.

    :raises ValueError: if the schema has no such field, or a value does not fit it.
    """
    record = {}
    for field in schema["fields"]:
        name = field["name"]
        if name in values:
            value = values[name]
            record[name] = _parsed(field, value) if isinstance(value, str) else value
    if len(record) < len(values):
        raise ValueError(f"{schema['name']} has no field {', '.join(sorted(set(values) - set(record)))}")
    buffer = io.BytesIO()
    try:
        fastavro.schemaless_writer(buffer, schema, record)
    except Exception as error:
        raise ValueError(f"the values do not fit {schema['name']}: {error}") from error
    return buffer.getvalue()


def decode(schema: Any, payload: bytes) -> dict[str, Any]:
    """Return the record in a schemaless Avro payload.

    :raises ValueError: if the payload is not exactly one record of this schema.
    """
    buffer = io.BytesIO(payload)
    try:
        record = fastavro.schemaless_reader(buffer, schema, None)
    except Exception as error:
        raise ValueError(f"the payload is not a {schema['name']}: {error}") from error
    if buffer.tell() != len(payload):
        raise ValueError(f"the payload has bytes after its {schema['name']} record")
    return dict(record)


def _parsed(field: Mapping[str, Any], value: str) -> str | int:
    """Convert the text of a date or time field to milliseconds; return other text unchanged."""
    doc = field.get("doc", "")
    if doc.startswith(("Data:DateTime", "CreatedDate:DateTime")):
        moment = datetime.fromisoformat(value)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    if doc.startswith("Data:DateOnly"):
        return (date.fromisoformat(value) - date(1970, 1, 1)).days * _MILLISECONDS_PER_DAY
    return value
