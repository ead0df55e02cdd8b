"""Task side of a merge: read a file group of a table, merge it with its incoming rows, and write new files.

A task holds one row group and some of the incoming rows at a time, regardless of the size of the table and the run. The
files of a failed task are never named, so they are never used.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from airflow_provider_sfstream.tables.delta.table_files import write_rows
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.job_config import BATCH_BYTES
from airflow_provider_sfstream.tables.replica.config import TARGET_FILE_BYTES
from airflow_provider_sfstream.tables.replica.file_groups import FileGroup, divided_ids, parts, ranges_of, stored_rows
from airflow_provider_sfstream.tables.replica.rewritten_files import REWRITTEN, Output
from airflow_provider_sfstream.tables.rows.applied_changes import record_lengths
from airflow_provider_sfstream.tables.rows.arrow_rows import (
    are_equal,
    distinct,
    each_once,
    replaced,
    rows_at_once,
)
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows
from airflow_provider_sfstream.tables.rows.history_batches import ended_by_changes, ended_by_refresh, version_schema
from airflow_provider_sfstream.tables.rows.merging import ChangesMerge, ColumnsMerge, Merge, RefreshMerge, table_schema
from airflow_provider_sfstream.tables.rows.shuffle import (
    BLOCK,
    ShuffleBlocks,
    block,
    combined,
    release_memory,
    small_first,
    unpacked,
)

_STEPS = 3
"""Number of steps in which stored rows, or new records, of ``batch_bytes`` are merged."""
_COMPRESSED = 0.3
"""Estimated bytes in a file for a byte of Arrow columns, if no better estimate exists; determines file sizes."""
_LEAST_ROW = 8
"""Fewest bytes of an incoming row in Arrow: its ID alone has more."""
_COMPUTING = Lock()
"""Held by the thread that merges. Threads that merged few rows at the same time would pass Python's own lock to each
other at each call of Arrow, which takes a tenth of a run's time."""


