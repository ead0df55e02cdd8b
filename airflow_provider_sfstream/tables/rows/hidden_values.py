"""Field protection in Arrow: exclude, hash or mask values that must not be stored as received.

It runs directly after decoding, before rows are sorted, sent to another task or written.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.privacy.field_rules import MASK, Coverage, FieldRules, Treatment
from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType, members_of
from airflow_provider_sfstream.tables.decode.self_described import Field
from airflow_provider_sfstream.tables.rows.replica_columns import entity_of, replica_columns

log = logging.getLogger(__name__)

Hidden: TypeAlias = "Treatment | dict[str, Hidden] | None"
"""Protection of a value: of the whole value, or of members of a struct; ``None``: stored unchanged."""


def coverage_of(rules: FieldRules, table: str, schemas: Iterable[str] = ()) -> Coverage:
    """Return the field protection that rules define for a table.

    :param table: name of an event or of an sObject; rules for the change events of an sObject apply to its table.
    :param schemas: Avro schemas of its events. Those of change events map columns to the parts of a field.
    """
    aliases: dict[str, set[str]] = {}
    # The change event of Shipment__c is Shipment__ChangeEvent.
    names = {table, *_entity(table), f"{table.removesuffix('c') if table.endswith('__c') else table}ChangeEvent"}
    for text in schemas if rules else ():
        schema = json.loads(text)
        names.update((str(schema["name"]).rpartition(".")[2], *_entity(str(schema["name"]))))
        for dotted, column in _flat_names(text):
            aliases.setdefault(dotted, set()).add(column)
            aliases.setdefault(column, set()).add(dotted)
    return Coverage(rules, names, aliases)


def hidden(type_: ColumnType, path: tuple[str, ...], coverage: Coverage, *, is_opaque: bool = False) -> Hidden:
    """Return the protection of a value by the rules.

    :param path: path of its field.
    :param is_opaque: whether the value is the text of a value with parts.
    """
    members = type_.get("struct") if isinstance(type_, dict) else None
    treatment = coverage.treatment_of(path, is_opaque=is_opaque or (isinstance(type_, dict) and members is None))
    if treatment == "exclude" or members is None:
        return treatment
    member_protection = {
        name: hidden(member, (*path, name), coverage, is_opaque=True) for name, member in members.items()
    }
    if all(protection == "exclude" for protection in member_protection.values()):
        return "exclude"  # Parquet does not allow empty groups
    return member_protection if any(member_protection.values()) else None


def hidden_members(coverage: Coverage, schema_json: str) -> tuple[Hidden, ...]:
    """Return the protection of each member that ``members_of`` returns for a schema."""
    members = members_of(schema_json)
    if not coverage.rules:
        return (None,) * len(members)
    return tuple(
        hidden(member.value.type, (member.field,), coverage, is_opaque=member.value.conversion == "json")
        for member in members
    )


def hidden_columns(coverage: Coverage, schema_json: str) -> tuple[Hidden, ...]:
    """Return the protection of each column that ``replica_columns`` returns for a schema."""
    columns = replica_columns(schema_json)
    if not coverage.rules:
        return (None,) * len(columns)
    members = members_of(schema_json)
    protections: list[Hidden] = []
    for column in columns:
        member = members[column.member]
        part = () if column.inside is None else (member.value.members[column.inside].name,)
        is_opaque = bool(part) or member.value.conversion == "json"
        protections.append(hidden(column.type, (member.field, *part), coverage, is_opaque=is_opaque))
    return tuple(protections)


def hidden_fields(coverage: Coverage, fields: Iterable[Field]) -> tuple[Hidden, ...]:
    """Return the protection of the fields of self-described events. A text may hold an object."""
    return tuple(hidden(field.type, (field.name,), coverage, is_opaque=True) for field in fields)


def stored_type(type_: ColumnType, how: Hidden) -> ColumnType:
    """Return the stored type of a value that is not excluded."""
    if not isinstance(how, dict) or not isinstance(type_, dict):
        return type_
    stored_members = {
        name: stored_type(member, how[name]) for name, member in type_["struct"].items() if how[name] != "exclude"
    }
    return {"struct": stored_members}


def stored(values: pa.Array, how: Hidden, rules: FieldRules) -> pa.Array:
    """Return the stored form of values that are not excluded. Null stays null."""
    if how is None:
        return values
    if isinstance(how, dict):
        stored_members = [(field, how[field.name]) for field in values.type if how[field.name] != "exclude"]
        members = [stored(values.field(field.name), protection, rules) for field, protection in stored_members]
        mask = values.is_null() if values.null_count else None
        return pa.StructArray.from_arrays(members, names=[field.name for field, _ in stored_members], mask=mask)
    if not pa.types.is_string(values.type):
        return pa.nulls(len(values), values.type)
    if how == "mask":
        return pc.if_else(values.is_valid(), MASK, pa.scalar(None, pa.string()))
    encoded = values.dictionary_encode()  # so that each distinct text is hashed once
    hashes = pa.array([rules.text(text, how) for text in encoded.dictionary.to_pylist()], pa.string())
    return hashes.take(encoded.indices)


def shown(
    columns: Mapping[str, ColumnType], now: Coverage, before: Coverage, opaque: Collection[str] = ()
) -> list[str]:
    """Return the dotted fields of a table's columns that rules protect now and did not protect before.

    :param opaque: columns of values that may contain parts of others: JSON text, and fields that Salesforce computes.
    """
    texts = {name.lower() for name in opaque}

    def leaves(type_: ColumnType, path: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], bool]]:
        if isinstance(type_, dict) and "struct" in type_:
            for name, member in type_["struct"].items():
                yield from leaves(member, (*path, name))
        else:
            yield path, len(path) > 1 or isinstance(type_, dict) or path[0].lower() in texts

    def has_rule(coverage: Coverage, path: tuple[str, ...], is_opaque: bool) -> bool:
        names = (path[0], field_of(path[0]))
        return any(coverage.treatment_of((name, *path[1:]), is_opaque=is_opaque) for name in names)

    fields = (leaf for name, type_ in columns.items() for leaf in leaves(type_, (name,)))
    protected = (
        path for path, is_opaque in fields if has_rule(now, path, is_opaque) > has_rule(before, path, is_opaque)
    )
    return sorted({".".join((field_of(name), *parts)) for name, *parts in protected})


def warn_of_numbers(table: str, field: str, type_: ColumnType, how: Hidden) -> None:
    """Log a warning for a field that rules hash and that is not all text: other values have no hash and become null."""
    if isinstance(how, dict) and isinstance(type_, dict):
        for name, member in type_["struct"].items():
            warn_of_numbers(table, f"{field}.{name}", member, how[name])
    elif how == "hash" and type_ != "string":
        log.warning("%s: %s is not a text field. Only text is hashed: its values are stored as null.", table, field)


_SUFFIX = re.compile(
    r"(?:__(?:boolean|int|long|float|double|string|binary|date|timestamp|struct|array|map)(?:_\d+)?"
    r"|_(?:record|array|map))$"
)
"""Suffix of a column whose field had another type before (column registry), or has several types (``members_of``)."""


def field_of(column: str) -> str:
    """Return the field of a column whose name may also contain the type."""
    return _SUFFIX.sub("", column)


def _entity(name: str) -> tuple[str, ...]:
    try:
        return (entity_of({"name": name}),)
    except ValueError:
        return ()


def _flat_names(schema_json: str) -> Iterable[tuple[str, str]]:
    """Yield the dotted parts of compound fields of a change event, each with its column in SOQL."""
    try:
        columns = replica_columns(schema_json)
    except ValueError:
        return
    members = members_of(schema_json)
    for column in columns:
        if column.inside is not None:
            member = members[column.member]
            yield f"{member.field}.{member.value.members[column.inside].name}".lower(), column.name.lower()
