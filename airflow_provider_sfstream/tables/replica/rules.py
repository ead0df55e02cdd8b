"""Field protection rules of a replica's tables, stored in the snapshot beside the columns. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.privacy.field_rules import FieldRules, Treatment, strictest
from airflow_provider_sfstream.tables.replica.snapshots import Snapshot, TableState
from airflow_provider_sfstream.tables.rows.hidden_values import (
    coverage_of,
    field_of,
    hidden_columns,
    shown,
    warn_of_numbers,
)
from airflow_provider_sfstream.tables.rows.replica_columns import replica_columns


def check_rules(snapshot: Snapshot, rules: FieldRules, where: str) -> None:
    """Check that a job follows the rules of every table of a replica, including tables that its events do not change.

    :param where: location of the replica, for the error.
    :raises ConfigurationError: if the job would store a field otherwise; it names the field. Nothing was written.
    """
    for name, table in sorted(snapshot.tables.items()):
        rules.check_keep(table.rules, f"The table {name} of {where}")


def under_rules(name: str, table: TableState, rules: FieldRules, schemas: Collection[str]) -> TableState:
    """Return a table with rules, and with the columns that they protect.

    :param schemas: Avro schemas of the events to apply.
    :raises ConfigurationError: if the table has rows with values that the rules now forbid. Nothing was published.
    """
    if not rules:
        return table
    now, before = (coverage_of(field_rules, name, schemas) for field_rules in (rules, table.rules))
    if fields := shown(table.columns.columns, now, before, table.computed.columns):
        raise ConfigurationError(
            f"The replica table {name} contains unprotected values of {', '.join(fields)}: it was created without a "
            "rule for them. Nothing was published. Set another output_url for a new replica, or remove the rule."
        )
    hidden = dict(table.hidden)
    for text in schemas:
        columns = replica_columns(json.loads(text))
        for column, treatment in zip(columns, hidden_columns(now, text), strict=True):
            if isinstance(treatment, str):
                hidden[column.name.lower()] = treatment
            warn_of_numbers(name, column.name, column.type, treatment)
    return replace(table, rules=rules.recorded(), hidden=hidden)


def treatment_of(name: str, table: TableState, column: str, *, is_computed: bool) -> Treatment | None:
    """Return the treatment of the values of a table's column; ``None`` if they are stored unchanged.

    :param name: name of the table.
    :param column: existing or future column of the table.
    :param is_computed: whether no event carries the column. Salesforce then derives it from other fields, for example a
        contact's ``Name`` from its parts, so that a rule for one of these applies to it too.
    """
    coverage = coverage_of(table.rules, name)
    fields = (column, field_of(column))
    recorded = (table.hidden.get(field.lower()) for field in fields)
    return strictest((*recorded, *(coverage.treatment_of((field,), is_opaque=is_computed) for field in fields)))
