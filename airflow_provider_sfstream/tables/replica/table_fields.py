"""Fields of a table's records, from the schemas of its events and from refreshes, and their field protection. Pure."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.privacy.field_rules import FieldRules, Treatment, strictest
from airflow_provider_sfstream.tables.replica.refresh_document import TableRefresh
from airflow_provider_sfstream.tables.replica.snapshots import ComputedColumns, Flag, Snapshot, TableState
from airflow_provider_sfstream.tables.rows.hidden_values import (
    coverage_of,
    field_of,
    hidden_columns,
    shown,
    warn_of_numbers,
)
from airflow_provider_sfstream.tables.rows.replica_columns import replica_columns

if TYPE_CHECKING:
    from airflow_provider_sfstream.tables.rows.event_batches import SchemaPlan

log = logging.getLogger(__name__)


def documented_fields(schema: SchemaPlan) -> dict[str, str]:
    """Return the columns of a schema, each with the schema's description of its field."""
    fields = json.loads(schema.schema_json)["fields"]
    documented = [str(fields[column.position].get("doc", "")) for column in replica_columns(schema.schema_json)]
    return {name: text for name, text in zip(schema.columns, documented, strict=True) if name is not None}


def with_fields(
    name: str, after: TableState, before: TableState, schemas: Sequence[dict[str, str]], since: str, sequence: int
) -> TableState:
    """Return the table with the fields of the last schema, flagged for added, changed and removed columns. Events do
    not carry their values for records that have not changed since.

    :param after: the table after the changes of some events, and ``before`` them.
    :param schemas: :func:`documented_fields` of each schema of these events, the last schema at the end.
    :param since: time of the first event (ISO 8601, UTC).
    """
    changed_columns = {name for fields in schemas for name, text in fields.items() if before.fields.get(name) != text}
    new_columns = changed_columns if before.columns else set()  # a new table has no rows older than its fields
    removed = {*before.fields, *(name for fields in schemas for name in fields)} - schemas[-1].keys()
    columns = tuple(sorted(new_columns | removed))
    computed = tuple(name for name in after.computed.columns if name not in schemas[-1])
    after = replace(after, fields=schemas[-1], computed=replace(after.computed, columns=computed))
    if not columns:
        return after
    log.warning("The fields of %s have changed; columns to fetch: %s.", name, ", ".join(columns))
    return after.flagged(Flag("schema", since, sequence, columns))


def with_computed(name: str, table: TableState, refresh: TableRefresh) -> TableState:
    """Return a table with the computed columns that a refresh found.

    :raises ConfigurationError: if the table has got one of them meanwhile, with another type.
    """
    if refresh.computed is None:
        return table
    columns = dict(table.columns)
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
    return replace(table, columns=columns, computed=computed)


def check_rules(snapshot: Snapshot, rules: FieldRules, where: str) -> None:
    """Check that a job follows the rules of every table of a replica, including tables that its events do not change.

    :raises ConfigurationError: if the job would store a field otherwise; it names the field. Nothing was written.
    """
    for name, table in sorted(snapshot.tables.items()):
        rules.check_keep(table.rules, f"The table {name} of {where}")


def under_rules(name: str, table: TableState, rules: FieldRules, schemas: Collection[str]) -> TableState:
    """Return a table with rules, and with the columns that they protect.

    :raises ConfigurationError: if the table has rows with values that the rules now forbid. Nothing was published.
    """
    if not rules:
        return table
    now, before = (coverage_of(field_rules, name, schemas) for field_rules in (rules, table.rules))
    if fields := shown(table.columns, now, before, table.computed.columns):
        raise ConfigurationError(
            f"The replica table {name} contains unprotected values of {', '.join(fields)}: it was created without a "
            "rule for them. Nothing was published. Set another output_url for a new replica, or remove the rule."
        )
    hidden = dict(table.hidden)
    for text in schemas:
        columns = replica_columns(text)
        for column, treatment in zip(columns, hidden_columns(now, text), strict=True):
            if isinstance(treatment, str):
                hidden[column.name.lower()] = treatment
            warn_of_numbers(name, column.name, column.type, treatment)
    return replace(table, rules=rules.recorded(), hidden=hidden)


def treatment_of(name: str, table: TableState, column: str, *, is_computed: bool) -> Treatment | None:
    """Return the treatment of the values of a table's column; ``None`` if they are stored unchanged.

    :param is_computed: whether no event carries the column. Salesforce then derives it from other fields, for example a
        contact's ``Name`` from its parts, so that a rule for one of these applies to it too.
    """
    coverage = coverage_of(table.rules, name)
    fields = (column, field_of(column))
    recorded = (table.hidden.get(field.lower()) for field in fields)
    return strictest((*recorded, *(coverage.treatment_of((field,), is_opaque=is_computed) for field in fields)))
