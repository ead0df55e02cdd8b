"""Comparison of a replica with its org: all records, including deleted ones, field by field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from tests.support.computed_fields import COMPUTED
from tests.support.org_workload import ENTITIES, OrgWorkload

Rows = dict[str, dict[str, Any]]
"""Rows of one table by record ID, with ``_deleted`` and ``_dirty``; date-times have a time zone."""


@dataclass(frozen=True)
class Difference:
    """A value that differs. A record that exists on one side only is a difference in the column ``Id``."""

    table: str
    record_id: str
    column: str
    org: Any
    replica: Any


def org_tables(workload: OrgWorkload) -> dict[str, Rows]:
    """Return all records of the org in the form that the replica must have."""
    return {entity: _org_rows(workload, entity) for entity in ENTITIES}


def replica_tables(read: Any) -> dict[str, Rows]:
    """Return all rows of a replica.

    :param read: function that returns the Spark DataFrame of a table name.
    """
    return {entity: {row["Id"]: row for row in _collected(read(entity))} for entity in ENTITIES}


def without_computed_columns(tables: Mapping[str, Rows]) -> dict[str, Rows]:
    """Return tables without the columns that change events never contain."""
    left_out = {entity: {field["name"] for field in fields} for entity, fields in COMPUTED.items()}
    left_out["Contact"] = left_out["Contact"] | {"Name"}  # computed from its parts
    return {
        table: {
            record_id: {name: value for name, value in row.items() if name not in left_out.get(table, ())}
            for record_id, row in rows.items()
        }
        for table, rows in tables.items()
    }


def differences(org: Mapping[str, Rows], replica: Mapping[str, Rows]) -> list[Difference]:
    """Return all differences. A column missing in the replica equals null; an extra column is a difference."""
    return [one for table in org for one in _in_table(table, org[table], replica.get(table, {}))]


def dirty_rows(replica: Mapping[str, Rows]) -> int:
    """Return the number of rows that the replica marks as dirty."""
    return sum(bool(row["_dirty"]) for rows in replica.values() for row in rows.values())


def summary(found: Iterable[Difference], most: int = 20) -> str:
    """Return the first differences, one per line, for the message of a failed test."""
    listed = list(found)
    lines = [f"{one.table} {one.record_id} {one.column}: {one.org!r} != {one.replica!r}" for one in listed[:most]]
    return "\n".join([f"{len(listed)} differences (org != replica)", *lines])


def _in_table(table: str, org: Rows, replica: Rows) -> Iterable[Difference]:
    for record_id in sorted(org.keys() | replica.keys()):
        record, row = org.get(record_id), replica.get(record_id)
        if record is None or row is None:
            yield Difference(table, record_id, "Id", record and record_id, row and record_id)
            continue
        columns = record.keys() | {name for name in row if not name.startswith("_")}
        for column in sorted(columns):
            ours, theirs = row.get(column), record.get(column)
            if ours != theirs or type(ours) is not type(theirs):
                yield Difference(table, record_id, column, theirs, ours)


def _org_rows(workload: OrgWorkload, entity: str) -> Rows:
    types = workload.field_types(entity)
    rows = {}
    for record in workload.all_records(entity):
        row = {name: _value(types[name], value) for name, value in record.items() if name in types}
        row["_deleted"] = row.pop("IsDeleted")
        row.pop("SystemModstamp")
        if entity == "Account" and row.get("LastName") is not None:
            row["Name"] = None  # Salesforce computes the name of a person account; change events do not contain it
        rows[str(row["Id"])] = row
    return rows


def _value(kind: str, value: Any) -> Any:
    if value is None:
        return None
    if kind == "datetime":
        return datetime.fromisoformat(value)
    if kind == "date":
        return date.fromisoformat(value)
    if kind == "time":
        hour, minute, second = value.removesuffix("Z").split(":")
        return (int(hour) * 60 + int(minute)) * 60_000 + round(float(second) * 1000)
    return float(value) if kind in ("currency", "double", "percent") else value


def _collected(frame: Any) -> list[dict[str, Any]]:
    """Return a frame's rows with timestamps in UTC: Spark returns them in local time, without a time zone."""
    return [
        {name: value.astimezone(UTC) if isinstance(value, datetime) else value for name, value in row.asDict().items()}
        for row in frame.collect()
    ]
