"""What runs in tasks: a piece of a table is read, merged with what came for it, and written anew.

A row group, and some of what came for the piece, is held at a time, whatever the size of the table and of the run. The
files of a task that fails stay unnamed, so that they are never used.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from airflow_provider_sfstream.tables.delta.table_files import TableFileWriter
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.job_config import Deletes
from airflow_provider_sfstream.tables.replica.pieces import TARGET_BYTES, Piece, parts, quantiles
from airflow_provider_sfstream.tables.replica.quarantine import QuarantinePlan, write_quarantine
from airflow_provider_sfstream.tables.rows.change_fold import fold, follows_delete, is_true
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows
from airflow_provider_sfstream.tables.rows.history_batches import ended_by_changes, ended_by_refresh, version_schema
from airflow_provider_sfstream.tables.rows.merging import ChangesMerge, Merge, RefreshMerge, as_table, table_schema
from airflow_provider_sfstream.tables.rows.routing import combined, pieces_of
from airflow_provider_sfstream.tables.rows.spool import Parcels, unpacked

REWRITTEN = pa.schema(
    [
        ("piece", pa.int32()),
        ("is_history", pa.bool_()),
        ("path", pa.string()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        ("stats", pa.string()),
        ("dirty", pa.int64()),
        ("deleted", pa.int64()),
        ("counts", pa.binary()),
    ]
)
"""What a task tells: each file that it wrote, and how many of its rows are dirty, and of deleted records. A piece that
was rewritten and has no row left gives a line without a path. Of records that were fetched one line has ``counts``, as
JSON: rows whose record is ``gone``, the ``latest`` ``_refreshed_at`` (microseconds), and the records that were merged
(``incoming``). The lines of other counts have what came as such."""
MOST_BYTES = 48 << 20
"""Bytes of incoming rows, as Arrow has them, that a task holds at a time: it needs some four times as much to fold and
merge them, beside what Python and its libraries take."""
_COMPRESSED = 0.3
"""Bytes in a file for a byte of Arrow columns, where nothing better is known; it decides how large files are."""


@dataclass(frozen=True)
class HistoryPlan:
    """Where the versions that a rewrite ends are written.

    :param gone_at: when the version of a row ends that a refresh drops, microseconds since the epoch; ``None`` for
        changes.
    """

    location: TableLocation
    deletes: Deletes
    gone_at: int | None = None


@dataclass(frozen=True)
class Rewriting:
    """How pieces of a table are rewritten.

    :param incoming: the schema of the rows that come: change rows, which are folded first if ``are_changes``; else
        there is one for each id.
    :param may_be_seen: whether records may have been fetched after some of the changes were committed.
    :param everything: whether the new rows of records are wanted too for which nothing came.
    :param only_differing: columns, of which a record has to have another value than its row; ``None``: all records that
        come are merged.
    :param target: bytes of a file.
    :param most_bytes: bytes of incoming rows that are held at a time.
    """

    location: TableLocation
    pieces: tuple[Piece, ...]
    merge: Merge
    incoming: pa.Schema
    are_changes: bool
    may_be_seen: bool = False
    everything: bool = False
    history: HistoryPlan | None = None
    only_differing: tuple[str, ...] | None = None
    target: int = TARGET_BYTES
    most_bytes: int = MOST_BYTES


def rewritten(plans: Sequence[Rewriting], quarantine: QuarantinePlan | None = None) -> Rows:
    """Return a function for ``mapInArrow`` that takes parcels, and gives :data:`REWRITTEN`.

    All parcels of a piece must come to one task. Pieces are numbered through all plans. The parcels of the piece after
    the last one are rows of the quarantine, and those of the next one are counts, which are given as they came.
    """
    pieces = [(plan, piece) for plan in plans for piece in plan.pieces]

    def rows(batches: Batches) -> Batches:
        _release()
        pa.set_io_thread_count(1)  # each keeps memory of its own, and a row group is one read
        with Parcels() as parcels:
            for batch in batches:
                parcels.add(batch)
            for number in parcels.pieces():
                lines: Iterable[dict[str, Any]] = ({"counts": bytes(content)} for content in parcels.read(number))
                if number < len(pieces):
                    lines = _rewrite(*pieces[number], number, parcels)
                elif number == len(pieces) and quarantine is not None:
                    lines = write_quarantine(quarantine, parcels.read(number))
                told = [{"piece": number, **line} for line in lines]
                parcels.forget(number)
                _release()
                yield pa.RecordBatch.from_pylist(told, schema=REWRITTEN)

    return rows


def _rewrite(plan: Rewriting, piece: Piece, number: int, parcels: Parcels) -> Iterator[dict[str, Any]]:
    for part, tables in parts_of(piece, number, parcels, plan.most_bytes):
        yield from _Rewrite(plan, part, tables).run()


def parts_of(piece: Piece, number: int, parcels: Parcels, most_bytes: int) -> Iterator[tuple[Piece, list[pa.Table]]]:
    """Yield a piece with the rows that came for it: as a whole or, if these are more than memory has room for, one
    range of ids after another.

    :param number: of the piece.
    """
    count = -(-parcels.size(number) // most_bytes)
    if count <= 1:
        tables = [unpacked(content) for content in parcels.read(number)]
        parcels.forget(number)
        yield piece, tables
        return
    ids = pa.concat_tables(unpacked(content, ["Id"]) for content in parcels.read(number))["Id"]
    ends = quantiles(sorted(pc.unique(ids).to_pylist()), count)
    for after, through in pairwise([piece.after, *ends, piece.through]):
        parts = (unpacked(content) for content in parcels.read(number))
        tables = [rows.filter(is_between(rows["Id"], after, through)) for rows in parts]
        yield replace(piece, after=after, through=through, is_shared=True), tables


class _Rewrite:
    """The rewrite of one piece."""

    def __init__(self, plan: Rewriting, piece: Piece, incoming: list[pa.Table]) -> None:
        self._plan, self._piece = plan, piece
        self._schema = table_schema(plan.merge.columns)
        self._files = plan.location.filesystem()
        order = ["Id", "_sequence"] if plan.are_changes else []
        rows = combined(plan.incoming, [plan.incoming.empty_table(), *incoming], order)
        incoming.clear()
        deletes: Deletes = plan.merge.deletes if isinstance(plan.merge, ChangesMerge) else "soft"
        rows = self._without_seen(rows, deletes) if plan.are_changes else each_once(rows)
        self._latest = _latest(rows)
        rows = self._differing(rows) if plan.only_differing is not None else rows
        self._gone = 0
        self._change = fold(rows, plan.merge.columns, deletes) if plan.are_changes else rows
        self._incoming = None if plan.history is None else rows
        self._met = np.zeros(len(self._change), bool)
        del rows
        _release()  # many changes of few records become few rows

    def run(self) -> list[dict[str, Any]]:
        """Return the lines of :data:`REWRITTEN`; none if the piece stays as it is."""
        if not (len(self._change) or self._plan.everything or self._piece.is_shared):
            return self._counts()
        output = _Output(self._files, self._schema, self._ends())
        history = _History(self._plan)
        try:
            for rows in self._rows():
                output.append(self._merged(rows, history))
                del rows
            output.append(self._new())
            return [*output.close(), *history.close(self._incoming), *self._counts()]
        except BaseException:
            output.abandon()
            history.abandon()
            raise

    def _counts(self) -> list[dict[str, Any]]:
        """Return the line with the counts of records that were fetched."""
        if self._plan.are_changes:
            return []
        counts = {"gone": self._gone, "latest": self._latest, "incoming": len(self._change)}
        return [{"counts": json.dumps(counts).encode()}]

    def _differing(self, images: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records as fetched whose row has another value in one of some columns."""
        names = list(self._plan.only_differing or ())
        stored = self._stored(["Id", *names])
        at = pc.index_in(images["Id"], value_set=stored["Id"])
        images = images.filter(at.is_valid())
        rows = stored.take(at.drop_null())
        return images.filter(pc.invert(are_equal(rows, images, names)))

    def _without_seen(self, changes: pa.RecordBatch, deletes: Deletes) -> pa.RecordBatch:
        """Return the changes with those marked as seen that the record as fetched has.

        With hard deletes, a delete that it does not have ends the row, so that what follows has to be applied.
        """
        if not (self._plan.may_be_seen and self._piece.files and len(changes)):
            return changes
        fetched = self._stored(["Id", "_refreshed_at"])
        at = fetched["_refreshed_at"].take(pc.index_in(changes["Id"], value_set=fetched["Id"]))
        # Each is judged by itself, whatever the order of commit times is.
        seen = is_true(pc.less(changes["_commit_time"], at))
        if deletes == "hard":
            seen &= ~follows_delete(changes, ~seen & is_true(pc.equal(changes["_operation"], "delete")))
        operation = pc.if_else(pa.array(seen), "seen", changes["_operation"])
        return changes.set_column(changes.schema.get_field_index("_operation"), "_operation", operation)

    def _ends(self) -> list[str]:
        """Return the ids at which the piece's rows are divided into files."""
        stored, incoming = sum(file.rows for file in self._piece.files), len(self._change)
        if stored > incoming:
            row = sum(file.size for file in self._piece.files) / stored
        else:
            row = self._change.nbytes * _COMPRESSED / max(incoming, 1)
        if parts((stored + incoming) * row, stored + incoming, self._plan.target) == 1:
            return []
        ids = set(self._change["Id"].to_pylist())
        for rows in self._rows(["Id"]):
            ids.update(rows["Id"].to_pylist())
        return quantiles(sorted(ids), parts(len(ids) * row, len(ids), self._plan.target))

    def _rows(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the piece's rows, a row group at a time, with all columns or some."""
        piece = self._piece
        schema = self._schema if columns is None else pa.schema([self._schema.field(name) for name in columns])
        for file in piece.files:
            with self._files.open_input_file(file.path) as source:
                stored = pa.parquet.ParquetFile(source, pre_buffer=True)
                for number in range(stored.num_row_groups):
                    rows = as_table(_batch(stored.read_row_group(number, columns, use_threads=False)), schema)
                    if piece.is_shared:
                        rows = rows.filter(is_between(rows["Id"], piece.after, piece.through))
                    if len(rows):
                        yield rows
                    del rows  # before the next are read

    def _stored(self, columns: list[str]) -> pa.RecordBatch:
        schema = pa.schema([self._schema.field(name) for name in columns])
        return _batch(pa.Table.from_batches(self._rows(columns), schema))

    def _merged(self, rows: pa.RecordBatch, history: _History) -> pa.RecordBatch:
        """Return a row group's new rows."""
        if not (len(self._change) or self._plan.everything):
            return rows
        places = pc.index_in(rows["Id"], value_set=self._change["Id"])
        chosen = pa.array(np.ones(len(rows), bool)) if self._plan.everything else places.is_valid()
        if not pc.any(chosen).as_py():
            return rows
        places = places.filter(chosen)
        self._met[places.drop_null().to_numpy()] = True
        base = rows.filter(chosen)
        if isinstance(self._plan.merge, RefreshMerge):
            self._gone += _count(self._plan.merge.gone(base, self._change.take(places)))
        new, dropped = self._plan.merge(base, self._change.take(places))
        history.note(base, new, dropped)
        kept = pc.invert(dropped)
        if len(base) == len(rows):
            return new.filter(kept)
        stays = pc.replace_with_mask(pa.array(np.ones(len(rows), bool)), chosen, kept)
        rows = _replaced(rows, chosen, new)
        return rows if pc.all(stays).as_py() else rows.filter(stays)

    def _new(self) -> pa.RecordBatch:
        """Return rows for the records that had none."""
        change = self._change.filter(pa.array(~self._met))
        base = pa.RecordBatch.from_arrays(
            [pa.nulls(len(change), each.type) for each in self._schema], schema=self._schema
        )
        new, dropped = self._plan.merge(base, change)
        return new.filter(pc.invert(dropped))


class _Output:
    """The piece's new files, divided at some ids."""

    def __init__(
        self, filesystem: Any, schema: pa.Schema, ends: Sequence[str] = (), *, is_history: bool = False
    ) -> None:
        self._filesystem, self._schema, self._ends, self._is_history = filesystem, schema, ends, is_history
        self._writers: dict[int, TableFileWriter] = {}
        self._counts: dict[int, tuple[int, int]] = {}

    def append(self, rows: pa.RecordBatch) -> None:
        """Add rows to the files that they belong to."""
        if not self._ends:
            self._append(0, rows)
            return
        numbers = pieces_of(rows["Id"], self._ends)
        for number in np.unique(numbers):
            self._append(int(number), rows.filter(pa.array(numbers == number)))

    def close(self) -> list[dict[str, Any]]:
        """Return a line for each file, one without a path if there is none."""
        lines = []
        for number, writer in sorted(self._writers.items()):
            file = writer.close()
            dirty, deleted = self._counts[number]
            line = {"path": file.path, "size": file.size, "rows": file.rows, "stats": file.stats}
            lines.append({**line, "is_history": self._is_history, "dirty": dirty, "deleted": deleted})
        return lines or ([] if self._is_history else [{"is_history": False, "rows": 0, "dirty": 0, "deleted": 0}])

    def abandon(self) -> None:
        """End files that nobody will name."""
        for writer in self._writers.values():
            writer.abandon()

    def _append(self, number: int, rows: pa.RecordBatch) -> None:
        if not len(rows):
            return
        if number not in self._writers:
            path = f"part-{uuid.uuid4().hex}.parquet"
            self._writers[number] = TableFileWriter(self._filesystem, path, self._schema)
        self._writers[number].append(rows)
        dirty, deleted = self._counts.get(number, (0, 0))
        self._counts[number] = dirty + _count(rows["_dirty"]), deleted + _count(rows["_deleted"])


class _History:
    """The versions that end with a rewrite."""

    def __init__(self, plan: Rewriting) -> None:
        self._columns, self._history = plan.merge.columns, plan.history
        self._bases: list[pa.RecordBatch] = []
        if plan.history is not None:
            self._output = _Output(plan.history.location.filesystem(), version_schema(self._columns), is_history=True)

    def note(self, base: pa.RecordBatch, new: pa.RecordBatch, dropped: pa.BooleanArray) -> None:
        """Take note of rows, as they were and as they become."""
        if self._history is None:
            return
        if self._history.gone_at is None:
            self._bases.append(base)  # no more rows than changes
        else:
            self._output.append(ended_by_refresh(base, new, dropped, self._columns, self._history.gone_at))

    def close(self, changes: pa.RecordBatch | None) -> list[dict[str, Any]]:
        """Return the lines of the files, when all rows were noted.

        :param changes: all that came; ``None`` without a history.
        """
        if self._history is None:
            return []
        if self._history.gone_at is None and changes is not None and len(changes):
            for ended in ended_by_changes(self._bases, changes, self._columns, self._history.deletes):
                self._output.append(ended)
        return self._output.close()

    def abandon(self) -> None:
        """End files that nobody will name."""
        if self._history is not None:
            self._output.abandon()


def each_once(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return one row of each id."""
    ids = pc.unique(rows["Id"])
    return rows if len(ids) == len(rows) else rows.take(pc.index_in(ids, value_set=rows["Id"]))


def are_equal(one: pa.RecordBatch, other: pa.RecordBatch, names: Iterable[str]) -> pa.BooleanArray:
    """Return which rows have the same values in some columns; null is equal to null. Columns with structs and lists,
    which no query gives, are equal if both are null."""
    equal = pa.array(np.ones(len(one), bool))
    for name in names:
        both_null = pc.and_(one[name].is_null(), other[name].is_null())
        if not pa.types.is_nested(one[name].type):
            both_null = pc.or_(both_null, pc.fill_null(pc.equal(one[name], other[name]), False))
        equal = pc.and_(equal, both_null)
    return equal


def _latest(rows: pa.RecordBatch) -> int | None:
    """Return the latest time of ``_refreshed_at`` (microseconds since the epoch); ``None`` if there is none."""
    if "_refreshed_at" not in rows.schema.names:
        return None
    return pc.max(rows["_refreshed_at"].cast(pa.int64())).as_py()  # type: ignore[no-any-return]


def _replaced(rows: pa.RecordBatch, chosen: pa.BooleanArray, new: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with those ``chosen`` replaced by ``new``, in their order."""
    places = np.arange(len(rows))
    places[chosen.to_numpy(zero_copy_only=False)] = len(rows) + np.arange(len(new))
    order, arrays = pa.array(places), []
    for former, value in zip(rows.columns, new.columns, strict=True):
        if pa.types.is_nested(former.type):  # which that function does not know
            arrays.append(pa.concat_arrays([former, value]).take(order))
        else:
            arrays.append(pc.replace_with_mask(former, chosen, value))
    return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)


def is_between(ids: pa.Array, after: str | None, through: str | None) -> pa.BooleanArray:
    chosen = pa.array(np.ones(len(ids), bool)) if after is None else pc.greater(ids, after)
    return chosen if through is None else pc.and_(chosen, pc.less_equal(ids, through))


def _batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _release() -> None:
    """Give back what was freed, where Arrow's memory is in a pool that keeps it."""
    pa.default_memory_pool().release_unused()


def _count(column: pa.BooleanArray) -> int:
    return int(pc.sum(column).as_py() or 0)
