"""Avro schemas of events: validation, and Salesforce's annotations.

Payloads are schemaless Avro: each must be read with the schema that its event names (``ProducerEvent.schema_id``). One
stream can mix schema ids, so clients cache schemas by id, not by topic. A schema id always names the same schema.

Schemas are external input, but libraries trust them. A record that contains itself crashes the process that decodes it
(fastavro has no limit of depth: 1 MB of payload is deep enough), an array of zero-byte items may be as long as 64 bits
can count, a fixed of 2^40 bytes is allocated before it is read, and names that refer to one another expand to 2^n
members. Salesforce's schemas have none of these. So all readers accept only schemas that pass :func:`check`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import fastavro

from airflow_provider_sfstream.exceptions import SchemaError

LARGEST_SCHEMA = 4 * 1024 * 1024
"""Characters of a schema's text. The schema of an object with 800 fields has about 100,000."""
MOST_MEMBERS = 20_000
"""Members of a record, including those of all nested records."""
DEEPEST = 32
"""Levels of types within types."""
LARGEST_FIXED = 1024 * 1024
"""Bytes: the maximum of an event."""

_PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "string", "bytes"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_FULL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}(?:\.[A-Za-z_][A-Za-z0-9_]{0,254}){0,16}")


def check(schema: dict[str, Any]) -> None:
    """Check that a schema can safely decode any payload."""
    try:
        _Walk().type(schema, "", 0)
    except _UnusableError as reason:
        raise SchemaError(f"An Avro schema cannot be used: {reason}.") from None
    try:
        fastavro.parse_schema(schema)
    except Exception as error:  # any error of fastavro
        raise SchemaError(f"A schema is not valid Avro ({type(error).__name__}: {str(error)[:200]}).") from None


class _UnusableError(Exception):
    """Reason for which a schema is invalid."""


class _Type(NamedTuple):
    """Number of members that a type expands to, and whether each of its values has at least one byte."""

    members: int
    takes_bytes: bool


class _Walk:
    """Single pass over a schema, which visits each named type once."""

    def __init__(self) -> None:
        self._named: dict[str, _Type] = {}
        self._open: set[str] = set()
        self._definitions: dict[str, Callable[[dict[str, Any], str, int], _Type]] = {
            "array": self._array,
            "map": self._map,
            "record": self._record,
            "enum": self._enum,
            "fixed": self._fixed,
        }

    def type(self, avro: Any, namespace: str, depth: int) -> _Type:
        if depth > DEEPEST:
            raise _UnusableError(f"it has more than {DEEPEST} levels")
        if isinstance(avro, str):
            return _Type(1, avro != "null") if avro in _PRIMITIVES else self._reference(avro, namespace)
        if isinstance(avro, list):
            return self._union(avro, namespace, depth)
        if not isinstance(avro, dict) or not isinstance(avro.get("logicalType", ""), str):
            raise _UnusableError(f"{_excerpt(avro)} is not a type")
        kind = avro.get("type")
        define = self._definitions.get(kind) if isinstance(kind, str) else None
        return self.type(kind, namespace, depth + 1) if define is None else define(avro, namespace, depth)

    def _array(self, avro: dict[str, Any], namespace: str, depth: int) -> _Type:
        items = self.type(avro.get("items"), namespace, depth + 1)
        if not items.takes_bytes:
            raise _UnusableError("the items of an array have no bytes, so a payload could contain any number of them")
        return self._sum((items,), takes_bytes=True)

    def _map(self, avro: dict[str, Any], namespace: str, depth: int) -> _Type:
        return self._sum((self.type(avro.get("values"), namespace, depth + 1),), takes_bytes=True)

    def _enum(self, avro: dict[str, Any], namespace: str, _: int) -> _Type:
        if not _names(avro.get("symbols"), "the symbols of an enum"):
            raise _UnusableError("an enum has no symbols")
        return self._define(avro, namespace, _Type(1, takes_bytes=True))

    def _fixed(self, avro: dict[str, Any], namespace: str, _: int) -> _Type:
        size = avro.get("size")
        # Not isinstance: JSON's true is an instance of int.
        if type(size) is not int or not 0 < size <= LARGEST_FIXED:
            raise _UnusableError(f"the size of a fixed must be 1 to {LARGEST_FIXED} bytes, not {_excerpt(size)}")
        return self._define(avro, namespace, _Type(1, takes_bytes=True))

    def _record(self, avro: dict[str, Any], namespace: str, depth: int) -> _Type:
        name, namespace = _full_name(avro, namespace)
        fields = avro.get("fields")
        if not isinstance(fields, list) or not all(isinstance(field, dict) for field in fields):
            raise _UnusableError(f"the record {name} has no list of fields")
        _names([field.get("name") for field in fields], f"the fields of {name}")
        self._check_new(name)
        self._open.add(name)
        types = [self.type(field.get("type"), namespace, depth + 1) for field in fields]
        self._open.discard(name)
        self._named[name] = self._sum(types, takes_bytes=any(type_.takes_bytes for type_ in types))
        return self._named[name]

    def _union(self, branches: list[Any], namespace: str, depth: int) -> _Type:
        if not branches or any(isinstance(branch, list) for branch in branches):
            raise _UnusableError("a union is empty, or contains a union")
        return self._sum([self.type(branch, namespace, depth + 1) for branch in branches], takes_bytes=True)

    def _reference(self, name: str, namespace: str) -> _Type:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full in self._open:
            raise _UnusableError(f"the record {_excerpt(full)} contains itself, so a payload could have any depth")
        if full not in self._named:
            raise _UnusableError(f"{_excerpt(full)} is not a type, or is defined later")
        return self._named[full]

    def _define(self, avro: dict[str, Any], namespace: str, type_: _Type) -> _Type:
        name, _ = _full_name(avro, namespace)
        self._check_new(name)
        self._named[name] = type_
        return type_

    def _check_new(self, name: str) -> None:
        if name in self._named or name in self._open or name in _PRIMITIVES:
            raise _UnusableError(f"{_excerpt(name)} is defined twice")

    @staticmethod
    def _sum(types: Iterable[_Type], *, takes_bytes: bool) -> _Type:
        members = 1 + sum(type_.members for type_ in types)
        if members > MOST_MEMBERS:
            raise _UnusableError(f"it expands to more than {MOST_MEMBERS} members")
        return _Type(members, takes_bytes)


