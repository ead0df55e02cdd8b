"""Column metadata of a query, which ``query?columns=true`` returns in place of records."""

from __future__ import annotations

from typing import Any

from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.fields import COMPOUND_TYPES, FIELD_TYPES
from sfstream_localorg.records.record_values import READ_ONLY
from sfstream_localorg.records.soql import Query
from sfstream_localorg.records.soql.fields import QueryField

_APEX_TYPES = {"double": "Double", "int": "Integer", "boolean": "Boolean"}
_APEX_TIMES = {"DateOnly": "Date", "TimeOnly": "Time"}
_NUMBERS = ("Double", "Integer")


def query_columns(query: Query, *, own: bool) -> dict[str, Any]:
    """Return the column metadata of a query.

    :param own: whether the queried object is read-only, like User.
    """
    columns: list[dict[str, Any]] = []
    parents: dict[str, dict[str, Any]] = {}
    for field in query.fields:
        column = _column(field, own=own)
        if field.relationship is None:
            columns.append(column)
            continue
        if field.relationship not in parents:
            parents[field.relationship] = _parent(field)
            columns.append(parents[field.relationship])
        parents[field.relationship]["joinColumns"].append(column)
    columns += [_count(count.alias) for count in query.counts]
    return {
        "columnMetadata": columns,
        "entityName": query.entity.name,
        "groupBy": False,
        "idSelected": any(field.relationship is None and field.column == "Id" for field in query.fields),
        "keyPrefix": query.entity.key_prefix,
    }


def _column(field: QueryField, *, own: bool) -> dict[str, Any]:
    writable = _is_writable(field.entity, field.column) and not own
    return _metadata(field.column, _apex_type(field), writable=writable)


def _parent(field: QueryField) -> dict[str, Any]:
    name = field.relationship or ""
    return _metadata(name, field.entity.name) | {"foreignKeyName": field.reference, "textType": False}


def _count(alias: str) -> dict[str, Any]:
    return _metadata(alias, "Integer") | {"aggregate": True}


def _metadata(name: str, apex_type: str, *, writable: bool = False) -> dict[str, Any]:
    return {
        "aggregate": False,
        "apexType": apex_type,
        "booleanType": apex_type == "Boolean",
        "columnName": name,
        "custom": name.endswith(("__c", "__pc", "__s", "__r")),
        "displayName": name,
        "foreignKeyName": None,
        "insertable": writable,
        "joinColumns": [],
        "numberType": apex_type in _NUMBERS,
        "textType": apex_type == "String",
        "updatable": writable,
    }


def _is_writable(entity: Entity, column: str) -> bool:
    return column in entity.columns and column not in READ_ONLY


def _apex_type(field: QueryField) -> str:
    kind = field.kind
    if kind in COMPOUND_TYPES:
        return COMPOUND_TYPES[kind].record_name
    if kind == "EntityId":
        return "Id"
    avro = FIELD_TYPES[kind].avro
    return _APEX_TIMES.get(kind, "Datetime") if avro == "long" else _APEX_TYPES.get(avro, "String")
