"""Columns of each kind of rows, and the rows of a part of a window, which executors read as Arrow batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.exceptions import ConfigurationError, SchemaError
from airflow_provider_sfstream.tables.decode.arrow_columns import arrow_type, record_batch
from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType
from airflow_provider_sfstream.tables.delta.column_registry import type_of_spark
from airflow_provider_sfstream.tables.rows.event_batches import (
    ENVELOPE,
    PARTITIONS,
    QUARANTINE,
    Batches,
    quarantined,
)
from airflow_provider_sfstream.tables.runner.embedded import landed_batches
from airflow_provider_sfstream.tables.source.files import SourceFiles
from airflow_provider_sfstream.tables.source.options import RowKind, SourceOptions
from airflow_provider_sfstream.tables.source.planning import Part


def part_rows(part: Part, options: SourceOptions, schema: pa.Schema) -> Batches:
    """Yield the rows of a part, in the order in which they landed.

    :param schema: the requested columns, which the yielded rows have.
    :raises SchemaError: if rows cannot be decoded and the options require it. The part's rows are then invalid.
    :raises ConfigurationError: if the file is missing, or was changed after it landed.
    :raises LandingError: if the storage cannot be read.
    """
    make = {"decoded": _decoded, "raw": _raw, "quarantine": _quarantined}[options.rows]
    with SourceFiles(options.storage).part(part.url, part.sha256 if options.verify_files else None) as file:
        for batch in make(landed_batches(file, part.manifest, 0, None), part, options):
            yield _projected(batch, schema)


def _raw(landed: Batches, part: Part, options: SourceOptions) -> Batches:
    for batch in landed:
        yield quarantined(batch, [""] * len(batch), part.plan.windows)


def _decoded(landed: Batches, part: Part, options: SourceOptions) -> Batches:
    for batch in landed:
        if part.manifest.erased:  # erased payloads must not fail a query
            batch = batch.filter(pc.greater(pc.binary_length(batch.column("payload")), 0))
        decoded = [decoded for _, decoded in part.plan.decode(iter([batch]))]
        undecodable = sum(len(rows) for each in decoded for rows in each.quarantined)
        if undecodable and options.on_undecodable == "fail":
            stream, window_id = part.manifest.stream, part.manifest.window.window_id
            raise SchemaError(
                f"{stream.topic} (org {stream.org_id}): {undecodable} of {len(batch)} events from row "
                f"{batch.column('ordinal')[0]} of window {window_id} cannot be decoded. No event is lost: the "
                "landing has them unchanged. Read them and the reasons with the option rows=quarantine, and the other "
                "events with on_undecodable=leave_out."
            )
        yield from (rows for each in decoded for rows in each.rows)


def _quarantined(landed: Batches, part: Part, options: SourceOptions) -> Batches:
    return (rows for _, decoded in part.plan.decode(landed) for rows in decoded.quarantined)


def _projected(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    names = {name.lower(): name for name in batch.schema.names}
    values = {name: batch.column(names[name.lower()]) for name in schema.names if name.lower() in names}
    return record_batch(values, schema, len(batch))


_FIXED: dict[RowKind, dict[str, ColumnType]] = {
    "decoded": ENVELOPE | PARTITIONS,
    "raw": {name: type_ for name, type_ in QUARANTINE.items() if name != "reason"},
    "quarantine": QUARANTINE,
}


def all_columns(rows: RowKind, events: Mapping[str, ColumnType]) -> dict[str, ColumnType]:
    """Return the columns of a kind of rows, in order; for decoded rows including the events' own fields."""
    return {**ENVELOPE, **events, **PARTITIONS} if rows == "decoded" else _FIXED[rows]


def event_columns(rows: RowKind, fields: list[dict[str, Any]]) -> dict[str, ColumnType]:
    """Return the columns of a schema that are fields of events, after checking the others.

    :param fields: fields of the schema in Spark's JSON form.
    """
    fixed, events = {name.lower(): (name, type_) for name, type_ in _FIXED[rows].items()}, {}
    for field in fields:
        name, type_ = field["name"], type_of_spark(field["type"])
        expected = fixed.get(name.lower())
        if expected is None and rows != "decoded":
            raise ConfigurationError(
                f"{name!r} is not a column of rows={rows}; its columns are {', '.join(_FIXED[rows])}. Nothing was read."
            )
        if expected is not None and expected != (name, type_):
            raise ConfigurationError(
                f"The column {name} must have the name {expected[0]} and the type {expected[1]}. Nothing was read."
            )
        if expected is None:
            try:
                arrow_type(type_)
            except KeyError:
                raise ConfigurationError(
                    f"The column {name} has type {type_}, which is not a type of event fields. Nothing was read."
                ) from None
            events[name] = type_
    return events
