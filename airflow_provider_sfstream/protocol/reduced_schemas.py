"""Payloads without some of their fields, and the schema that reads what is left.

A field that is left out stays in the schema under its name and in its place, with the type ``null``, which takes no
bytes: so the bitmaps of change events, which count places, mean what they meant. ``left_out`` beside it has its names.
What is left of a payload are its own bytes, copied; nothing is decoded and encoded again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any

from airflow_provider_sfstream.exceptions import SchemaError
from airflow_provider_sfstream.protocol.compound_fields import part_name
from airflow_provider_sfstream.protocol.field_rules import Coverage, FieldRules
from airflow_provider_sfstream.protocol.schemas import parse

Walk = Callable[[bytes, int, list[tuple[int, int]]], int]
"""Goes over one value of a payload, from a place to the place behind it, and notes the stretches to leave out."""

_NAMED = ("record", "enum", "fixed")


class ReducedSchema:
    """One schema without the fields that rules exclude.

    :param schema_id: of the schema that events have.
    :raises SchemaError: if that is none to read payloads by, or cannot be reduced.
    """

    def __init__(self, schema_id: str, schema_json: str, rules: FieldRules) -> None:
        schema = parse(schema_json)
        self._types = _Types(schema)
        self.coverage = self._types.coverage(rules)
        self.is_same = not self._types.touches((), self.coverage)
        """Whether nothing is left out."""
        self.schema_json, self.schema_id = schema_json, schema_id
        if not self.is_same:
            self.schema_json = json.dumps(_Emitter(self._types, self.coverage).root())
            parse(self.schema_json)
            digest = hashlib.sha256(self.schema_json.encode()).hexdigest()
            self.schema_id = f"{schema_id}-{digest[:12]}"
            self._walk = _Walks(self._types, self.coverage).of(self._types.root, (), "")

    def reduced(self, payload: bytes) -> bytes:
        """Return what is left of a payload.

        :raises ValueError: if it is no event of the schema. The error quotes nothing of it.
        """
        if self.is_same:
            return payload
        left_out: list[tuple[int, int]] = []
        try:
            end = self._walk(payload, 0, left_out)
        except (IndexError, UnicodeDecodeError):
            end = -1
        if end != len(payload):
            raise ValueError("the payload is no event of its schema")
        kept, at = [], 0
        for first, behind in left_out:
            kept.append(payload[at:first])
            at = behind
        return b"".join((*kept, payload[at:]))


def left_out_names(schema: Any) -> set[str]:
    """Return the names, in lower case, of the fields that a schema is without: dotted, and as SOQL has them."""
    if isinstance(schema, list):
        return set().union(*map(left_out_names, schema))
    if not isinstance(schema, dict):
        return set()
    own = {name for name in schema.get("left_out", ()) if isinstance(name, str)}
    return own.union(*(left_out_names(schema[key]) for key in ("fields", "type", "items") if key in schema))


class _Types:
    """The named types of a schema, and its fields by their paths."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.root = schema
        self._named: dict[str, tuple[dict[str, Any], str]] = {}
        self._register(schema, "")

    def named(self, avro: Any, namespace: str) -> tuple[str, dict[str, Any], str] | None:
        """Return the full name, the definition and the inner namespace of a named type; ``None`` of another one."""
        if isinstance(avro, dict) and avro.get("type") in _NAMED:
            full = _full(avro["name"], avro.get("namespace", namespace) or "")
        elif isinstance(avro, str):
            full = _full(avro, namespace)
        else:
            return None
        return (full, *self._named[full]) if full in self._named else None

    def coverage(self, rules: FieldRules) -> Coverage:
        """Return what the rules say, for fields by their own names and by those that SOQL has for their parts."""
        name = _bare(self.root["name"])
        entity = name.removesuffix("ChangeEvent")
        names = {name, *((entity, f"{entity}c" if entity.endswith("__") else entity) if entity != name else ())}
        aliases: dict[str, set[str]] = {}
        for field in self.root["fields"] if entity != name else ():
            for full, definition, _ in self.records(field["type"], self._named[self._root_name][1]):
                for part in definition["fields"]:
                    dotted = f"{field['name']}.{part['name']}".lower()
                    aliases.setdefault(dotted, set()).add(part_name(_bare(full), field["name"], part["name"]).lower())
        return Coverage(rules, names, aliases)

    def records(self, avro: Any, namespace: str) -> Iterable[tuple[str, dict[str, Any], str]]:
        """Yield the records that a value of a type may be."""
        if isinstance(avro, list):
            for branch in avro:
                yield from self.records(branch, namespace)
        elif isinstance(avro, dict) and isinstance(avro.get("type"), list | dict):
            yield from self.records(avro["type"], namespace)
        elif (named := self.named(avro, namespace)) is not None and named[1]["type"] == "record":
            yield named

    def names_of(self, path: tuple[str, ...], field: dict[str, Any], namespace: str) -> list[str]:
        """Return the names that a field has, and its parts, dotted and as SOQL has them."""
        found = {".".join(path)}
        for full, definition, _ in self.records(field["type"], namespace):
            found |= {part_name(_bare(full), field["name"], part["name"]) for part in definition["fields"]}
        if len(path) == 2:
            parent = next(each for each in self.root["fields"] if each["name"] == path[0])
            inner = self._named[self._root_name][1]
            found |= {part_name(_bare(full), path[0], path[1]) for full, _, _ in self.records(parent["type"], inner)}
        return sorted(name.lower() for name in found)

    def touches(self, path: tuple[str, ...], coverage: Coverage, avro: Any = None, namespace: str = "") -> bool:
        """Tell whether something inside of a type, the root by default, is left out."""
        return any(
            self.is_out((*path, field["name"]), field["type"], inner, coverage)
            or self.touches((*path, field["name"]), coverage, field["type"], inner)
            for _, definition, inner in self.records(self.root if avro is None else avro, namespace)
            for field in definition["fields"]
        )

    def is_out(self, path: tuple[str, ...], avro: Any, namespace: str, coverage: Coverage) -> bool:
        """Tell whether a field is left out as a whole. So is one of which no part would stay, and a list of values with
        parts, which are not told apart."""
        if coverage.of(path, is_opaque=_has_items(avro)) is not None:
            return True
        fields = [(field, inner) for _, one, inner in self.records(avro, namespace) for field in one["fields"]]
        others = [branch for branch in (avro if isinstance(avro, list) else [avro]) if branch != "null"]
        are_records = len(others) == len(list(self.records(avro, namespace)))
        return (
            bool(fields)
            and are_records
            and all(self.is_out((*path, field["name"]), field["type"], inner, coverage) for field, inner in fields)
        )

    @property
    def _root_name(self) -> str:
        return _full(self.root["name"], self.root.get("namespace") or "")

    def _register(self, avro: Any, namespace: str) -> None:
        if isinstance(avro, list):
            for branch in avro:
                self._register(branch, namespace)
        elif isinstance(avro, dict):
            if avro["type"] in _NAMED:
                full = _full(avro["name"], avro.get("namespace", namespace) or "")
                namespace = full.rpartition(".")[0]
                self._named[full] = avro, namespace
                for field in avro.get("fields", ()):
                    self._register(field["type"], namespace)
            else:
                for part in ("type", "items", "values"):
                    self._register(avro.get(part), namespace)


