"""Executor functions that fold all changes of a record into one row."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute

from airflow_provider_sfstream.tables.decode.arrow_columns import arrow_schema, record_batch
from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType
from airflow_provider_sfstream.tables.job_config import Deletes
from airflow_provider_sfstream.tables.rows.arrow_rows import Numbers, is_true, is_valid
from airflow_provider_sfstream.tables.rows.replica_columns import FOLDED_ENVELOPE

Columns: TypeAlias = dict[str, ColumnType]
_WORD = 64
"""Bits in an element of ``_set``."""


def folded_schema(columns: Columns) -> pa.Schema:
    """Return the Arrow schema of folded rows of a table with these columns."""
    return arrow_schema(FOLDED_ENVELOPE | columns)


def fold(changes: pa.RecordBatch, columns: Columns, deletes: Deletes) -> pa.RecordBatch:
    """Return one folded row for each record of these change rows, which are sorted by ``Id`` and ``_sequence``."""
    rows, schema = _as_folded(changes, columns), folded_schema(columns)
    if not len(rows):
        return rows
    groups = _Groups(rows, deletes)
    values: dict[str, pa.Array] = {"Id": rows.column("Id").take(pa.array(groups.starts))}
    values["_sequence"] = rows.column("_sequence").take(pa.array(groups.ends))
    values["_replaces"] = pa.array(groups.first_applied > groups.starts)
    values["_dirty_reason"] = rows.column("_dirty_reason").take(pa.array(groups.last_applied))
    commit_times = rows.column("_commit_time")
    is_new = is_valid(commit_times)
    first, gap = groups.first_values(commit_times, is_new), commit_times.take(pa.array(groups.last_applied))
    values["_dirty_since"] = pa.compute.if_else(values["_dirty_reason"].is_valid(), gap, first)
    for name in ("_replay_id", "_transaction_key"):
        values[name] = groups.last_values(rows.column(name), is_new)
    values["_commit_time"] = groups.latest(commit_times)
    full = rows.column("_full").to_numpy(zero_copy_only=False) & groups.applied
    values["_full"] = pa.array(np.logical_or.reduceat(full, groups.starts))
    values["_deleted"] = groups.last_values(rows.column("_deleted"), is_valid(rows.column("_deleted")))
    words = set_words(rows.column("_set"), len(columns)) * groups.applied[:, np.newaxis]
    values["_set"] = set_array(np.bitwise_or.reduceat(words, groups.starts, axis=0))
    for number, name in enumerate(columns):
        values[name] = groups.last_values(rows.column(name), sets_column(words, number))
    return pa.RecordBatch.from_arrays([values[name] for name in schema.names], schema=schema)


class _Groups:
    """Row ranges of each record, and the rows in them that apply.

    The rows up to the first gap apply. With hard deletes, they start after the last delete that another row follows.
    """

    def __init__(self, rows: pa.RecordBatch, deletes: Deletes) -> None:
        count = len(rows)
        self.starts = record_starts(rows)
        self.ends = np.append(self.starts[1:], count) - 1
        lengths = self.ends - self.starts + 1
        self._places = np.arange(count)
        gaps = np.where(is_valid(rows.column("_dirty_reason")), self._places, count)
        self.last_applied = np.minimum(np.minimum.reduceat(gaps, self.starts), self.ends)
        self.first_applied = self.starts
        if deletes == "hard":
            starts = life_starts(self.starts, is_true(rows.column("_deleted")))
            self.first_applied = starts[np.searchsorted(starts, self.last_applied, "right") - 1]
        after, through = np.repeat(self.first_applied, lengths), np.repeat(self.last_applied, lengths)
        self.applied = (after <= self._places) & (self._places <= through)

    def latest(self, times: pa.Array) -> pa.Array:
        """Return, for each record, the latest time in its applied rows; null if there is none."""
        never = np.iinfo(np.int64).min
        numbers = pa.compute.fill_null(times.cast(pa.int64()), never).to_numpy(zero_copy_only=False)
        latest = np.maximum.reduceat(np.where(self.applied, numbers, never), self.starts)
        return pa.array(latest, pa.int64(), mask=latest == never).cast(times.type)

    def first_values(self, column: pa.Array, chosen: Numbers) -> pa.Array:
        """Return, for each record, the value of its first applied row that is ``chosen``; null if there is none."""
        count = len(column)
        places = np.minimum.reduceat(np.where(chosen & self.applied, self._places, count), self.starts)
        return column.take(pa.array(places, mask=places == count))

    def last_values(self, column: pa.Array, chosen: Numbers) -> pa.Array:
        """Return, for each record, the value of its last applied row that is ``chosen``; null if there is none."""
        chosen = chosen & self.applied
        if not chosen.any():
            return pa.nulls(len(self.starts), column.type)
        places = np.maximum.reduceat(np.where(chosen, self._places, -1), self.starts)
        return column.take(pa.array(places, mask=places < 0))


def _as_folded(changes: pa.RecordBatch, columns: Columns) -> pa.RecordBatch:
    """Return each change row as a folded row."""
    operations = changes.column("_operation")
    gap, full, delete, seen = (pa.compute.equal(operations, name) for name in ("gap", "full", "delete", "seen"))
    nulls = pa.nulls(len(changes))
    words = set_words(changes.column("_set"), len(columns))
    words[pa.compute.or_(gap, seen).to_numpy(zero_copy_only=False)] = 0
    reason = pa.compute.coalesce(changes.column("_dirty_reason"), pa.scalar("gap"))
    origin = {
        name: pa.compute.if_else(seen, pa.scalar(None, changes.column(name).type), changes.column(name))
        for name in ("_replay_id", "_commit_time", "_transaction_key")
    }
    values = {name: changes.column(name) for name in changes.schema.names} | {
        **origin,
        "_replaces": nulls,
        "_full": full,
        "_deleted": pa.compute.if_else(pa.compute.or_(full, delete), delete, nulls.cast(pa.bool_())),
        "_dirty_since": nulls,
        "_dirty_reason": pa.compute.if_else(gap, reason, nulls),
        "_set": set_array(words),
    }
    return record_batch(values, folded_schema(columns), len(changes))


def set_words(sets: pa.Array, columns: int) -> Numbers:
    """Return ``_set`` as a matrix of 64-bit words, one row each; a null or short set has no column beyond its end."""
    words = np.zeros((len(sets), -(-columns // _WORD)), np.int64)
    offsets, values = sets.offsets.to_numpy(), sets.values.to_numpy(zero_copy_only=False)
    lengths = np.where(is_valid(sets), np.diff(offsets), 0)
    for number in range(words.shape[1]):
        has_word = lengths > number
        words[has_word, number] = values[offsets[:-1][has_word] + number]
    return words


def sets_column(words: Numbers, number: int) -> Numbers:
    """Return a mask of the rows of :func:`set_words` that set a column.

    :param number: index of the column in the table.
    """
    return ((words[:, number // _WORD] >> (number % _WORD)) & 1).astype(bool)


def set_array(words: Numbers) -> pa.Array:
    """Return a matrix of 64-bit words as ``_set``."""
    count, width = words.shape
    return pa.ListArray.from_arrays(np.arange(count + 1, dtype=np.int32) * width, words.reshape(-1))


def record_starts(rows: pa.RecordBatch) -> Numbers:
    """Return the index of the first row of each record; all rows of a record are adjacent."""
    ids = rows.column("Id")
    differs = pa.compute.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1)).to_numpy(zero_copy_only=False)
    return np.flatnonzero(np.concatenate(([True], differs)))


def life_starts(starts: Numbers, deleted: Numbers) -> Numbers:
    """Return the index of the first row of each record, and of each row that follows a hard delete.

    A hard-deleted record has no row: rows before the delete must not affect rows after it.

    :param starts: index of the first row of each record.
    """
    return np.union1d(starts, np.flatnonzero(deleted[:-1]) + 1)


def follows_delete(rows: pa.RecordBatch, deleted: Numbers) -> Numbers:
    """Return a mask of the rows that follow a ``deleted`` row of the same record."""
    starts, deletes = record_starts(rows), np.cumsum(deleted) - deleted
    return deletes > np.repeat(deletes[starts], np.diff(np.append(starts, len(rows))))