@dataclass(frozen=True)
class RewritePlan:
    """Plan for rewriting file groups of a table.

    :param incoming: schema of the incoming rows.
    :param history: folder of the table of ended versions, if it has one.
    :param gone_at: for fetched records, end of the version of a dropped row (microseconds since the epoch).
    :param target: target size of a file, in bytes.
    :param batch_bytes: most bytes of incoming rows, in Arrow, that are held at a time. Merging them needs two to three
        times as much memory, in addition to a few row groups.
    """

    location: TableLocation
    file_groups: tuple[FileGroup, ...]
    merge: Merge
    incoming: pa.Schema
    history: TableLocation | None = None
    gone_at: int = 0
    target: int = TARGET_FILE_BYTES
    batch_bytes: int = BATCH_BYTES

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of the table."""
        return table_schema(self.merge.columns)

    @property
    def are_changes(self) -> bool:
        """True if the incoming rows are changes, any number for each ID; else there is one row for each ID."""
        return isinstance(self.merge, ChangesMerge)

    @property
    def everything(self) -> bool:
        """True if rows of the table without an incoming row are merged too: a full refresh has no line for a record
        that the org no longer has."""
        return isinstance(self.merge, RefreshMerge) and self.merge.is_full

    @property
    def only_differing(self) -> tuple[str, ...]:
        """Columns in which a record must differ from its row to be merged; none: all records are merged."""
        if isinstance(self.merge, ColumnsMerge) and self.merge.applied_sequence is None:
            return self.merge.fetched
        return ()


def rewritten(plans: Sequence[RewritePlan], quarantine: TableLocation | None = None) -> Rows:
    """Return a function for ``mapInArrow`` that merges packed rows and yields :data:`REWRITTEN`.

    All packed rows of a file group must arrive at one task. File groups are numbered through all plans. The group after
    the last one has the rows of the quarantine, and the next one has flags, which are yielded unchanged. Small groups
    are rewritten in parallel.
    """
    file_groups = [(plan, file_group) for plan in plans for file_group in plan.file_groups]

    def rows(batches: Batches) -> Batches:
        release_memory()
        pa.set_io_thread_count(1)  # each thread holds its own memory, and a row group is one read
        with ShuffleBlocks() as blocks:
            for batch in batches:
                blocks.add(batch)
            release_memory()

            def rewrite(number: int) -> list[dict[str, Any]]:
                lines: Iterable[dict[str, Any]] = ({"counts": bytes(content)} for content in blocks.read(number))
                if number < len(file_groups):
                    lines = _rewrite(*file_groups[number], number, blocks)
                elif number == len(file_groups) and quarantine is not None:
                    events = (batch for content in blocks.read(number) for batch in unpacked(content).to_batches())
                    lines = map(vars, write_rows(quarantine, events))
                lines_of_group = [{"file_group": number, **line} for line in lines]
                blocks.forget(number)
                return lines_of_group

            def size(number: int) -> int:
                return blocks.size(number) + (file_groups[number][1].size if number < len(file_groups) else 0)

            for lines_of_group in small_first(rewrite, blocks.file_groups(), size):
                yield pa.RecordBatch.from_pylist(lines_of_group, schema=REWRITTEN)

    return rows


def _rewrite(plan: RewritePlan, file_group: FileGroup, number: int, blocks: ShuffleBlocks) -> list[dict[str, Any]]:
    """Rewrite a file group; return the lines of :data:`REWRITTEN`, none if the group does not change."""
    if not plan.only_differing:
        return _merge(plan, file_group, number, blocks)
    with _differing(plan, file_group, number, blocks) as differing_blocks:
        return _merge(plan, file_group, number, differing_blocks)


def _merge(plan: RewritePlan, file_group: FileGroup, number: int, blocks: ShuffleBlocks) -> list[dict[str, Any]]:
    """Merge incoming rows into a file group, as :func:`_rewrite`: if they exceed ``batch_bytes``, one ID range after
    another into the same files."""
    if not (blocks.size(number) or plan.everything or file_group.is_shared):
        return []
    outputs = [Output(plan.location.filesystem(), plan.schema, _file_ends(plan, file_group, number, blocks))]
    if plan.history is not None:
        outputs.append(Output(plan.history.filesystem(), version_schema(plan.merge.columns), is_history=True))
    fetched: Counter[str] = Counter({"gone": 0, "incoming": 0})
    try:
        for part, tables in ranges_of(file_group, number, blocks, plan.batch_bytes):
            with _COMPUTING:
                records = _Range(plan, part, tables, *outputs)
            records.merge(fetched)
        counts = [] if plan.are_changes else [{"counts": json.dumps(fetched).encode()}]
        return [*(line for output in outputs for line in output.close()), *counts]
    except BaseException:
        for output in outputs:
            output.abandon()
        raise


def _differing(plan: RewritePlan, file_group: FileGroup, number: int, blocks: ShuffleBlocks) -> ShuffleBlocks:
    """Return the incoming records of a file group whose row has another value in some of the columns to compare."""
    differing_blocks, names = ShuffleBlocks(), list(plan.only_differing)
    # A block without rows, so that the file group has a size even if no record differs.
    differing_blocks.add(pa.RecordBatch.from_pylist([{"file_group": number}], schema=BLOCK))
    for part, tables in ranges_of(file_group, number, blocks, plan.batch_bytes):
        images = each_once(combined(plan.incoming, tables))
        for rows in _stored_rows(plan, part, ["Id", *names]):
            matching = images.filter(pc.is_in(images["Id"], value_set=rows["Id"]))
            stored = rows.take(pc.index_in(matching["Id"], value_set=rows["Id"]))
            changed = matching.filter(pc.invert(are_equal(stored, matching, names)))
            if len(changed):
                differing_blocks.add(block(number, changed))
    return differing_blocks


def _file_ends(plan: RewritePlan, file_group: FileGroup, number: int, blocks: ShuffleBlocks) -> list[str]:
    """Return the IDs at which the stored and the incoming rows of a file group are divided into files."""
    size, lengths = blocks.size(number), list[int]()
    stored_count = sum(file.rows for file in file_group.files)
    # The estimates below are never larger.
    if parts(2 * max(file_group.size, size), stored_count + size // _LEAST_ROW, plan.target) == 1:
        return []

    def id_columns() -> Iterator[pa.ChunkedArray]:
        for content in blocks.read(number):
            column = unpacked(content, ["Id"])["Id"]
            lengths.append(len(column))
            yield column

    incoming = distinct(id_columns())
    if stored_count > len(incoming):
        row_bytes = file_group.size / stored_count
    else:
        row_bytes = size / max(sum(lengths), 1) * _COMPRESSED
    rows = stored_count + len(incoming)
    if parts(rows * row_bytes, rows, plan.target) == 1:
        return []
    ids = distinct(chain([incoming], (rows["Id"] for rows in _stored_rows(plan, file_group, ["Id"]))))
    return divided_ids(ids, parts(len(ids) * row_bytes, len(ids), plan.target))


def _stored_rows(
    plan: RewritePlan, file_group: FileGroup, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the stored rows of a file group, one row group at a time, with all columns or some."""
    schema = plan.schema if columns is None else pa.schema([plan.schema.field(name) for name in columns])
    return stored_rows(plan.location, file_group, schema)