class _Emitter:
    """Writes the reduced schema. Each type is defined where it is used first; one of which parts are left out is so in
    one field only, and has a namespace of its own."""

    def __init__(self, types: _Types, coverage: Coverage) -> None:
        self._types, self._coverage = types, coverage
        self._defined: set[str] = set()

    def root(self) -> Any:
        return self._emit(self._types.root, (), "")

    def _emit(self, avro: Any, path: tuple[str, ...] | None, namespace: str) -> Any:
        if isinstance(avro, list):
            return [self._emit(branch, path, namespace) for branch in avro]
        if (named := self._types.named(avro, namespace)) is not None:
            return self._named(*named, path)
        if not isinstance(avro, dict):
            return avro
        if isinstance(avro["type"], list | dict):
            return {**avro, "type": self._emit(avro["type"], path, namespace)}
        inside = {part: self._emit(avro[part], None, namespace) for part in ("items", "values") if part in avro}
        return {**avro, **inside}

    def _named(self, full: str, definition: dict[str, Any], inner: str, path: tuple[str, ...] | None) -> Any:
        touched = path is not None and self._types.touches(path, self._coverage, definition, inner)
        if not touched:
            if full in self._defined:
                if "." not in full and inner != self._types.root.get("namespace", ""):
                    raise SchemaError(f"The schema has a type {full} without a namespace, so it cannot be reduced.")
                return full
            self._defined.add(full)
        own = inner if not (touched and path) else ".".join(filter(None, (inner, "reduced", "_".join(path))))
        made = {**definition, "name": _bare(full), "namespace": own}
        if "fields" in definition:
            made["fields"] = [self._field(field, path if touched else None, inner) for field in definition["fields"]]
        return made

    def _field(self, field: dict[str, Any], path: tuple[str, ...] | None, namespace: str) -> dict[str, Any]:
        if path is None:
            return {**field, "type": self._emit(field["type"], None, namespace)}
        path = (*path, field["name"])
        if self._types.is_out(path, field["type"], namespace, self._coverage):
            return {"name": field["name"], "type": "null", "left_out": self._types.names_of(path, field, namespace)}
        return {**field, "type": self._emit(field["type"], path, namespace)}


