"""Fetched records: conversion to rows, and their merge into tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.decode.arrow_columns import arrow_schema
from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType
from airflow_provider_sfstream.tables.job_config import Deletes
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig, ReplicaMetrics
from airflow_provider_sfstream.tables.replica.delta_sink import DeltaSink, Incoming
from airflow_provider_sfstream.tables.replica.reconciliation import reconcile
from airflow_provider_sfstream.tables.replica.refresh_document import IMAGE_ENVELOPE, RefreshDocument, TableRefresh
from airflow_provider_sfstream.tables.replica.rewritten_files import RewriteResult
from airflow_provider_sfstream.tables.replica.snapshots import Flag, Snapshot, StreamState, TableState, check_deletes
from airflow_provider_sfstream.tables.replica.table_fields import with_computed
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows
from airflow_provider_sfstream.tables.rows.merging import Columns, ColumnsMerge, Merge, RefreshMerge
from airflow_provider_sfstream.tables.rows.replica_columns import TABLE_ENVELOPE
from airflow_provider_sfstream.tables.runner.engine import Frame

_ENVELOPE_TYPES: dict[str, ColumnType] = {**TABLE_ENVELOPE, "_found": "boolean"}
_COUNT = pa.schema([("count", pa.int64())])
_EPOCH = datetime.fromtimestamp(0, UTC)
_FEW_ROWS = 10
"""Number of rows of a table that may always lack a record in the org, regardless of their share."""
_TIME, _DATE, _DATE_TIME = r"^\d\d:\d\d:\d\d", r"^\d{4}-\d\d-\d\d$", r"^\d{4}-\d\d-\d\dT"


class RefreshRun:
    """Merge of the records of one refresh.

    :param snapshot: current snapshot of the replica. It may be later than the one that the refresh started from.
    :param url: URL of the refresh's document.
    """

    def __init__(self, sink: DeltaSink, snapshot: Snapshot, url: str, config: ReplicaConfig) -> None:
        self._sink, self._snapshot, self._config = sink, snapshot, config
        self._url = sink.engine.files.url(url)

    def run(self, metrics: ReplicaMetrics) -> Snapshot:
        """Return the next snapshot.

        :raises ConfigurationError: if the refresh belongs to another replica, or cannot be found or read, or its tables
            record another choice for deleted records, or too many records are gone; nothing was published.
        """
        document = self._document()
        states = {name: self._table(name, refresh) for name, refresh in sorted(document.tables.items())}
        changed: dict[str, TableState] = {}
        for name, (table, stream) in states.items():
            refresh, of_table = document.tables[name], metrics.of_table(name)
            if refresh.mode == "compare":
                images = self._images(refresh, table)
                changed[name], of_table.reconciliation = reconcile(
                    self._sink, name, table, refresh, images, document.refresh_id
                )
                continue
            after, result = self._merge(name, table, refresh, stream)
            changed[name] = replace(after, flag=flag_after(table.flag, refresh, stream))
            of_table.rows += result.rows
            of_table.deleted += result.deleted
            of_table.differed += result.incoming if refresh.mode == "computed" else 0
        return self._snapshot.next({}, changed, datetime.now(UTC))

    def _document(self) -> RefreshDocument:
        try:
            return RefreshDocument.from_json(self._sink.engine.files.read_text(self._url), self._url)
        except FileNotFoundError:
            raise ConfigurationError(
                f"{self._url} does not exist: a refresh that started later has removed it. Nothing was published. Run "
                "only one refresh of a replica at a time, and run this refresh again."
            ) from None

    def _table(self, name: str, refresh: TableRefresh) -> tuple[TableState, StreamState]:
        table = self._snapshot.tables.get(name)
        if table is None or table.stream != refresh.stream:
            raise ConfigurationError(
                f"{self._url} contains records for the table {name} of the stream {refresh.stream}. The replica no "
                "longer has this table. Nothing was published. Run the refresh again."
            )
        check_deletes({name: table}, self._config.deletes)
        self._sink.check({name: table})
        return table, self._snapshot.streams[table.stream]

    def _images(self, refresh: TableRefresh, table: TableState) -> tuple[Frame, pa.Schema]:
        """Return the fetched records, which may contain duplicates, and their schema."""
        schema, folder = image_schema(refresh, table.columns), self._url.rpartition("/")[0]
        lines = self._sink.engine.text_rows(folder, refresh.files, schema.names)
        return lines.map_batches(typed(schema), schema), schema

    def _merge(
        self, name: str, before: TableState, refresh: TableRefresh, stream: StreamState
    ) -> tuple[TableState, RewriteResult]:
        computed = {*(refresh.computed or ()), *before.computed.columns}.intersection(refresh.columns)
        table = with_computed(name, before, refresh)
        moved_on = stream.applied_sequence > refresh.applied_sequence
        gone_at = datetime.now(UTC)
        if table.flag and refresh.mode == "full":
            gone_at = datetime.fromisoformat(table.flag.since)
        rows, schema = self._images(refresh, table)
        incoming = Incoming(
            before,
            table,
            refresh_merge(dict(table.columns), refresh, computed, deletes=table.deletes, moved_on=moved_on),
            schema,
            count=refresh.fetched,
            check=partial(self._check_gone, name, table),
            gone_at=(gone_at - _EPOCH) // timedelta(microseconds=1),
            changed_since=None if refresh.computed is None else refresh.applied_sequence + 1,
        )
        return self._sink.merge_rows(name, incoming, rows)

    def _check_gone(self, name: str, table: TableState, result: RewriteResult) -> None:
        """Check that the number of rows to delete because the org returned no record is within the limit."""
        gone, most = result.gone, self._config.max_deleted_fraction
        if gone <= _FEW_ROWS:
            return
        rows = self._sink.read(name, table).select("_deleted")
        live = sum(line["count"] for line in rows.map_batches(_live_rows, _COUNT).collect())
        if gone > most * live:
            raise ConfigurationError(
                f"{name}: the org returned no record for {gone} of {live} rows that are not deleted, not even from its "
                f"recycle bin. That is more than max_deleted_fraction={most}: the user of the "
                "connection may not see the records. Nothing was published. If the records were deleted permanently, "
                "run the refresh again with max_deleted_fraction=1."
            )


def image_schema(refresh: TableRefresh, columns: Mapping[str, ColumnType]) -> pa.Schema:
    """Return the Arrow schema of the fetched records: :data:`IMAGE_ENVELOPE`, and the fetched columns with the table's
    types."""
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


def _live_rows(batches: Batches) -> Batches:
    """Yield the number of rows that are not deleted."""
    for batch in batches:
        count = len(batch) - (pc.sum(batch.column("_deleted")).as_py() or 0)
        yield pa.RecordBatch.from_pylist([{"count": count}], schema=_COUNT)
