"""What a refresh has to fetch: which tables, which of their records, and which field is which column. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.protocol.identifiers import to_18

if TYPE_CHECKING:
    from airflow_provider_sfstream.spark.avro_columns import ColumnType
    from airflow_provider_sfstream.spark.refresh_document import Mode
    from airflow_provider_sfstream.spark.replica_snapshots import Snapshot, StreamState, TableState

_COLUMN_TYPES: dict[str, tuple[str, ...]] = {
    "boolean": ("boolean",),
    "int": ("int", "long", "double"),
    "long": ("long",),
    "double": ("double", "float"),
    "currency": ("double", "float"),
    "percent": ("double", "float"),
    "date": ("date", "long"),
    "datetime": ("timestamp", "long"),
    "time": ("long",),
}
"""The column types that hold the values of a field, by the type that describe says. Of all others: text."""

_NOT_FETCHED = ("address", "location", "base64", "complexvalue", "anyType", "json")
"""Types of fields that are more than one value, or none that a query job gives."""

_SUFFIX = re.compile(r"__(?:boolean|int|long|float|double|string|date|timestamp)(?:_\d+)?$")
"""What the column of a field has after its name where the field's type was another one before (column registry)."""


@dataclass(frozen=True)
class TablePlan:
    """One table of a refresh: its dirty rows (``"records"``), or all records of the org (``"full"``)."""

    name: str
    mode: Mode
    table: TableState
    stream: StreamState


def plan(snapshot: Snapshot, tables: Collection[str] | None, full: bool | Collection[str]) -> list[TablePlan]:
    """Return what has to be fetched, by name; tables of which nothing has to be are left out.

    :param tables: those to look at, ``None`` for all.
    :param full: tables to fetch in full besides those that are flagged; ``True`` for all of ``tables``.
    :raises ConfigurationError: if the replica does not have a table that is named.
    """
    named = [*(tables or ()), *(() if isinstance(full, bool) else full)]
    unknown = sorted(set(named) - snapshot.tables.keys())
    if unknown:
        raise ConfigurationError(
            f"The replica has no table {', '.join(unknown)}; it has {', '.join(sorted(snapshot.tables)) or 'none'}. A "
            "table is there from the first change event on. Nothing was fetched."
        )
    plans = []
    for name in sorted(snapshot.tables if tables is None else set(named)):
        table = snapshot.tables[name]
        wanted = full if isinstance(full, bool) else name in full
        mode: Mode = "full" if wanted or table.flag is not None else "records"
        if mode == "full" or table.dirty:
            plans.append(TablePlan(name, mode, table, snapshot.streams[table.stream]))
    return plans


def check_org(plans: Collection[TablePlan], org_id: str, connection: str) -> None:
    """Make sure that the replica is of the org that records are to be fetched from.

    :raises ConfigurationError: if it is of another one.
    """
    others = sorted({plan.stream.org_id for plan in plans if to_18(plan.stream.org_id) != to_18(org_id)})
    if others:
        raise ConfigurationError(
            f"Airflow connection {connection!r} leads to the org {org_id}, the replica is of {', '.join(others)}. Give "
            "the connection of the replica's org. Nothing was fetched."
        )


def fields_of_columns(columns: Mapping[str, ColumnType], described: Mapping[str, str]) -> dict[str, str]:
    """Return the field whose values each column has, by column. Columns that no field fits are left out.

    :param columns: the table's columns.
    :param described: the type of each field of the object, as describe says it, by name.
    """
    known = {name.lower(): name for name, kind in described.items() if kind not in _NOT_FETCHED}
    found: dict[str, str] = {}
    for column, type_ in columns.items():
        for name in (column, _SUFFIX.sub("", column)):
            field = known.get(name.lower())
            if field and field not in found.values() and type_ in _COLUMN_TYPES.get(described[field], ("string",)):
                found[column] = field
                break
    return found
