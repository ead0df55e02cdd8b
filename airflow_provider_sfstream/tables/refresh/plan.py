"""Plan of a refresh: its tables, the records of each, and the field of each column. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.salesforce import soql
from airflow_provider_sfstream.salesforce.identifiers import to_18
from airflow_provider_sfstream.tables.delta.column_registry import ColumnRegistry
from airflow_provider_sfstream.tables.replica.table_fields import treatment_of
from airflow_provider_sfstream.tables.rows.hidden_values import field_of
from airflow_provider_sfstream.tables.rows.replica_columns import TABLE_ENVELOPE

if TYPE_CHECKING:
    from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType
    from airflow_provider_sfstream.tables.replica.refresh_document import Mode
    from airflow_provider_sfstream.tables.replica.snapshots import Snapshot, StreamState, TableState

ComputedFields = Literal["on_fetch", "on_change", "never"]

_COLUMN_TYPES: dict[str, tuple[ColumnType, ...]] = {
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
"""Column types that can store the values of a field, by the field's type in describe; the first is that of a computed
column. All other types: text."""

_NOT_COMPUTED = ("id", "isdeleted", "systemmodstamp", "lastvieweddate", "lastreferenceddate")
"""Fields that no event carries, and that are not columns: rows have the first three in other columns, and the others
record which records the user of the connection viewed."""

_NOT_FETCHED = ("address", "location", "base64", "complexvalue", "anyType", "json")
"""Field types that have several values, or none that a query job returns."""

_COMPOUND = {"Address", "Location", "PersonName", "Switchable_PersonName"}
"""Words of schema descriptions, such as ``Data:Address``, of fields of several columns. An org may lack some columns,
for example the codes of states."""

_ALL_RECORDS = 2
"""API requests to count all records and to fetch one page. The number of pages is known only after the count."""


@dataclass(frozen=True)
class RefreshPlan:
    """Refresh of one table: its dirty rows and those that an event changed (``"records"``), all records of the org
    (``"full"``), the columns of all records that a flag ``schema`` names (``"columns"``), or the computed columns of
    all records (``"computed"``); or all records, for a comparison (``"compare"``).

    ``computed_fields`` is that of the operator. ``described``, an argument of the methods, has the type of each field
    of the object in describe, by name.
    """

    name: str
    mode: Mode
    table: TableState
    stream: StreamState
    computed_fields: ComputedFields = "on_fetch"

    @property
    def columns(self) -> dict[str, ColumnType]:
        """Columns to fetch that events carry."""
        columns, computed = self.table.columns, self.table.computed.columns
        if self.mode == "computed":
            return {}
        if self.mode != "columns" or self.table.flag is None:
            return {name: type_ for name, type_ in columns.items() if name not in computed}
        return {name: columns[name] for name in self.table.flag.columns}

    def fields(self, described: Mapping[str, str]) -> dict[str, str]:
        """Return the field for each column of :attr:`columns` that can be fetched."""
        return fields_of_columns(self.columns, described, self.table.fields)

    def hidden(self, described: Mapping[str, str]) -> tuple[str, ...]:
        """Return the flagged columns that cannot be fetched: the user does not see their fields, or the fields changed
        and no event has shown that yet. After an unreadable event, this may apply to every column.
        """
        flag, fields = self.table.flag, self.table.fields
        if flag is None or self.mode not in ("full", "columns"):
            return ()
        fetched = self.fields(described)
        no_value = {name.lower() for name, kind in described.items() if kind in _NOT_FETCHED}
        return tuple(
            name
            for name in (fields if flag.reason == "undecodable" else flag.columns)
            if name in fields
            and name not in fetched
            and name.lower() not in no_value
            and not _COMPOUND.intersection(fields[name].split(":"))
        )

    def resolve(self, described: Mapping[str, str]) -> RefreshPlan | None:
        """Return the plan with its final mode, for the fields visible to the user; ``None`` to fetch nothing.

        The columns that a flag names are fetched with all others if rows are dirty too. While all of them are hidden,
        only the listed rows are fetched: this flag may stay for months, and must not cause a full fetch each time.
        """
        mode: Mode | None = self.mode
        if mode == "columns" and self.hidden(described) and not self.fields(described) and not self.may_be_gone:
            mode = _mode_of_rows(self.table, self.computed_fields)
        elif mode == "columns" and self.table.dirty:
            mode = "full"
        return None if mode is None else replace(self, mode=mode)

    def computed_columns(self, described: Mapping[str, str]) -> dict[str, tuple[str, ColumnType]] | None:
        """Return the computed columns to fetch, each with its field and type; ``None`` if they are not requested.

        Their fields are in describe, not in the newest schema of the change events, and not excluded by the rules.
        """
        if self.mode in ("columns", "compare") or self.computed_fields == "never":
            return None
        columns, computed = self.table.columns, self.table.computed.columns
        carried = self.table.fields
        names = {each.lower() for column in carried for each in (column, field_of(column))} | {*_NOT_COMPUTED}
        fields_and_types = [
            (field, _COLUMN_TYPES.get(kind, ("string",))[0])
            for field, kind in described.items()
            if field.lower() not in names
            and kind not in _NOT_FETCHED
            and treatment_of(self.name, self.table, field, is_computed=True) != "exclude"
        ]
        placed = ColumnRegistry(dict(columns)).place(fields_and_types, reserved=(*TABLE_ENVELOPE, *carried))
        found = zip(placed, fields_and_types, strict=True)
        return {column: each for column, each in found if self.mode != "records" or column in computed}

    @property
    def on_change(self) -> bool:
        """True if rows that an event changes are to be listed from now on."""
        if self.mode == "computed" and self.computed_fields == "on_fetch":
            return self.table.computed.on_change
        return self.computed_fields == "on_change"

    @property
    def may_be_gone(self) -> tuple[str, ...]:
        """Columns of fetched records that become null if the org has no field for them: columns that the newest schema
        lacks. A column of the newest schema that the user may not see retains its values from events."""
        if self.mode in ("compare", "computed"):
            return ()
        return tuple(name for name in self.columns if name not in self.table.fields)


def plan_dirty(
    snapshot: Snapshot, tables: Collection[str] | None, computed_fields: ComputedFields = "on_fetch"
) -> list[RefreshPlan]:
    """Return a plan for each table with dirty rows or a flag, by name.

    :param tables: ``None`` for all.
    :param computed_fields: ``"on_change"`` also fetches the computed columns of rows that an event changed. If a table
        does not list these rows yet, their values are fetched for all its rows.
    :raises ConfigurationError: if the replica does not have a named table.
    """
    plans = []
    for name in _selected(snapshot, tables):
        table = snapshot.tables[name]
        mode = _mode_of_rows(table, computed_fields)
        if table.flag is not None:
            mode = "columns" if table.flag.reason == "schema" else "full"
        if mode is not None:
            plans.append(RefreshPlan(name, mode, table, snapshot.streams[table.stream], computed_fields))
    return plans


def _mode_of_rows(table: TableState, computed_fields: ComputedFields) -> Mode | None:
    """Return the mode of a refresh of the listed rows of a table, regardless of its flag; ``None`` to fetch no row."""
    if table.dirty or (computed_fields == "on_change" and table.computed.on_change and table.computed.changed):
        return "records"
    return "computed" if computed_fields == "on_change" and not table.computed.on_change else None


def plan_all(
    snapshot: Snapshot, tables: Collection[str] | None, mode: Mode, computed_fields: ComputedFields = "on_fetch"
) -> list[RefreshPlan]:
    """Return a plan for all records of each table, by name, as :func:`plan_dirty`."""
    states = ((name, snapshot.tables[name]) for name in _selected(snapshot, tables))
    return [RefreshPlan(name, mode, table, snapshot.streams[table.stream], computed_fields) for name, table in states]


def _selected(snapshot: Snapshot, tables: Collection[str] | None) -> list[str]:
    """Return the names of the tables to consider, in order."""
    if tables is None:
        return sorted(snapshot.tables)
    unknown = sorted(set(tables) - snapshot.tables.keys())
    if unknown:
        raise ConfigurationError(
            f"The replica has no table {', '.join(unknown)}. Its tables: "
            f"{', '.join(sorted(snapshot.tables)) or 'none'}. The first change event of an object creates its table. "
            "Nothing was fetched."
        )
    return sorted(set(tables))


def check_org(plans: Collection[RefreshPlan], org_id: str, connection: str) -> None:
    """Check that the replica belongs to the org that records are fetched from.

    :raises ConfigurationError: if it belongs to another org.
    """
    other_orgs = sorted({plan.stream.org_id for plan in plans if to_18(plan.stream.org_id) != to_18(org_id)})
    if other_orgs:
        raise ConfigurationError(
            f"Airflow connection {connection!r} connects to the org {org_id}, but the replica belongs to "
            f"{', '.join(other_orgs)}. Set the connection of the replica's org. Nothing was fetched."
        )


def fields_of_columns(
    columns: Mapping[str, ColumnType], described: Mapping[str, str], newest: Collection[str] = ()
) -> dict[str, str]:
    """Return the field for each column. Columns without a matching field are omitted.

    :param newest: columns that the newest schema of the events uses. They take precedence over the columns that a field
        had before its type changed.
    """
    names_in_org = {name.lower(): name for name, kind in described.items() if kind not in _NOT_FETCHED}
    fields: dict[str, str] = {}
    for column, type_ in sorted(columns.items(), key=lambda item: item[0] not in newest):
        for name in (column, field_of(column)):
            field = names_in_org.get(name.lower())
            if field and field not in fields.values() and type_ in _COLUMN_TYPES.get(described[field], ("string",)):
                fields[column] = field
                break
    return fields


def least_requests(plans: Iterable[RefreshPlan]) -> int:
    """Return the minimum number of API requests for these plans.

    One describe for each table; for listed rows, as many queries as their IDs need; for all records, the smallest
    possible number.
    """
    count = 0
    for plan in plans:
        rows = plan.table.dirty + plan.table.computed.changed
        # Based on the columns known so far; more columns leave less room for IDs.
        ids_at_once = max(1, soql.ids_in_url(plan.name, [*plan.columns]))
        count += 1 + (-(-rows // ids_at_once) if plan.mode == "records" else _ALL_RECORDS)
    return count
