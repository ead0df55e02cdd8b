"""Columns of an event's Avro schema, and the conversion of each value to its real type.

Salesforce writes dates as Avro longs and puts the real type in each field's ``doc``: ``CreatedDate:DateTime``,
``Data:DateTime:00N...`` and ``Data:DateOnly`` (all milliseconds since the epoch, UTC). A union of several branches, for
example the ``Name`` of a person account (text or record), becomes one column for each branch.

A column type is a JSON value, as stored in the column registry: a name (``"string"``, ``"timestamp"``...),
``{"struct": {name: type}}``, ``{"array": type}`` or ``{"map": type}``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias

ColumnType: TypeAlias = str | dict[str, Any]
Conversion = Literal["plain", "milliseconds", "microseconds", "milliseconds_to_date", "json", "struct", "array", "map"]

PRIMITIVES = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "binary",
    "enum": "string",
    "fixed": "binary",
}
_LOGICAL: dict[tuple[str, str], tuple[str, Conversion]] = {
    ("long", "timestamp-millis"): ("timestamp", "milliseconds"),
    ("long", "timestamp-micros"): ("timestamp", "microseconds"),
    ("int", "date"): ("date", "plain"),
}
_DOCUMENTED: dict[str, tuple[str, Conversion]] = {
    "DateTime": ("timestamp", "milliseconds"),
    "DateOnly": ("date", "milliseconds_to_date"),
}


@dataclass(frozen=True)
class Value:
    """Column type of a value and its conversion; ``members`` of a struct and the name of its Avro ``record``, ``item``
    of an array or a map."""

    type: ColumnType
    conversion: Conversion = "plain"
    members: tuple[Member, ...] = ()
    item: Value | None = None
    record: str = ""


_JSON = Value("string", "json")
"""Value without a single type (an ambiguous union), stored whole as JSON text."""


@dataclass(frozen=True)
class Member:
    """Column of a field: the whole field, or one ``branch`` (its index) of a union of several. ``position`` is the
    field's in its record, from 0."""

    name: str
    field: str
    value: Value
    branch: int | None = None
    position: int = 0


@lru_cache(maxsize=256)
def members_of(schema_json: str) -> tuple[Member, ...]:
    """Return the columns of a record schema, in field order, cached in the task's process.

    :param schema_json: text that :func:`~airflow_provider_sfstream.salesforce.schemas.parse` accepts.
    """
    return _Reader().record(json.loads(schema_json), "")


def has_event_time(schema_json: str) -> bool:
    """Return true if every event of a record schema has a time: ``commitTimestamp`` or ``CreatedDate``, never null."""
    members = members_of(schema_json)
    header = next((member.value.members for member in members if member.name == "ChangeEventHeader"), None)
    if header is not None:
        return any(member.name == "commitTimestamp" for member in header)
    required = {field["name"] for field in json.loads(schema_json)["fields"] if not isinstance(field["type"], list)}
    created = next((member for member in members if member.name == "CreatedDate"), None)
    return created is not None and created.value.type == "timestamp" and created.field in required


def needs_fastavro(members: Iterable[Member]) -> bool:
    """Return true if a value is stored as JSON text, which requires fastavro's plain Python values."""

    def is_json(value: Value) -> bool:
        return value.conversion == "json" or needs_fastavro(value.members) or bool(value.item and is_json(value.item))

    return any(is_json(member.value) for member in members)


def _family(branch: Any) -> str:
    kind = str(branch.get("type") if isinstance(branch, dict) else branch)
    same = {"int": "long", "float": "double", "enum": "string", "fixed": "bytes"}
    return same.get(kind, kind if kind in PRIMITIVES or kind in ("array", "map") else "record")


class _Reader:
    """Schema reader that records the named types it has read."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[dict[str, Any], str]] = {}

    def record(self, schema: dict[str, Any], namespace: str) -> tuple[Member, ...]:
        name, namespace = _full_name(schema["name"], schema.get("namespace", namespace))
        self._named[name] = (schema, namespace)
        members: list[Member] = []
        for position, field in enumerate(schema["fields"]):
            members += (replace(member, position=position) for member in self._field(field, namespace))
        return tuple(members)

    def _field(self, field: dict[str, Any], namespace: str) -> list[Member]:
        name, avro, doc = field["name"], field["type"], str(field.get("doc") or "").split(":")
        real_type = doc[1] if len(doc) > 1 else ""
        if not isinstance(avro, list):
            return [] if avro == "null" else [Member(name, name, self._value(avro, real_type, namespace))]
        branches = [(index, branch) for index, branch in enumerate(avro) if branch != "null"]
        families = [_family(branch) for _, branch in branches]
        if len(set(families)) < len(families):  # int and long, or two records: ambiguous in one column
            return [Member(name, name, _JSON)]
        if len(branches) < 2:
            return [Member(name, name, self._value(branch, real_type, namespace)) for _, branch in branches]
        # The plain name goes to the first simple branch, so that the order of the branches does not matter.
        plain = next((family for family in families if family in PRIMITIVES), families[0])
        columns = [name if family == plain else f"{name}_{family}" for family in families]
        return [
            Member(column, name, self._value(branch, real_type, namespace), index)
            for column, (index, branch) in zip(columns, branches, strict=True)
        ]

    def _value(self, avro: Any, real_type: str, namespace: str) -> Value:
        if isinstance(avro, list):  # a union inside an array or a map
            branches = [branch for branch in avro if branch != "null"]
            return self._value(branches[0], real_type, namespace) if len(branches) == 1 else _JSON
        if isinstance(avro, dict) and isinstance(avro["type"], dict | list):
            return self._value(avro["type"], real_type, namespace)
        kind = avro["type"] if isinstance(avro, dict) else avro
        if kind == "long" and real_type in _DOCUMENTED:
            return Value(*_DOCUMENTED[real_type])
        if isinstance(avro, dict) and (kind, avro.get("logicalType")) in _LOGICAL:
            return Value(*_LOGICAL[kind, avro["logicalType"]])
        if kind in ("enum", "fixed"):
            self._named[_full_name(avro["name"], avro.get("namespace", namespace))[0]] = (avro, namespace)
        if kind in PRIMITIVES:
            return Value(PRIMITIVES[kind])
        if kind == "null":  # in a map
            return _JSON
        return self._nested(avro, kind, namespace)

    def _nested(self, avro: Any, kind: str, namespace: str) -> Value:
        if kind == "array":
            item = self._value(avro["items"], "", namespace)
            return Value({"array": item.type}, "array", item=item)
        if kind == "map":
            item = self._value(avro["values"], "", namespace)
            return Value({"map": item.type}, "map", item=item)
        if kind == "record":
            members = self.record(avro, namespace)
            if not members:  # Parquet does not allow empty groups
                return _JSON
            record = _full_name(avro["name"], namespace)[0].rpartition(".")[2]
            return Value({"struct": {m.name: m.value.type for m in members}}, "struct", members, record=record)
        schema, defined_in = self._named[_full_name(kind, namespace)[0]]
        return self._value(schema, "", defined_in)


def _full_name(name: str, namespace: str) -> tuple[str, str]:
    if "." in name:
        return name, name.rpartition(".")[0]
    return (f"{namespace}.{name}" if namespace else name), namespace
