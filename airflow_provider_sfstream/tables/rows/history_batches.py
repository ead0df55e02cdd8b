"""Executor functions that turn the changes of a record, and its previous row, into the versions that they end.

Each change that applies ends the version before it. The number of changes is unlimited: the last row of a batch is the
previous row of the next.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.tables.decode.arrow_columns import arrow_schema, arrow_type
from airflow_provider_sfstream.tables.job_config import Deletes
from airflow_provider_sfstream.tables.rows.applied_changes import AppliedChanges, record_lengths
from airflow_provider_sfstream.tables.rows.arrow_rows import as_batch, is_true
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows
from airflow_provider_sfstream.tables.rows.merging import Columns, later

VERSION_ENVELOPE: Columns = {
    "Id": "string",
    "_valid_from": "timestamp",
    "_valid_to": "timestamp",
    "_operation": "string",
    "_deleted": "boolean",
    "_dirty": "boolean",
    "_dirty_reason": "string",
    "_replay_id": "binary",
    "_commit_time": "timestamp",
    "_transaction_key": "string",
    "_sequence": "long",
}
"""Columns of a version before the record's own. ``_operation`` began it: ``upsert``, ``delete``, ``refresh`` (the
record as fetched), or ``unknown``: from then on the replica does not have the state of the record (``_dirty_reason`` is
the cause), and the columns are those of the previous version. ``_sequence`` is of the last change that its row has
seen, applied or not."""


def version_schema(columns: Columns) -> pa.Schema:
    """Return the Arrow schema of the versions of a table with these columns."""
    return arrow_schema({**VERSION_ENVELOPE, **columns})


def ended_by_changes(
    base: pa.RecordBatch, changes: pa.RecordBatch, columns: Columns, deletes: Deletes, batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield the versions that changes end: previous rows to which a change applies, and all rows in between.

    With hard deletes, a record has no version while it is deleted, and later versions are those of a record that was
    never seen before.

    :param base: rows of the table, and ``changes`` of their records, as :class:`AppliedChanges` expects.
    :param batch_bytes: bytes of rows to process at a time, regardless of the number of changes of a record.
    """
    row_bytes = base.nbytes / max(len(base), 1) + changes.nbytes / max(len(changes), 1)
    at_once = max(1, int(batch_bytes / max(row_bytes, 1)))
    lengths = record_lengths(changes)
    records = np.repeat(np.arange(len(lengths)), lengths)
    last: pa.RecordBatch | None = None
    for start in range(0, len(changes), at_once):
        numbers = records[start : start + at_once]
        rows = base.slice(numbers[0], numbers[-1] - numbers[0] + 1)
        if last is not None and records[start - 1] == numbers[0]:  # continue with the last row of the record
            rows = as_batch(pa.Table.from_batches([last, rows.slice(1)]))
        applied = AppliedChanges(rows, changes.slice(start, at_once), deletes)
        states = applied.rows()
        yield _ended_versions(states, columns, deletes)
        last = states.take(pa.array([len(states) - 1], pa.int64(), mask=applied.is_gone[-1:]))


def ended_by_refresh(
    base: pa.RecordBatch, new: pa.RecordBatch, dropped: pa.BooleanArray, columns: Columns, gone_at: int
) -> pa.RecordBatch:
    """Return the versions that a refresh ends.

    A new row that begins at the same time as the former row replaces it and ends no version.

    :param base: rows of the table; ``new``: the rows that replace them, unless ``dropped``.
    :param gone_at: end of the version of a dropped row, microseconds since the epoch: the time of the deletion is
        unknown.
    """
    former_begins = _begins(base)
    ended = pc.or_(dropped, pc.fill_null(pc.greater(_begins(new), former_begins), False))
    ended = pc.and_(ended, base["Id"].is_valid())
    dropped_ends = later(former_begins, pa.scalar(gone_at, former_begins.type))
    return _versions(base, pc.if_else(dropped, dropped_ends, _begins(new)), columns).filter(ended)


def holding_versions(columns: Columns) -> Rows:
    """Return a function for ``mapInArrow`` that converts a table's rows to current versions, which have no end."""

    def rows(batches: Batches) -> Batches:
        for batch in batches:
            yield _versions(batch, pa.nulls(len(batch), arrow_type("timestamp")), columns)

    return rows


def _versions(rows: pa.RecordBatch, ends: pa.Array, columns: Columns) -> pa.RecordBatch:
    """Return the version that each row of a table represents."""
    dirty, commit, refreshed = rows["_dirty_reason"].is_valid(), rows["_commit_time"], rows["_refreshed_at"]
    is_fetched = pc.coalesce(pc.less(commit, refreshed), pc.is_null(commit))
    names = ["unknown", "delete", "refresh"]
    conditions = pa.StructArray.from_arrays([dirty, rows["_deleted"], is_fetched], names)
    operations = pc.case_when(conditions, *(pa.scalar(name) for name in (*names, "upsert")))
    computed = {"_valid_from": _begins(rows), "_valid_to": ends, "_operation": operations, "_dirty": dirty}
    schema = version_schema(columns)
    arrays = [computed[name] if name in computed else rows[name] for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _begins(rows: pa.RecordBatch) -> pa.Array:
    """Return the begin of the version of each table row: its last change, or a later refresh."""
    return later(rows["_commit_time"], rows["_refreshed_at"])


def _ended_versions(states: pa.RecordBatch, columns: Columns, deletes: Deletes) -> pa.RecordBatch:
    """Return the versions among these states that another state of the same record ends."""
    ids, count = states.column("Id"), len(states)
    is_ended = np.append(is_true(pc.equal(ids.slice(1), ids.slice(0, count - 1))), False)
    if deletes == "hard":  # a deleted record has no row, hence no version
        is_ended &= ~is_true(states.column("_deleted"))
    places = np.flatnonzero(is_ended)
    return _versions(states.take(pa.array(places)), _begins(states).take(pa.array(places + 1)), columns)
