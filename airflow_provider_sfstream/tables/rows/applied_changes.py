"""Executor functions that apply the changes of records, in order, to their rows in a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.tables.decode.arrow_columns import record_batch
from airflow_provider_sfstream.tables.job_config import Deletes
from airflow_provider_sfstream.tables.rows.arrow_rows import Numbers, is_true, is_valid
from airflow_provider_sfstream.tables.rows.replica_columns import OPERATIONS, TABLE_ENVELOPE

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
        operations = pc.index_in(changes["_operation"], value_set=pa.array(OPERATIONS)).to_numpy()
        self._operations = np.append(np.full(count, -1), operations)
        records, is_base, places = records[self._order], self._order < count, np.arange(len(records))
        starts, delete, sequences = np.flatnonzero(is_base), self._has("delete"), self._numbers("_sequence")
        is_unknown = is_true(pc.equal(base["_dirty_reason"], "unknown_record"))
        is_stopped = is_valid(base["_dirty_reason"]) & ~is_unknown
        unseen = ~is_base & (sequences > sequences[starts][records]) & ~is_stopped[records]
        # Compare each change separately: commit times need not be in order.
        is_fetched = self._numbers("_commit_time") < _numbers(base["_refreshed_at"])[records]
        if deletes == "hard":
            ends = unseen & (delete | is_true(base["_deleted"])[records]) & ~is_fetched
            ends_before = np.cumsum(ends) - ends
            is_fetched &= ends_before == ends_before[starts][records]
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
        base, changes, times = self._base, self._changes, self._changes["_commit_time"]
        gap, delete, full = (self._has(operation) for operation in ("gap", "delete", "full"))
        values = self._columns(["Id", "_replay_id", "_transaction_key", "_dirty_reason"], steps)
        reason = values["_dirty_reason"]
        unknown = pa.array(np.full(len(steps), "unknown_record", object), pa.string(), mask=self._is_known[steps])
        gap_reason = pc.if_else(pa.array(gap[steps]), pc.coalesce(reason, "gap"), unknown)
        reason = pc.if_else(pa.array(self._is_base[steps]), reason, gap_reason)
        since = self._chosen(
            base["_dirty_since"], times, np.where(self._is_base | gap, self._places, self._begins)[steps]
        )
        is_deleted = delete.copy()
        is_deleted[self._is_base] = is_true(base["_deleted"])
        deleted = self._last(self._is_base | full | delete)[steps]
        begins = self._begins[steps]
        values |= {
            "_deleted": pa.array((deleted >= 0) & is_deleted[deleted]),
            "_dirty": reason.is_valid(),
            "_dirty_since": pc.if_else(reason.is_valid(), since, pa.scalar(None, times.type)),
            "_dirty_reason": reason,
            "_commit_time": self._chosen(base["_commit_time"], times, self._latest()[steps]),
            "_sequence": pa.array(self._sequences[steps], mask=self._sequences[steps] == _NULL),
            "_refreshed_at": base["_refreshed_at"].take(pa.array(self._order[begins], mask=~self._is_base[begins])),
        }
        columns = base.schema.names[len(TABLE_ENVELOPE) :]
        words = set_words(changes["_set"], len(columns))
        words = np.concatenate([np.full((len(base), words.shape[1]), -1), words])[self._order]
        words[gap] = 0
        columns_by_mask: dict[bytes, list[str]] = {}  # most columns of a table are set by the same changes
        for number, name in enumerate(columns):
            columns_by_mask.setdefault(sets_column(words, number).tobytes(), []).append(name)
        for mask, names in columns_by_mask.items():
            values |= self._columns(names, self._last(np.frombuffer(mask, bool))[steps])
        return record_batch(values, base.schema, len(steps))

    def _columns(self, names: Sequence[str], steps: Numbers) -> dict[str, pa.Array]:
        """Return the values of columns in some steps; null where a step is -1."""
        base, changes, places = self._base.select(names), self._changes.select(names), self._order[steps]
        is_missing = steps < 0
        if not is_missing.any() and np.array_equal(places, np.arange(len(base))):
            columns = base.columns
        elif (is_missing | (places >= len(base))).all():
            columns = changes.take(pa.array(places - len(base), mask=is_missing)).columns
        else:
            columns = [self._chosen(*both, steps) for both in zip(base.columns, changes.columns, strict=True)]
        return dict(zip(names, columns, strict=True))

    def _chosen(self, base: pa.Array, changes: pa.Array, steps: Numbers) -> pa.Array:
        """Return the values of a column in some steps; null where a step is -1."""
        return pa.concat_arrays([base, changes]).take(pa.array(self._order[steps], mask=steps < 0))

    def _has(self, operation: str) -> Numbers:
        """Return a mask of the steps that are changes with this operation."""
        is_operation: Numbers = self._operations[self._order] == OPERATIONS.index(operation)
        return is_operation

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


def _numbers(column: pa.Array) -> Numbers:
    return pc.fill_null(column.view(pa.int64()), _NULL).to_numpy()  # type: ignore[no-any-return]


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
