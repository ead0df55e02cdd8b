"""The rows of the event log in memory, without Spark: the same plans, decoders and columns, on Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.spark.decode.payload_formats import WITH_SCHEMA, table_of_topic
from airflow_provider_sfstream.spark.event_log.field_survey import fields_of, found_fields
from airflow_provider_sfstream.spark.event_log.table_plans import (
    Schemas,
    TableSources,
    place_columns,
    sources_by_table,
)
from airflow_provider_sfstream.spark.event_log.tables import QUARANTINE_TABLE
from airflow_provider_sfstream.spark.rows.event_batches import (
    TablePlan,
    WindowReference,
    quarantine_rows,
    quarantine_schema,
    refused_rows,
    table_rows,
)
from airflow_provider_sfstream.spark.storage.column_registry import ColumnRegistry
from airflow_provider_sfstream.spark.storage.landed_windows import LandedWindow, payload_formats

Bounds = tuple[int | None, int | None]


def landed_rows(table: pa.Table, window: LandedWindow, number: int) -> pa.RecordBatch:
    """Return the rows of one landed file as the plans take them: with the window's number, and what each payload is."""
    named, other = payload_formats(window)
    is_json = pc.fill_null(pc.is_in(table["schema_id"], pa.array(named, pa.string())), False)
    format_ = pc.if_else(is_json, pa.scalar("json"), pa.scalar(other))
    numbers = pa.array([number], pa.int32()).take(pa.array([0] * len(table), pa.int32()))
    table = table.append_column("window", numbers).append_column("format", format_).combine_chunks()
    return table.to_batches()[0]


Runs = dict[tuple[str, int], int]
"""By window and ordinal of a landed row: which rows of one replay ID follow each other."""


def decoded_tables(
    batches: Sequence[pa.RecordBatch],
    references: tuple[WindowReference, ...],
    schemas: Schemas,
    bounds: Bounds = (None, None),
) -> dict[str, pa.Table]:
    """Return the events by table, each once, and those that cannot be decoded as the quarantine.

    :param batches: rows of :func:`landed_rows`, in the order of their windows and ordinals.
    :param references: by the number of the window.
    :param bounds: microseconds since the epoch, ``[from, to)``; both ``None``: all events.
    """
    tables = tuple(table_of_topic(reference.topic) for reference in references)
    present = {key for batch in batches for key in _present(batch)}
    own = [each for each in (_without_schema(batch) for batch in batches) if len(each)]
    found = fields_of(row for batch in found_fields(tables)(iter(own)) for row in batch.to_pylist())
    decoded: dict[str, pa.Table] = {}
    runs = _runs(batches, references)
    outcasts = _refused(batches, schemas, references)
    for name, sources in sources_by_table(present, schemas, found, tables).items():
        columns, plans, fields = place_columns(name, sources, ColumnRegistry())
        plan = TablePlan(columns, plans, fields, references, "auto", *bounds)
        chosen = [_chosen(batch, sources) for batch in batches]
        rows = table_rows(plan, lambda counted: None)(iter(chosen))
        decoded[name] = _each_once(pa.Table.from_batches(rows, plan.arrow_schema()), "_", runs)
        outcasts += quarantine_rows(plan)(iter(chosen))
    quarantine = _each_once(pa.Table.from_batches(outcasts, quarantine_schema()), "", runs)
    for table in decoded.values():  # of an event that is readable elsewhere, nothing is in quarantine
        quarantine = _without(quarantine, table, runs)
    return {name: table for name, table in {**decoded, QUARANTINE_TABLE: quarantine}.items() if len(table)}


def _present(batch: pa.RecordBatch) -> Iterator[tuple[Any, Any, Any]]:
    keys = pa.Table.from_batches([batch.select(["format", "schema_id", "window"])])
    for row in keys.group_by(["format", "schema_id", "window"]).aggregate([]).to_pylist():
        yield row["format"], row["schema_id"], row["window"]


def _with_schema(batch: pa.RecordBatch) -> pa.Array:
    return pc.is_in(batch.column("format"), pa.array(WITH_SCHEMA))


def _without_schema(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.invert(_with_schema(batch)))


def _chosen(batch: pa.RecordBatch, sources: TableSources) -> pa.RecordBatch:
    """Return the landed rows of one table."""
    described = _with_schema(batch)
    by_schema = pc.is_in(batch.column("schema_id"), pa.array(sorted(sources.schemas), pa.string()))
    by_window = pc.is_in(batch.column("window"), pa.array(sorted(sources.windows), pa.int32()))
    return batch.filter(pc.if_else(described, by_schema, by_window))


def _refused(
    batches: Sequence[pa.RecordBatch], schemas: Schemas, references: tuple[WindowReference, ...]
) -> list[pa.RecordBatch]:
    usable = pa.array(sorted(schemas.usable()), pa.string())
    without = [
        batch.filter(pc.and_(_with_schema(batch), pc.invert(pc.is_in(batch.column("schema_id"), usable))))
        for batch in batches
    ]
    return list(refused_rows(schemas.refused, references)(each for each in without if len(each)))


def _runs(batches: Sequence[pa.RecordBatch], references: tuple[WindowReference, ...]) -> Runs:
    """Return a number for each landed row, the same for rows of one replay ID that follow each other in a window."""
    runs: Runs = {}
    before, run = None, 0
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("window", "ordinal", "replay_id"))
        for window, ordinal, replay_id in zip(*columns, strict=True):
            run += (window, replay_id) != before
            before = window, replay_id
            runs[references[window].partition, ordinal] = run
    return runs


def _each_once(table: pa.Table, prefix: str, runs: Runs) -> pa.Table:
    """Return the rows of each replay ID that follow each other in its first window: several, where Salesforce has made
    several events of a change of several records."""
    keys, places = _keys(table, prefix), _places(table, prefix)
    chosen = _chosen_runs(table, prefix, runs)
    kept = [chosen[key] == runs[place] for key, place in zip(keys, places, strict=True)]
    return table.filter(pa.array(kept, pa.bool_()))


def _without(quarantine: pa.Table, table: pa.Table, runs: Runs) -> pa.Table:
    """Return the quarantined rows whose events ``table`` does not have from elsewhere."""
    readable = _chosen_runs(table, "_", runs)
    rows = zip(_keys(quarantine, ""), _places(quarantine, ""), strict=True)
    kept = [readable.get(key, runs[place]) == runs[place] for key, place in rows]
    return quarantine.filter(pa.array(kept, pa.bool_()))


def _chosen_runs(table: pa.Table, prefix: str, runs: Runs) -> dict[Any, int]:
    """Return the run of the first row of each event."""
    found: dict[Any, int] = {}
    for key, place in zip(_keys(table, prefix), _places(table, prefix), strict=True):
        found.setdefault(key, runs[place])
    return found


def _keys(table: pa.Table, prefix: str) -> Iterator[Any]:
    return zip(*(table[prefix + name].to_pylist() for name in ("org_id", "topic", "replay_id")), strict=True)


def _places(table: pa.Table, prefix: str) -> Iterator[Any]:
    return zip(table["window_id"].to_pylist(), table[f"{prefix}ordinal"].to_pylist(), strict=True)
