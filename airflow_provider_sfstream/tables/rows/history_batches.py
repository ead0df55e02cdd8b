"""Executor functions that turn the changes of a record, and its previous row, into the versions that they end.

A step is the record's row (operation ``base``) or one change of it. The state after each step is the previous state
with the columns that the step sets, so each column is carried forward within a record; the next step ends the version.
The number of steps and batches is unlimited: the last state of a batch is the ``base`` of the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.tables.decode.arrow_columns import arrow_schema, arrow_type, as_table, record_batch
from airflow_provider_sfstream.tables.job_config import Deletes
from airflow_provider_sfstream.tables.rows.arrow_rows import Numbers, as_batch, is_true
from airflow_provider_sfstream.tables.rows.change_fold import (
    has_operation,
    life_starts,
    record_starts,
    set_array,
    set_words,
    sets_column,
)
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows
from airflow_provider_sfstream.tables.rows.merging import Columns, is_stopped, is_unknown, later
from airflow_provider_sfstream.tables.rows.replica_columns import CHANGE_ENVELOPE

STEP_ENVELOPE: Columns = CHANGE_ENVELOPE | {"_deleted": "boolean", "_refreshed_at": "timestamp"}
"""Columns of a step before the record's own. A ``base`` sets all columns; ``_deleted`` and ``_refreshed_at`` are null
in a change."""

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


def step_schema(columns: Columns) -> pa.Schema:
    """Return the Arrow schema of the steps of a table with these columns."""
    return arrow_schema({**STEP_ENVELOPE, **columns})


def version_schema(columns: Columns) -> pa.Schema:
    """Return the Arrow schema of the versions of a table with these columns."""
    return arrow_schema({**VERSION_ENVELOPE, **columns})


def ended_by_changes(
    base: Sequence[pa.RecordBatch], changes: pa.RecordBatch, columns: Columns, deletes: Deletes, at_once: int = 1 << 14
) -> Iterator[pa.RecordBatch]:
    """Yield the versions that changes end: previous rows to which a change applies, and all states in between.

    A change applies under the same rules as for the table. With hard deletes, a record has no version while it is
    deleted, and later versions are those of a record that was never seen before.

    :param base: rows of the changed records in the table before the changes.
    :param changes: change rows, sorted by ``Id`` and ``_sequence``; seen ones are marked.
    :param columns: the record's columns, in the order of the bits of ``_set``.
    :param at_once: number of steps to process at a time, regardless of the number of steps of a record.
    """
    schema = step_schema(columns)
    steps = pa.Table.from_batches([*(_base_steps(rows, schema) for rows in base), as_table(changes, schema)])
    is_change = pc.not_equal(steps["_operation"], "base").cast(pa.int8())
    order = steps.select(["Id", "_sequence"]).append_column("is_change", is_change)
    steps = steps.take(pc.sort_indices(order, [(name, "ascending") for name in ("Id", "is_change", "_sequence")]))
    last: pa.RecordBatch | None = None
    for batch in steps.combine_chunks().to_batches(max_chunksize=at_once):
        if last is not None:
            batch = as_batch(pa.Table.from_batches([last, batch]))
        states = states_after(batch, columns, deletes)
        yield _ended_versions(states, columns, deletes)
        last = states.take(pa.array([len(states) - 1]))


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


def _base_steps(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of a table as steps."""
    count, words = len(rows), -(-(len(schema) - len(STEP_ENVELOPE)) // 64)
    computed = {
        "_operation": pa.array(["base"]).take(pa.array(np.zeros(count, np.int32))),
        "_set": set_array(np.full((count, words), -1, np.int64)),
    }
    return record_batch(dict(zip(rows.schema.names, rows.columns, strict=True)) | computed, schema, count)


def states_after(steps: pa.RecordBatch, columns: Columns, deletes: Deletes) -> pa.RecordBatch:
    """Return, as bases, the state of the record after each step that applies."""
    steps = _applied(steps)
    base, full, delete, gap = (has_operation(steps, name) for name in ("base", "full", "delete", "gap"))
    starts = record_starts(steps)
    if deletes == "hard":
        starts = life_starts(starts, delete | is_true(steps.column("_deleted")))
    count, words = len(steps), set_words(steps.column("_set"), len(columns))
    words[gap] = 0
    states = _Carried(starts, count)
    is_known = states.last((base & ~_numpy(is_unknown(steps.column("_dirty_reason")))) | full) >= 0
    reason = pc.coalesce(steps.column("_dirty_reason"), pa.scalar("gap"))
    unknown = pa.array(np.full(count, "unknown_record", object), pa.string(), mask=is_known)
    deleted = pc.if_else(pa.array(delete), True, pc.coalesce(steps.column("_deleted"), False))
    values = {name: steps.column(name) for name in steps.schema.names} | {
        "_operation": pa.array(np.full(count, "base", object), pa.string()),
        "_deleted": pc.coalesce(states.carry(deleted, base | full | delete), False),
        "_dirty_reason": pc.if_else(
            pa.array(base), steps.column("_dirty_reason"), pc.if_else(pa.array(gap), reason, unknown)
        ),
        "_set": set_array(np.full_like(words, -1)),
        "_commit_time": states.latest(steps.column("_commit_time")),
        "_refreshed_at": states.carry(steps.column("_refreshed_at"), base),
    }
    for number, name in enumerate(columns):
        values[name] = states.carry(steps.column(name), sets_column(words, number))
    return record_batch(values, step_schema(columns), count)


def _applied(steps: pa.RecordBatch) -> pa.RecordBatch:
    """Return the steps that apply: bases, and the changes that their row does not have already, up to the first gap.

    The sequence of each is that of the last step that its state has seen, applied or not, as in the rows of a table.
    """
    count, starts = len(steps), record_starts(steps)
    lengths = np.diff(np.append(starts, count))
    base, places = has_operation(steps, "base"), np.arange(count)
    no_sequence = np.iinfo(np.int64).min
    sequences = _numpy(pc.fill_null(steps.column("_sequence"), no_sequence))
    of_base = np.repeat(np.where(base, sequences, no_sequence)[starts], lengths)
    stopped = np.repeat((base & _numpy(is_stopped(steps.column("_dirty_reason"))))[starts], lengths)
    unseen = ~base & (sequences > of_base) & ~stopped & ~has_operation(steps, "seen")
    gaps = np.where(unseen & has_operation(steps, "gap"), places, count)
    first_gap = np.repeat(np.minimum.reduceat(gaps, starts), lengths)
    applied = np.flatnonzero(base | (unseen & (places <= first_gap)))
    # The first step of each record applies, so the steps before the next applied one belong to the same record.
    last_seen = np.maximum.reduceat(sequences, applied)
    number = steps.schema.get_field_index("_sequence")
    values = pa.array(last_seen, mask=last_seen == no_sequence)
    return steps.take(pa.array(applied)).set_column(number, steps.schema.field(number), values)


class _Carried:
    """Values carried forward within groups of adjacent steps."""

    def __init__(self, starts: Numbers, count: int) -> None:
        lengths = np.diff(np.append(starts, count))
        self._places = np.arange(count)
        self._starts = np.repeat(starts, lengths)
        self._groups = np.repeat(np.arange(len(starts)), lengths)

    def last(self, chosen: Numbers) -> Numbers:
        """Return the index of the last ``chosen`` step of the same group so far, -1 if there is none."""
        places: Numbers = np.maximum.accumulate(np.where(chosen, self._places, -1))
        return np.where(places < self._starts, -1, places)

    def carry(self, column: pa.Array, chosen: Numbers) -> pa.Array:
        """Return the value of the last ``chosen`` step so far; null if there is none."""
        places = self.last(chosen)
        return column.take(pa.array(places, mask=places < 0))

    def latest(self, times: pa.Array) -> pa.Array:
        """Return the latest of the times so far."""
        no_time, count = np.iinfo(np.int64).min, len(times)
        numbers = pc.fill_null(times.cast(pa.int64()), no_time).to_numpy(zero_copy_only=False)
        order = np.argsort(numbers, kind="stable")
        ranks = np.empty(count, np.int64)
        ranks[order] = self._places
        # Ranks of later groups are all higher, so no group takes a time from an earlier one.
        latest = numbers[order[np.maximum.accumulate(ranks + self._groups * count) - self._groups * count]]
        return pa.array(latest, pa.int64(), mask=latest == no_time).cast(times.type)


def _ended_versions(states: pa.RecordBatch, columns: Columns, deletes: Deletes) -> pa.RecordBatch:
    """Return the versions among these states that another state of the same record ends."""
    ids, count = states.column("Id"), len(states)
    is_ended = np.append(pc.equal(ids.slice(1), ids.slice(0, count - 1)).to_numpy(zero_copy_only=False), False)
    if deletes == "hard":  # a deleted record has no row, hence no version
        is_ended &= ~is_true(states.column("_deleted"))
    places = np.flatnonzero(is_ended)
    return _versions(states.take(pa.array(places)), _begins(states).take(pa.array(places + 1)), columns)


def _numpy(column: pa.Array) -> Numbers:
    return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
