"""Names of the fields in the bitmaps of a change event, for the live check and for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_sfstream.exceptions import SchemaError
from airflow_provider_sfstream.salesforce.bitmaps import decode_bitmap


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
