"""Fetched records: conversion to rows, and their merge into a table."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.decode.arrow_columns import arrow_schema
from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType
from airflow_provider_sfstream.tables.job_config import Deletes
from airflow_provider_sfstream.tables.replica.refresh_document import IMAGE_ENVELOPE, TableRefresh
from airflow_provider_sfstream.tables.replica.snapshots import Flag, StreamState
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows
from airflow_provider_sfstream.tables.rows.merging import Columns, ColumnsMerge, Merge, RefreshMerge
from airflow_provider_sfstream.tables.rows.replica_columns import TABLE_ENVELOPE
from airflow_provider_sfstream.tables.runner.engine import Frame

_ENVELOPE_TYPES: dict[str, ColumnType] = {**TABLE_ENVELOPE, "_found": "boolean"}
COUNT = pa.schema([("count", pa.int64())])
IDS = pa.schema([("Id", pa.string())])
_TIME, _DATE, _DATE_TIME = r"^\d\d:\d\d:\d\d", r"^\d{4}-\d\d-\d\d$", r"^\d{4}-\d\d-\d\dT"


def image_schema(refresh: TableRefresh, columns: Columns) -> pa.Schema:
    """Return the Arrow schema of the fetched records: :data:`IMAGE_ENVELOPE`, and the fetched columns with the table's
    types.

    :param columns: the table's columns.
    """
    types = {name: _ENVELOPE_TYPES[name] for name in IMAGE_ENVELOPE} | {name: columns[name] for name in refresh.columns}
    return arrow_schema(types)


def typed(schema: pa.Schema) -> Rows:
    """Return a function for ``mapInArrow`` that converts records from text to the types of ``schema``.

    :raises ConfigurationError: if a text is not a value of its column. The text is not quoted: it may be personal.
    """

    def rows(batches: Batches) -> Batches:
        for batch in batches:
            arrays = [_column(batch.column(field.name), field) for field in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return rows


def refresh_merge(
    columns: Columns, refresh: TableRefresh, computed: Collection[str], *, deletes: Deletes, moved_on: bool
) -> Merge:
    """Return the merge of these records into a table.

    :param computed: the fetched columns that no event carries.
    :param moved_on: whether events of the stream have been applied since the fetch began.
    """
    if refresh.mode == "computed":
        return ColumnsMerge(columns, tuple(sorted(computed)), None)
    if refresh.mode == "columns":
        return ColumnsMerge(columns, refresh.columns, refresh.applied_sequence)
    return RefreshMerge(
        columns=columns,
        fetched=refresh.columns,
        computed=frozenset(computed),
        is_full=refresh.mode == "full",
        applied_sequence=refresh.applied_sequence,
        deletes=deletes,
        moved_on=moved_on,
    )


def flag_after(flag: Flag | None, refresh: TableRefresh, stream: StreamState) -> Flag | None:
    """Return the flag of a refreshed table: none after a fetch of all that it requires, unless it was raised later. It
    stays for the columns that the user of the refresh may not read.

    :param stream: current state of the table's stream.
    """
    if flag is None or refresh.mode in ("records", "computed"):
        return flag
    if refresh.mode == "columns" and flag.reason != "schema":
        return flag
    unchanged = stream.last.window_id == refresh.last_window
    if not unchanged and flag.sequence >= refresh.next_sequence:
        return flag
    return replace(flag, reason="schema", columns=refresh.hidden) if refresh.hidden else None


def _column(text: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return _typed(text, field.type)
    except pa.ArrowInvalid:
        raise ConfigurationError(
            f"A fetched value of the column {field.name} cannot be converted to its type ({field.type}). The type of "
            "the field may have changed since the refresh began. Nothing was published; the replica is unchanged. Run "
            "the refresh again. If it fails again, report this error."
        ) from None


def _typed(text: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_string(type_):
        return text
    if pa.types.is_nested(type_):  # no query returns it: the column of a removed field
        return pa.nulls(len(text), type_)
    return _whole_number(text).cast(type_) if pa.types.is_integer(type_) else text.cast(type_)


def _whole_number(text: pa.Array) -> pa.Array:
    """Return integers: for a time milliseconds since midnight, for a date or date-time milliseconds since the epoch."""
    is_time, is_date = (pc.match_substring_regex(text, pattern) for pattern in (_TIME, _DATE))
    is_moment = pc.match_substring_regex(text, _DATE_TIME)
    moment = pc.case_when(
        pa.StructArray.from_arrays([is_moment, is_date, is_time], ["moment", "date", "time"]),
        text,
        pc.binary_join_element_wise(text, "T00:00:00.000Z", ""),
        pc.binary_join_element_wise("1970-01-01T", text, ""),
    )
    plain_number = pc.if_else(pc.or_(pc.or_(is_time, is_date), is_moment), None, text)
    # A whole number can arrive as "5.0", which Arrow cannot cast to an integer directly.
    number = plain_number.cast(pa.decimal128(38, 9)).cast(pa.int64(), safe=False)
    return pc.coalesce(moment.cast(pa.timestamp("ms", "UTC")).cast(pa.int64()), number)


def sampled_record_ids(rows: Frame, fraction: float) -> list[str]:
    """Return the IDs of a random sample of fetched records.

    :param fraction: share of the records to sample.
    """

    def sample(batches: Batches) -> Batches:
        for batch in batches:
            yield batch.select(["Id"]).filter(pa.array(np.random.default_rng().random(len(batch)) < fraction))

    return [row["Id"] for row in rows.map_batches(sample, IDS).collect()]


def live_count(rows: Frame) -> int:
    """Return the number of rows of a table that are not deleted."""
    return sum(line["count"] for line in rows.select("_deleted").map_batches(live_rows, COUNT).collect())


def live_rows(batches: Batches) -> Batches:
    """Yield the number of rows that are not deleted."""
    for batch in batches:
        count = len(batch) - (pc.sum(batch.column("_deleted")).as_py() or 0)
        yield pa.RecordBatch.from_pylist([{"count": count}], schema=COUNT)