class _Walks:
    """Makes what goes over values, type by type."""

    def __init__(self, types: _Types, coverage: Coverage) -> None:
        self._types, self._coverage = types, coverage

    def of(self, avro: Any, path: tuple[str, ...] | None, namespace: str) -> Walk:
        """Return what goes over values of a type; with no ``path``, nothing in them is left out."""
        if isinstance(avro, list):
            return _union([self.of(branch, path, namespace) for branch in avro])
        if (named := self._types.named(avro, namespace)) is not None:
            _, definition, inner = named
            return self._named(definition, inner, path)
        kind = avro["type"] if isinstance(avro, dict) else avro
        if isinstance(kind, list | dict):
            return self.of(kind, path, namespace)
        if kind == "array":
            return _blocks(self.of(avro["items"], None, namespace))
        if kind == "map":
            value = self.of(avro["values"], None, namespace)
            return _blocks(lambda data, at, out: value(data, _text(data, at, out), out))
        return _PRIMITIVES[kind]

    def _named(self, definition: dict[str, Any], inner: str, path: tuple[str, ...] | None) -> Walk:
        if definition["type"] == "enum":
            return _choice(len(definition["symbols"]))
        if definition["type"] == "fixed":
            return _bytes_of(definition["size"])
        return _fields([self._field(field, inner, path) for field in definition["fields"]])

    def _field(self, field: dict[str, Any], namespace: str, path: tuple[str, ...] | None) -> Walk:
        if path is None:
            return self.of(field["type"], None, namespace)
        path = (*path, field["name"])
        if self._types.is_out(path, field["type"], namespace, self._coverage):
            return _out(self.of(field["type"], None, namespace))
        return self.of(field["type"], path, namespace)


def _long(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise ValueError("the payload is no event of its schema")


def _number(data: bytes, at: int, _: Any) -> int:
    while data[at] >= 0x80:
        at += 1
    return at + 1


def _binary(data: bytes, at: int, _: Any) -> int:
    length, at = _long(data, at)
    if not 0 <= length <= len(data) - at:
        raise IndexError
    return at + length


def _text(data: bytes, at: int, _: Any) -> int:
    length, at = _long(data, at)
    if not 0 <= length <= len(data) - at:
        raise IndexError
    data[at : at + length].decode()
    return at + length


def _boolean(data: bytes, at: int, _: Any) -> int:
    if data[at] > 1:
        raise IndexError
    return at + 1


def _bytes_of(size: int) -> Walk:
    return lambda _, at, __: at + size


def _choice(count: int) -> Walk:
    def walk(data: bytes, at: int, _: Any) -> int:
        chosen, at = _long(data, at)
        if not 0 <= chosen < count:
            raise IndexError
        return at

    return walk


def _union(branches: list[Walk]) -> Walk:
    def walk(data: bytes, at: int, out: list[tuple[int, int]]) -> int:
        chosen, at = _long(data, at)
        if chosen < 0:
            raise IndexError
        return branches[chosen](data, at, out)

    return walk


def _blocks(item: Walk) -> Walk:
    def walk(data: bytes, at: int, out: list[tuple[int, int]]) -> int:
        while True:
            count, at = _long(data, at)
            if count == 0:
                return at
            if count < 0:
                count = -count
                _, at = _long(data, at)
            if count > len(data):  # an item takes at least a byte
                raise IndexError
            for _ in range(count):
                at = item(data, at, out)

    return walk


def _fields(walks: list[Walk]) -> Walk:
    def walk(data: bytes, at: int, out: list[tuple[int, int]]) -> int:
        for each in walks:
            at = each(data, at, out)
        return at

    return walk


def _out(inside: Walk) -> Walk:
    def walk(data: bytes, at: int, out: list[tuple[int, int]]) -> int:
        behind = inside(data, at, [])
        out.append((at, behind))
        return behind

    return walk


_PRIMITIVES: dict[str, Walk] = {
    "null": _bytes_of(0),
    "boolean": _boolean,
    "int": _number,
    "long": _number,
    "float": _bytes_of(4),
    "double": _bytes_of(8),
    "string": _text,
    "bytes": _binary,
}


def _has_items(avro: Any) -> bool:
    branches = avro if isinstance(avro, list) else [avro]
    return any(isinstance(branch, dict) and branch["type"] in ("array", "map") for branch in branches)


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _bare(name: str) -> str:
    return name.rpartition(".")[2]