class _Range:
    """Records of one file group, or of an ID range in it, that are merged at a time."""

    def __init__(
        self,
        plan: RewritePlan,
        file_group: FileGroup,
        incoming: list[pa.Table],
        output: Output,
        history: Output | None = None,
    ) -> None:
        self._plan, self._file_group, self._output, self._history = plan, file_group, output, history
        rows = combined(plan.incoming, incoming, ["Id", "_sequence"] if plan.are_changes else [])
        self._rows = rows if plan.are_changes else each_once(rows)
        self._counts = record_lengths(self._rows)
        self._starts = np.cumsum(self._counts) - self._counts
        self._ids = self._rows["Id"].take(pa.array(self._starts))
        self._has_row = np.zeros(len(self._ids), bool)
        self._gone = 0

    def merge(self, fetched: Counter[str]) -> None:
        """Write the new rows and the ended versions; add this range to the counts of fetched records."""
        for rows in _stored_rows(self._plan, self._file_group):
            with _COMPUTING:
                at_once = rows_at_once(rows, self._plan.batch_bytes // _STEPS)
                for start in range(0, len(rows), at_once):
                    self._output.append(self._merged_rows(rows.slice(start, at_once)))
            del rows
        with _COMPUTING:
            for rows in self._new_rows():
                self._output.append(rows)
        fetched["gone"] += self._gone
        fetched["incoming"] += len(self._ids)

    def _merged_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the new rows that replace stored rows."""
        if not (len(self._ids) or self._plan.everything):
            return rows
        places = pc.index_in(rows["Id"], value_set=self._ids)
        chosen = pa.array(np.ones(len(rows), bool)) if self._plan.everything else places.is_valid()
        if not pc.any(chosen).as_py():
            return rows
        places = places.filter(chosen)
        self._has_row[places.drop_null().to_numpy()] = True
        base = rows.filter(chosen)
        if isinstance(self._plan.merge, RefreshMerge):
            self._gone += self._plan.merge.gone(base, self._incoming(places)).true_count
        new, dropped = self._merge(base, places)
        remains = pc.invert(dropped)
        if len(base) == len(rows):
            return new.filter(remains)
        retained = pc.replace_with_mask(pa.array(np.ones(len(rows), bool)), chosen, remains)
        rows = replaced(rows, chosen, new)
        return rows if pc.all(retained).as_py() else rows.filter(retained)

    def _new_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield rows for the records without a stored row."""
        places, schema = np.flatnonzero(~self._has_row), self._plan.schema
        at_once = rows_at_once(self._rows, self._plan.batch_bytes // _STEPS) if len(places) else 1
        for start in range(0, len(places), at_once):
            records = pa.array(places[start : start + at_once])
            base = pa.RecordBatch.from_arrays([pa.nulls(len(records), each.type) for each in schema], schema=schema)
            new, dropped = self._merge(base, records)
            yield new.filter(pc.invert(dropped)) if pc.any(dropped).as_py() else new

    def _merge(self, base: pa.RecordBatch, places: pa.Array) -> tuple[pa.RecordBatch, pa.BooleanArray]:
        """Return the new rows of records, and a mask of those to drop; write the versions that end.

        :param places: indexes of the records among the incoming IDs, null for a record without an incoming row.
        """
        incoming = self._incoming(places)
        new, dropped = self._plan.merge(base, incoming)
        if self._history is not None:
            for ended in self._ended(base, incoming, new, dropped):
                self._history.append(ended)
        return new, dropped

    def _ended(
        self, base: pa.RecordBatch, incoming: pa.RecordBatch, new: pa.RecordBatch, dropped: pa.BooleanArray
    ) -> Iterable[pa.RecordBatch]:
        merge = self._plan.merge
        if isinstance(merge, ChangesMerge):
            return ended_by_changes(base, incoming, merge.columns, merge.deletes, self._plan.batch_bytes // 2)
        return [ended_by_refresh(base, new, dropped, merge.columns, self._plan.gone_at)]

    def _incoming(self, places: pa.Array) -> pa.RecordBatch:
        if not self._plan.are_changes:
            return self._rows.take(places)
        records = places.to_numpy()
        counts = self._counts[records]
        first = np.repeat(self._starts[records] - (np.cumsum(counts) - counts), counts)
        return self._rows.take(pa.array(first + np.arange(len(first))))
