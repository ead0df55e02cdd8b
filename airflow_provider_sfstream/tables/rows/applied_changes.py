"""Executor functions that apply the changes of records, in order, to their rows in a table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.tables.decode.arrow_columns import record_batch
from airflow_provider_sfstream.tables.job_config import Deletes
from airflow_provider_sfstream.tables.rows.arrow_rows import Numbers, is_true, is_valid
from airflow_provider_sfstream.tables.rows.replica_columns import TABLE_ENVELOPE

_WORD = 64
"""Bits in an element of ``_set``."""
_NULL = np.iinfo(np.int64).min
"""Null in an array of numbers."""


class AppliedChanges:
    """Steps of records: each row of a table, followed by the changes of its record that apply.

    1. A change that the row has already seen does not apply: processing a window twice is harmless.
    2. Nor does a change of a dirty row, or one that was committed before the record was fetched: the row only records
       that it has seen it. A row that is dirty because its record was never seen whole (``unknown_record``) takes
       changes as a clean one does.
    3. Otherwise the row takes the columns that the change sets. The row is dirty after a gap, and until one of its
       changes has the whole record.
    4. With hard deletes, a record has no row after its delete. A later change creates a new row, even if it was
       committed before the deleted row was fetched.

    :param base: rows of the table; null for records without a row.
    :param changes: change rows of these records in the same order, those of a record sorted by ``_sequence``.
    """

    def __init__(self, base: pa.RecordBatch, changes: pa.RecordBatch, deletes: Deletes) -> None:
        count = len(base)
        records = np.concatenate([np.arange(count), np.repeat(np.arange(count), record_lengths(changes))])
        self._base, self._changes, self._order = base, changes, np.argsort(records, kind="stable")
        records, is_base, places = records[self._order], self._order < count, np.arange(len(records))
        starts, delete, sequences = np.flatnonzero(is_base), self._has("delete"), self._numbers("_sequence")
        is_unknown = is_true(pc.equal(base["_dirty_reason"], "unknown_record"))
        is_stopped = is_valid(base["_dirty_reason"]) & ~is_unknown
        unseen = ~is_base & (sequences > sequences[starts][records]) & ~is_stopped[records]
        # Compare each change separately: commit times need not be in order.
        is_fetched = self._numbers("_commit_time") < _numbers(base["_refreshed_at"])[records]
        if deletes == "hard":
            deleted = unseen & delete & ~is_fetched
            deletes_before = np.cumsum(deleted) - deleted
            is_fetched &= deletes_before == deletes_before[starts][records]
        applies = unseen & ~is_fetched
        gaps = np.where(applies & self._has("gap"), places, len(places))
        applied = np.flatnonzero(is_base | (applies & (places <= np.minimum.reduceat(gaps, starts)[records])))
        # The first step of each record is its row, so the changes before the next step belong to the same record.
        self._sequences = np.maximum.reduceat(sequences, applied)
        self._order, self._places, self._is_base = self._order[applied], np.arange(len(applied)), is_base[applied]
        self.is_gone = delete[applied] & (deletes == "hard")
        """Mask of the steps after which the record has no row."""
        ended = self.is_gone.copy()
        ended[self._is_base] = ~is_valid(base["Id"]) | (is_true(base["_deleted"]) & (deletes == "hard"))
        begins = self._is_base | np.append(False, ended[:-1])
        self._lives = np.cumsum(begins)
        self._begins = np.flatnonzero(begins)[self._lives - 1]
        is_known = self._has("full")
        is_known[self._is_base] = ~is_unknown
        self._is_known = self._last(is_known) >= 0

    @property
    def last_steps(self) -> Numbers:
        """Index of the last step of each record."""
        return np.append(np.flatnonzero(self._is_base)[1:], len(self._places)) - 1

    def rows(self, *, last_only: bool = False) -> pa.RecordBatch:
        """Return the row after each step; with ``last_only``, after the last step of each record."""
        steps = self.last_steps if last_only else self._places
        gap, delete, full = (self._has(operation) for operation in ("gap", "delete", "full"))
        times = self._changes["_commit_time"]
        reason = self._values("_dirty_reason", steps)
        unknown = pa.array(np.full(len(steps), "unknown_record", object), pa.string(), mask=self._is_known[steps])
        gap_reason = pc.if_else(pa.array(gap[steps]), pc.coalesce(reason, "gap"), unknown)
        reason = pc.if_else(pa.array(self._is_base[steps]), reason, gap_reason)
        since = np.where(self._is_base | gap, self._places, self._begins)[steps]
        deleted = self._last(self._is_base | full | delete)[steps]
        values = {name: self._values(name, steps) for name in ("Id", "_replay_id", "_transaction_key")} | {
            "_deleted": pc.fill_null(self._values("_deleted", deleted, _is(self._changes, "delete")), False),
            "_dirty": reason.is_valid(),
            "_dirty_since": pc.if_else(
                reason.is_valid(), self._values("_dirty_since", since, times), pa.scalar(None, times.type)
            ),
            "_dirty_reason": reason,
            "_commit_time": self._values("_commit_time", self._latest()[steps]),
            "_sequence": pa.array(self._sequences[steps], mask=self._sequences[steps] == _NULL),
            "_refreshed_at": self._values("_refreshed_at", self._begins[steps], pa.nulls(len(times), times.type)),
        }
        columns = self._base.schema.names[len(TABLE_ENVELOPE) :]
        words = set_words(self._changes["_set"], len(columns))
        words[_is(self._changes, "gap").to_numpy(zero_copy_only=False)] = 0
        words = np.concatenate([np.full((len(self._base), words.shape[1]), -1), words])[self._order]
        for number, name in enumerate(columns):
            values[name] = self._values(name, self._last(sets_column(words, number))[steps])
        return record_batch(values, self._base.schema, len(steps))

    def _values(self, name: str, steps: Numbers, of_changes: pa.Array | None = None) -> pa.Array:
        """Return the values of a column in some steps; null where a step is -1.

        :param of_changes: values of the changes, if the column is not theirs.
        """
        places, former = self._order[steps], self._base[name]
        if len(places) == len(former) and (steps >= 0).all() and (places == np.arange(len(former))).all():
            return former
        column = pa.concat_arrays([former, self._changes[name] if of_changes is None else of_changes])
        return column.take(pa.array(places, mask=steps < 0))

    def _has(self, operation: str) -> Numbers:
        """Return a mask of the steps that are changes with this operation."""
        is_operation = _is(self._changes, operation).to_numpy(zero_copy_only=False)
        return np.append(np.zeros(len(self._base), bool), is_operation)[self._order]

    def _numbers(self, name: str) -> Numbers:
        """Return the values of a column of numbers or times in all steps."""
        return np.append(_numbers(self._base[name]), _numbers(self._changes[name]))[self._order]

    def _last(self, chosen: Numbers) -> Numbers:
        """Return for each step the last ``chosen`` step so far in the life of the row, -1 if there is none."""
        places: Numbers = np.maximum.accumulate(np.where(chosen, self._places, -1))
        return np.where(places < self._begins, -1, places)

    def _latest(self) -> Numbers:
        """Return for each step the one with the latest commit time so far in the life of the row."""
        order, count = np.argsort(self._numbers("_commit_time"), kind="stable"), len(self._places)
        ranks = np.empty(count, np.int64)
        ranks[order] = self._places
        # Ranks in later lives are all higher, so no life takes a time from an earlier one.
        steps: Numbers = order[np.maximum.accumulate(ranks + self._lives * count) - self._lives * count]
        return steps


def record_lengths(changes: pa.RecordBatch) -> Numbers:
    """Return the number of changes of each record; all changes of a record are adjacent."""
    ends: Numbers = pc.run_end_encode(changes["Id"]).run_ends.to_numpy()
    return np.diff(ends, prepend=0)


def _is(changes: pa.RecordBatch, operation: str) -> pa.BooleanArray:
    return pc.equal(changes["_operation"], operation)


def _numbers(column: pa.Array) -> Numbers:
    return pc.fill_null(column.cast(pa.int64()), _NULL).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


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
