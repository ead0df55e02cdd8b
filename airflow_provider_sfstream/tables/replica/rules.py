"""The rules for fields that a replica's table is kept by, in the snapshot beside its columns. Pure."""

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
    """Make sure that a job keeps the rules of every table of a replica, whichever its events are for.

    :param where: the replica.
    :raises ConfigurationError: naming the field that it would store otherwise. Nothing was written.
    """
    for name, table in sorted(snapshot.tables.items()):
        rules.check_keep(table.rules, f"The table {name} of {where}")


def under_rules(name: str, table: TableState, rules: FieldRules, schemas: Collection[str]) -> TableState:
    """Return a table with rules, and with the columns that they are found to be of.

    :param schemas: Avro schemas of the events that are to be applied.
    :raises ConfigurationError: if it has rows with what it may not have from now on. Nothing was published.
    """
    if not rules:
        return table
    now, before = (coverage_of(each, name, schemas) for each in (rules, table.rules))
    if fields := shown(table.columns.columns, now, before, table.computed.columns):
        raise ConfigurationError(
            f"The replica of {name} has {', '.join(fields)} as they come: it was made without a rule for them. "
            "Nothing was published. Give another output_url, for a replica made anew, or leave the rule out."
        )
    hidden = dict(table.hidden)
    for text in schemas:
        columns = replica_columns(json.loads(text))
        for column, how in zip(columns, hidden_columns(now, text), strict=True):
            if isinstance(how, str):
                hidden[column.name.lower()] = how
            warn_of_numbers(name, column.name, column.type, how)
    return replace(table, rules=rules.recorded(), hidden=hidden)


def treatment_of(name: str, table: TableState, column: str, *, is_computed: bool) -> Treatment | None:
    """Return what becomes of the values of a table's column; ``None`` if they are stored as they come.

    :param name: of the table.
    :param column: one that it has, or is to get.
    :param is_computed: whether no event carries it. Salesforce then makes it of others, as a contact's ``Name`` of its
        parts, so that a rule for one of these is for it too.
    """
    coverage = coverage_of(table.rules, name)
    fields = (column, field_of(column))
    recorded = (table.hidden.get(field.lower()) for field in fields)
    return strictest((*recorded, *(coverage.of((field,), is_opaque=is_computed) for field in fields)))