def _full_name(avro: dict[str, Any], namespace: str) -> tuple[str, str]:
    """Return the full name of a named type, and the namespace of the names in it."""
    name, own = avro.get("name"), avro.get("namespace", namespace)
    if not isinstance(name, str) or not isinstance(own, str | None) or not _FULL_NAME.fullmatch(name):
        raise _UnusableError(f"{_excerpt(name)} is not a valid name")
    if own and not _FULL_NAME.fullmatch(own):
        raise _UnusableError(f"{_excerpt(own)} is not a valid namespace")
    if "." in name:
        return name, name.rpartition(".")[0]
    return (f"{own}.{name}" if own else name), own or ""


def _names(names: Any, owners: str) -> list[str]:
    if not isinstance(names, list) or not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
        raise _UnusableError(f"{owners} have an invalid name")
    if len(set(names)) < len(names):
        raise _UnusableError(f"{owners} have a duplicate name")
    return names


def _excerpt(value: Any) -> str:
    return repr(value)[:80]


def parse(schema_json: str) -> dict[str, Any]:
    """Return the record schema in ``schema_json``. It can safely decode payloads; see :func:`check`."""
    _check_text(schema_json)
    schema: dict[str, Any] = json.loads(schema_json)
    return schema


@lru_cache(maxsize=256)
def _check_text(schema_json: str) -> None:
    """Check the text of a schema, once in the process: each reader of the same events parses it."""
    if len(schema_json) > LARGEST_SCHEMA:
        raise SchemaError(f"An Avro schema is too large: {len(schema_json)} characters, at most {LARGEST_SCHEMA}.")
    try:
        schema = json.loads(schema_json)
        json.dumps(schema, ensure_ascii=False).encode()  # an unpaired surrogate is not a character
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"An Avro schema is not valid JSON: {error}.") from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise SchemaError(f"An event's Avro schema must be a record, not {str(schema)[:80]!r}.")
    check(schema)


def record_name(schema_json: str) -> str:
    """Return the event's API name (``Order__e``, ``AccountChangeEvent``), which on a channel of several entities only
    the schema contains."""
    return str(parse(schema_json).get("name", "")).rpartition(".")[2]


def salesforce_type(field: dict[str, Any]) -> str | None:
    """Return the Salesforce type that a field's ``doc`` names (``DateTime``, ``DateOnly``, ``EntityId``), if any.

    ``doc`` reads ``<what>:<type>``, for example ``CreatedDate:DateTime`` or ``Data:Text:00N0…``.
    """
    parts = str(field.get("doc") or "").split(":")
    return parts[1] if len(parts) > 1 and parts[1] else None
