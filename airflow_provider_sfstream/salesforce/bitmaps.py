"""The bitmaps of change events, which name the fields of ``changedFields``, ``nulledFields`` and ``diffFields``.

Each of these header fields is an array of texts. ``0x<HEX>``, at most one and first, names fields of the event
itself; ``<parent>-0x<HEX>`` names fields inside the compound field at position ``parent``. Bit *i*, counted from the
least significant end, stands for position *i* in the Avro record, so ``0x14`` is positions 2 and 4, and the header is
position 0. An array may hold nested entries alone. (Salesforce's own decoders, and values captured from orgs.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_sfstream.exceptions import SchemaError

_ENTRY = re.compile(r"(?:(?P<parent>[0-9]{1,5})-)?0[xX](?P<bits>[0-9A-Fa-f]+)")


@dataclass(frozen=True)
class FieldPositions:
    """Positions of fields in an event's Avro record, and inside the compound fields at some of them."""

    top: frozenset[int] = frozenset()
    nested: Mapping[int, frozenset[int]] = field(default_factory=dict)


def decode_bitmap(entries: Sequence[str]) -> FieldPositions:
    """Return the positions in an array of bitmap texts; hex digits may be in either case.

    :raises SchemaError: if a text is not a bitmap entry.
    """
    top: frozenset[int] = frozenset()
    nested: dict[int, frozenset[int]] = {}
    for entry in entries:
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise SchemaError(
                f"Invalid entry {entry!r} in a change event's field bitmap: expected a form like '0x14' or '4-0x10'. "
                "The event was not applied. Save its payload, and report it."
            )
        positions = _positions(int(match["bits"], 16))
        if match["parent"] is None:
            top |= positions
        else:
            parent = int(match["parent"])
            nested[parent] = nested.get(parent, frozenset()) | positions
    return FieldPositions(top, nested)


def field_names(entries: Sequence[str], schema: Mapping[str, Any]) -> list[str]:
    """Return the names of the fields in an array of bitmap texts, in the order of the schema.

    A field inside a compound field is ``Parent.Child``; each one is listed, even if all are set. Bits beyond the last
    field are ignored, as Salesforce's decoders do: the bitmap may be padded.

    :param schema: the parsed JSON of the Avro schema that the event was written with.
    :raises SchemaError: if a text is not a bitmap entry, or names fields inside a field that is not compound.
    """
    positions = decode_bitmap(entries)
    fields = schema["fields"]
    names: list[str] = []
    for position, entry in enumerate(fields):
        if position in positions.top:
            names.append(entry["name"])
        inside = positions.nested.get(position)
        if inside:
            children = _record_fields(entry["type"], schema)
            if children is None:
                raise SchemaError(
                    f"The bitmap of a {schema.get('name')} names fields inside {entry['name']}, which is not compound "
                    "in the schema used. Decode the event with the schema of its own schema id."
                )
            names += [f"{entry['name']}.{child['name']}" for i, child in enumerate(children) if i in inside]
    return names


def _positions(bits: int) -> frozenset[int]:
    digits = f"{bits:b}"[::-1]
    positions, at = [], digits.find("1")
    while at >= 0:
        positions.append(at)
        at = digits.find("1", at + 1)
    return frozenset(positions)


def _record_fields(avro_type: Any, schema: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
    """Return the fields of the record among the branches of a type; resolve a reference to a named type."""
    for branch in avro_type if isinstance(avro_type, list) else [avro_type]:
        record = _named_record(branch, schema) if isinstance(branch, str) else branch
        if record is not None and record.get("type") == "record":
            fields: Sequence[Mapping[str, Any]] = record["fields"]
            return fields
    return None


def _named_record(name: str, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the definition of a named type, which is at its first use in the schema.

    All records of an event have one namespace, explicit or implied, so names are compared without it.
    """
    for entry in schema["fields"]:
        for branch in entry["type"] if isinstance(entry["type"], list) else [entry["type"]]:
            if isinstance(branch, Mapping) and _local_name(branch.get("name", "")) == _local_name(name):
                return branch
    return None


def _local_name(name: str) -> str:
    return name.rpartition(".")[2]
