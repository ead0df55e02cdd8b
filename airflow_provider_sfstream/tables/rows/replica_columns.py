"""Columns of a record in a replica table, from the Avro schema of its change events, with the names that SOQL uses.

A change event nests fields that REST and SOQL show flat. A compound field's record becomes one column for each part:

====================================== ==================== ===========================================
record in the schema                   field                columns
====================================== ==================== ===========================================
``Address``                            ``BillingAddress``   ``BillingStreet``, ``BillingCity``...
``Address``, ``Location``, custom      ``Home__c``          ``Home__Street__s``, ``Home__Latitude__s``...
``PersonName``                         ``Name``             ``Salutation``, ``FirstName``, ``LastName``...
``Switchable_PersonName``              ``Name``             the same, and ``Name`` for a text value
any other                              ``Field``            ``Field_Part``...
====================================== ==================== ===========================================

Columns of a compound field are also named ``Field_Part`` if one would take the name of another column. Types are those
of the event log: from each field's ``doc``; a part has none. ``TimeOnly`` stays a long: milliseconds since midnight. A
nested value (an array, a map, a record inside a part) stays one column.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias, get_args

from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType, Member, members_of

HEADER = "ChangeEventHeader"
_TEXTS: ColumnType = {"array": "string"}
_HEADER_TYPES: dict[str, ColumnType] = {
    "recordIds": _TEXTS,
    "changeType": "string",
    "transactionKey": "string",
    "commitTimestamp": "long",
    "nulledFields": _TEXTS,
    "diffFields": _TEXTS,
    "changedFields": _TEXTS,
}
"""Header members that are read from a change event."""
_EVENT_NAME = re.compile(r"(?P<entity>[A-Za-z][A-Za-z0-9_]*)ChangeEvent")
_PERSON_NAMES = ("PersonName", "Switchable_PersonName")


@dataclass(frozen=True)
class ReplicaColumn:
    """Column of a record, and the location of its value.

    :param position: of its field in the event's record, as bitmaps count: the header is 0.
    :param part: for a part of a compound field, its position in the field; ``None`` for a plain field.
    :param member: index of the field in the result of ``members_of`` for the schema.
    :param inside: for a part, its index in that member's struct.
    """

    name: str
    type: ColumnType
    position: int
    part: int | None
    member: int
    inside: int | None = None


@lru_cache(maxsize=256)
def replica_columns(schema_json: str) -> tuple[ReplicaColumn, ...]:
    """Return all columns of the records of a change event schema, in the order of its fields, cached in the task's
    process.

    :raises ValueError: if it is not the schema of a change event, which begins with a ``ChangeEventHeader``.
    """
    members = members_of(schema_json)
    _check_header(json.loads(schema_json), members)
    used_names = {member.name.lower() for member in members if member.value.conversion != "struct"}
    columns: list[ReplicaColumn] = []
    for index, member in enumerate(members[1:], 1):
        member_columns = _columns_of(member, index)
        if member.value.conversion == "struct":
            if not used_names.isdisjoint(column.name.lower() for column in member_columns):
                names = [f"{member.field}_{part.name}" for part in member.value.members]
                member_columns = [
                    replace(column, name=name) for column, name in zip(member_columns, names, strict=True)
                ]
            used_names.update(column.name.lower() for column in member_columns)
        columns += member_columns
    return tuple(columns)


def entity_of(schema: dict[str, Any]) -> str:
    """Return the API name of the sObject of a change event schema: ``Account``, ``Shipment__c``.

    :raises ValueError: if the schema's name is not that of a change event.
    """
    name = str(schema.get("name")).rpartition(".")[2]
    match = _EVENT_NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"{name[:80]!r} is not the name of a change event, such as AccountChangeEvent")
    return f"{match['entity']}c" if match["entity"].endswith("__") else match["entity"]


def _check_header(schema: dict[str, Any], members: tuple[Member, ...]) -> None:
    if not members or members[0].name != HEADER or schema["fields"][0]["name"] != HEADER:
        raise ValueError(f"{schema.get('name')} is not the schema of a change event: its first field is not {HEADER}")
    if members[0].branch is not None or isinstance(schema["fields"][0]["type"], list):
        raise ValueError(f"the type of {HEADER} in {schema.get('name')} is a union, not a record")
    header_types = {member.name: member.value.type for member in members[0].value.members}
    invalid = sorted(name for name, type_ in _HEADER_TYPES.items() if header_types.get(name) != type_)
    if invalid:
        names = ", ".join(invalid)
        raise ValueError(f"the {HEADER} of {schema.get('name')} lacks {names}, or has them with another type")


def _columns_of(member: Member, index: int) -> list[ReplicaColumn]:
    value = member.value
    if value.conversion != "struct":
        return [ReplicaColumn(member.name, value.type, member.position, None, index)]
    parts = enumerate(value.members)
    names = [_part_name(value.record, member.field, part.name) for part in value.members]
    return [
        ReplicaColumn(name, part.value.type, member.position, part.position, index, inside)
        for name, (inside, part) in zip(names, parts, strict=True)
    ]


def _part_name(record: str, field: str, part: str) -> str:
    if record in _PERSON_NAMES:
        return part
    if record in ("Address", "Location") and field.endswith("__c"):
        return f"{field.removesuffix('c')}{part}__s"
    if record == "Address" and field.endswith("Address"):
        return field.removesuffix("Address") + part
    return f"{field}_{part}"


Operation = Literal["full", "patch", "delete", "gap"]
"""Effect of a change on a record: it sets all fields (CREATE, UNDELETE), sets some (UPDATE), deletes the record, or
reports a change without its values (GAP_*, and an UPDATE with a text difference)."""
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
"""All operations. Arrays store their indexes."""

FlagReason: TypeAlias = Literal["new", "overflow", "gap", "undecodable", "all_records", "schema"]
"""Reason to fetch a whole table: missing records from before the stream, GAP_OVERFLOW, a lost span of the stream, an
unreadable event, or a gap event for all records (``001*``). Or to fetch some columns: the object's fields have changed
(``schema``), and no event carries the records' values of them."""

TABLE_ENVELOPE: dict[str, ColumnType] = {
    "Id": "string",
    "_deleted": "boolean",
    "_dirty": "boolean",
    "_dirty_since": "timestamp",
    "_dirty_reason": "string",
    "_replay_id": "binary",
    "_commit_time": "timestamp",
    "_transaction_key": "string",
    "_sequence": "long",
    "_refreshed_at": "timestamp",
}
"""Columns of a table before the record's own. ``_replay_id``, ``_commit_time`` and ``_transaction_key`` are of the last
change applied (of the gap, in a dirty row); ``_sequence`` of the last one seen, also if a dirty row ignored it;
``_refreshed_at`` is the ``SystemModstamp`` of the record when it was last fetched, null if it never was.
``_commit_time`` is the latest of the applied changes: it never decreases, even if the commit times of an org's servers
do."""

CHANGE_ENVELOPE: dict[str, ColumnType] = {
    "Id": "string",
    "_sequence": "long",
    "_operation": "string",
    "_dirty_reason": "string",
    "_set": {"array": "long"},
    "_replay_id": "binary",
    "_commit_time": "timestamp",
    "_transaction_key": "string",
}
"""Columns of a change row before the record's own. ``_set`` has a bit for each column of the table, in its order: if
bit ``n % 64`` of element ``n // 64`` is set, the change sets column ``n``, to null if the value is null.
``_dirty_reason`` is null except for the operation ``gap``."""
