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
    return arrow_schema({**FOLDED_ENVELOPE, **columns})


def fold(changes: pa.RecordBatch, columns: Columns, deletes: Deletes) -> pa.RecordBatch:
    """Return one folded row for each record of these change rows, which are sorted by ``Id`` and ``_sequence``."""
    schema = folded_schema(columns)
    if not len(changes):
        return pa.RecordBatch.from_pylist([], schema=schema)
    full, delete, gap, seen = (has_operation(changes, name) for name in ("full", "delete", "gap", "seen"))
    groups = _Groups(changes, gap, delete & (deletes == "hard"))
    is_new = is_valid(changes["_commit_time"]) & ~seen
    gap_reasons = pa.compute.if_else(pa.array(gap), pa.compute.coalesce(changes["_dirty_reason"], "gap"), None)
    values = {
        "Id": changes["Id"].take(pa.array(groups.starts)),
        "_sequence": changes["_sequence"].take(pa.array(groups.ends)),
        "_replaces": pa.array(groups.first_applied > groups.starts),
        "_full": pa.array(np.logical_or.reduceat(full & groups.applied, groups.starts)),
        "_deleted": groups.last_values(pa.array(delete), full | delete),
        "_dirty_reason": gap_reasons.take(pa.array(groups.last_applied)),
        "_commit_time": groups.latest(changes["_commit_time"], is_new),
    }
    first_times = groups.first_values(changes["_commit_time"], is_new)
    gap_times = changes["_commit_time"].take(pa.array(groups.last_applied))
    values["_dirty_since"] = pa.compute.if_else(values["_dirty_reason"].is_valid(), gap_times, first_times)
    for name in ("_replay_id", "_transaction_key"):
        values[name] = groups.last_values(changes[name], is_new)
    words = set_words(changes["_set"], len(columns))
    words[~groups.applied | gap | seen] = 0
    values["_set"] = set_array(np.bitwise_or.reduceat(words, groups.starts, axis=0))
    for number, name in enumerate(columns):
        values[name] = groups.last_values(changes[name], sets_column(words, number))
    return record_batch(values, schema, len(groups.starts))


class _Groups:
    """Row ranges of each record, and the rows in them that apply: those up to the first gap, after the last hard delete
    that another row follows."""

    def __init__(self, rows: pa.RecordBatch, gap: Numbers, hard_delete: Numbers) -> None:
        count = len(rows)
        self.starts = record_starts(rows)
        self.ends = np.append(self.starts[1:], count) - 1
        lengths = self.ends - self.starts + 1
        self._places = np.arange(count)
        first_gaps = np.minimum.reduceat(np.where(gap, self._places, count), self.starts)
        self.last_applied = np.minimum(first_gaps, self.ends)
        starts = life_starts(self.starts, hard_delete)
        self.first_applied = starts[np.searchsorted(starts, self.last_applied, "right") - 1]
        after, through = np.repeat(self.first_applied, lengths), np.repeat(self.last_applied, lengths)
        self.applied = (after <= self._places) & (self._places <= through)

    def latest(self, times: pa.Array, chosen: Numbers) -> pa.Array:
        """Return, for each record, the latest time in its applied rows that are ``chosen``; null if there is none."""
        never = np.iinfo(np.int64).min
        numbers = pa.compute.fill_null(times.cast(pa.int64()), never).to_numpy(zero_copy_only=False)
        latest = np.maximum.reduceat(np.where(chosen & self.applied, numbers, never), self.starts)
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


def has_operation(rows: pa.RecordBatch, operation: str) -> Numbers:
    """Return a mask of the change rows with this operation."""
    return is_true(pa.compute.equal(rows["_operation"], operation))


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
