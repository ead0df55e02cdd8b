"""Fields of a table's records, from the schemas of its events and from refreshes. Pure."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.delta.column_registry import ColumnRegistry
from airflow_provider_sfstream.tables.replica.refresh_document import TableRefresh
from airflow_provider_sfstream.tables.replica.snapshots import ComputedColumns, Flag, TableState
from airflow_provider_sfstream.tables.rows.change_decoding import ChangeSchema
from airflow_provider_sfstream.tables.rows.replica_columns import replica_columns

log = logging.getLogger(__name__)


def documented_fields(schema: ChangeSchema) -> dict[str, str]:
    """Return the columns of a schema, each with the schema's description of its field."""
    parsed = json.loads(schema.schema_json)
    documented = [str(parsed["fields"][column.position].get("doc", "")) for column in replica_columns(parsed)]
    return {name: text for name, text in zip(schema.columns, documented, strict=True) if name is not None}


def with_fields(
    after: TableState, before: TableState, schemas: Sequence[dict[str, str]], since: str, sequence: int
) -> TableState:
    """Return the table with the fields of the last schema, flagged for added, changed and removed columns. Events do
    not carry their values for records that have not changed since.

    :param after: the table after the changes of some events, and ``before`` them.
    :param schemas: fields of each schema of its events, as returned by :func:`fields_of`, the last schema at the end.
    :param since: time of the first event (ISO 8601, UTC).
    :param sequence: sequence number, not before that of the first event.
    """
    if not schemas:
        return after
    former = before.fields
    if former is None:  # only the names are known
        former = {name: schemas[-1].get(name, "") for name in before.columns.columns}
    changed_columns = {name for fields in schemas for name, text in fields.items() if former.get(name) != text}
    new_columns = changed_columns if before.columns.columns else set()  # a new table has no rows older than its fields
    removed = {*former, *(name for fields in schemas for name in fields)} - schemas[-1].keys()
    columns = tuple(sorted(new_columns | removed))
    computed = tuple(name for name in after.computed.columns if name not in schemas[-1])
    after = replace(after, fields=schemas[-1], computed=replace(after.computed, columns=computed))
    if not columns:
        return after
    log.warning("The fields of the object have changed; columns to fetch: %s.", ", ".join(columns))
    return after.flagged(Flag("schema", since, sequence, columns))


def with_computed(name: str, table: TableState, refresh: TableRefresh) -> TableState:
    """Return a table with the computed columns that a refresh found.

    :raises ConfigurationError: if the table has got one of them meanwhile, with another type.
    """
    if refresh.computed is None:
        return table
    columns = {**table.columns.columns}
    for column, type_ in refresh.computed.items():
        if columns.setdefault(column, type_) != type_:
            raise ConfigurationError(
                f"{name}: the type of the column {column} has changed since the refresh began. Nothing was published. "
                "Run the refresh again."
            )
    computed = table.computed
    if refresh.mode in ("full", "computed"):
        computed = ComputedColumns(tuple(refresh.computed), refresh.began_at, refresh.on_change)
    elif refresh.mode == "records":
        computed = replace(computed, on_change=computed.on_change and refresh.on_change)
    return replace(table, columns=ColumnRegistry(columns), computed=computed)
