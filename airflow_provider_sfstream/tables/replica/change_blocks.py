"""Application of change events: tasks decode each landed event once, and send its change row to the file group of its
table, whose task merges it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa

from airflow_provider_sfstream.tables.delta.column_registry import ColumnRegistry
from airflow_provider_sfstream.tables.delta.delta_table import TableFile
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.event_log.delta_tables import by_table
from airflow_provider_sfstream.tables.event_log.table_plans import place
from airflow_provider_sfstream.tables.replica.delta_sink import DeltaSink, Incoming
from airflow_provider_sfstream.tables.replica.rewritten_files import RewriteResult, table_files
from airflow_provider_sfstream.tables.replica.snapshots import Flag, TableState
from airflow_provider_sfstream.tables.replica.table_fields import documented_fields, with_fields
from airflow_provider_sfstream.tables.replica.windows import LandedChanges
from airflow_provider_sfstream.tables.rows.change_batches import ChangePlan, TableFlag, change_rows, sequences_of
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows, SchemaPlan, WindowReference, refused_rows
from airflow_provider_sfstream.tables.rows.hidden_values import coverage_of, hidden_columns
from airflow_provider_sfstream.tables.rows.merging import ChangesMerge
from airflow_provider_sfstream.tables.rows.replica_columns import TABLE_ENVELOPE, FlagReason, replica_columns
from airflow_provider_sfstream.tables.rows.shuffle import Sender, block, unpacked

FLAGS = pa.schema(
    [("table", pa.string()), ("reason", pa.string()), ("milliseconds", pa.int64()), ("sequence", pa.int64())]
)
"""Flags of tables by the events of a task: a ``TableFlag``, or ``undecodable``."""
WITHOUT_SCHEMA = ""
"""Table name of events whose schema cannot be used."""


def apply_changes(
    sink: DeltaSink,
    tables: Mapping[str, tuple[TableState, Mapping[str, str]]],
    changes: LandedChanges,
    quarantine: TableLocation,
) -> tuple[dict[str, tuple[TableState, RewriteResult]], list[TableFile], bool]:
    """Apply the changes of all tables' events; return the tables, the files of the quarantine, and whether the schema
    of any event cannot be used.

    :param tables: by name, each with the Avro schemas of its events by ID, that of the last event at the end.
    """
    plans = {name: _change_plan(name, table, schemas, changes) for name, (table, schemas) in tables.items()}
    run = ChangesPlan(
        plans, changes.span, changes.refused, changes.references, changes.first_sequences, changes.batch_bytes
    )
    since, last_window = changes.since(), max(changes.first_sequences)
    incoming = {}
    for name, (table, schemas) in tables.items():
        plan = plans[name]
        after = replace(table, columns=plan.columns)
        fields = [documented_fields(plan.schemas[schema_id]) for schema_id in schemas]
        incoming[name] = Incoming(
            table,
            with_fields(name, after, table, fields, since, last_window),
            ChangesMerge(plan.columns, table.deletes),
            plan.layout,
            count=changes.count(schemas),
            ids=_changed_ids(run, name),
            changed_after=changes.span[0],
        )
    merged, lines = sink.merge(incoming, changes.rows, partial(change_blocks, run), quarantine)
    flags = [row for line in lines if line["counts"] is not None for row in unpacked(line["counts"]).to_pylist()]
    for row in sorted(flags, key=lambda row: (row["reason"] != "undecodable", row["sequence"])):
        if row["table"] == WITHOUT_SCHEMA:
            continue
        table, result = merged[row["table"]]
        flag = Flag("undecodable", since, last_window)
        if row["reason"] != flag.reason:
            moment = datetime.fromtimestamp(row["milliseconds"] / 1000, UTC)
            flag = Flag(row["reason"], moment.isoformat(), row["sequence"])
        merged[row["table"]] = table.flagged(flag), result
    without_schema = any(row["table"] == WITHOUT_SCHEMA for row in flags)
    return merged, table_files(lines, is_history=None), without_schema


@dataclass(frozen=True)
class ChangesPlan:
    """Plan for reading the change events of one run: the plans of its tables, and parts of :class:`LandedChanges`."""

    tables: Mapping[str, ChangePlan]
    span: tuple[int, int]
    refused: Mapping[str, str]
    windows: tuple[WindowReference, ...]
    first_sequences: tuple[int, ...]
    batch_bytes: int

    def by_table(self, batches: Batches) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the landed rows to apply as :func:`by_table`."""
        rows = (rows for rows in map(self._in_span, batches) if len(rows))
        return by_table(rows, self.tables, self.batch_bytes)

    def _in_span(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        sequences = sequences_of(batch, self.first_sequences).to_numpy()
        in_span = (sequences > self.span[0]) & (sequences <= self.span[1])
        return batch if in_span.all() else batch.filter(pa.array(in_span))


def change_blocks(run: ChangesPlan, ends: Sequence[Sequence[str]]) -> Rows:
    """Return a function for ``mapInArrow`` that sends landed events as packed change rows. Rows of the quarantine
    (unreadable events) go to the file group after the last one, :data:`FLAGS` to the next one.

    :param ends: for each table the last IDs of its file groups, as in :class:`Sender`.
    """
    quarantine = sum(len(table_ends) + 1 for table_ends in ends)
    plans = list(run.tables.items())

    def send(batches: Batches) -> Batches:
        sender, flags = Sender(ends, run.batch_bytes), set[tuple[str, FlagReason, int, int]]()
        unreadable: list[pa.RecordBatch] = []
        for number, landed in run.by_table(batches):
            name, found = WITHOUT_SCHEMA, list[TableFlag]()
            if number == len(plans):
                unreadable.append(refused_rows(landed, run.refused, run.windows))
            else:
                name, plan = plans[number]
                for rows in change_rows(plan, found.append, unreadable.append)(iter([landed])):
                    yield from sender.add(number, rows)
            flags.update((name, *each) for each in found)
            for refused in unreadable:
                flags.add((name, "undecodable", 0, 0))
                yield block(quarantine, refused)
            unreadable.clear()
        yield from sender.rest()
        rows_of_flags = [dict(zip(FLAGS.names, each, strict=True)) for each in sorted(flags)]
        yield block(quarantine + 1, pa.RecordBatch.from_pylist(rows_of_flags, schema=FLAGS))

    return send


def _changed_ids(run: ChangesPlan, table: str) -> Rows:
    """Return a function for ``mapInArrow`` that yields the IDs of a table's records that landed events change."""
    table_number = list(run.tables).index(table)

    def ids(batches: Batches) -> Batches:
        for number, landed in run.by_table(batches):
            if number == table_number:
                yield from change_rows(run.tables[table], lambda _: None)(iter([landed]))

    return ids


def _change_plan(name: str, table: TableState, schemas: Mapping[str, str], changes: LandedChanges) -> ChangePlan:
    """Return the plan for reading the events of one table, with a column for each of their fields."""
    registry = ColumnRegistry(dict(table.columns))
    change_schemas: dict[str, SchemaPlan] = {}
    for schema_id, text in sorted(schemas.items()):
        hidden = hidden_columns(coverage_of(changes.rules, name, (text,)), text)
        fields = ((column.name, column.type) for column in replica_columns(text))
        columns = place(f"{name} (schema {schema_id})", fields, hidden, registry, TABLE_ENVELOPE)
        change_schemas[schema_id] = SchemaPlan(text, columns, hidden)
    return ChangePlan(
        registry.columns,
        change_schemas,
        changes.first_sequences,
        changes.rules,
        changes.references,
        changes.batch_bytes,
    )
