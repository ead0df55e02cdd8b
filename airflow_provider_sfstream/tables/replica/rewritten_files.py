"""Files that the rewrite of a file group creates: those of the table, and those of its history."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_provider_sfstream.tables.delta.table_files import TableFileWriter
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.job_config import Deletes
from airflow_provider_sfstream.tables.rows.arrow_rows import count_true
from airflow_provider_sfstream.tables.rows.history_batches import ended_by_changes, ended_by_refresh, version_schema
from airflow_provider_sfstream.tables.rows.merging import Columns
from airflow_provider_sfstream.tables.rows.shuffle import file_groups_of


@dataclass(frozen=True)
class HistoryPlan:
    """Destination of the versions that a rewrite ends.

    :param gone_at: end of the version of a row that a refresh drops (microseconds since the epoch); ``None`` for
        changes.
    """

    location: TableLocation
    deletes: Deletes
    gone_at: int | None = None


class Output:
    """New files of a file group, divided at some IDs."""

    def __init__(
        self, filesystem: Any, schema: pa.Schema, ends: Sequence[str] = (), *, is_history: bool = False
    ) -> None:
        self._filesystem, self._schema, self._ends, self._is_history = filesystem, schema, ends, is_history
        self._writers: dict[int, TableFileWriter] = {}
        self._counts: dict[int, tuple[int, int]] = {}

    def append(self, rows: pa.RecordBatch) -> None:
        """Add rows to the files of their ID ranges."""
        if not self._ends:
            self._append(0, rows)
            return
        numbers = file_groups_of(rows["Id"], self._ends)
        for number in np.unique(numbers):
            self._append(int(number), rows.filter(pa.array(numbers == number)))

    def close(self) -> list[dict[str, Any]]:
        """Return a line for each file, or one line without a path if there is no file."""
        lines = []
        for number, writer in sorted(self._writers.items()):
            file = writer.close()
            dirty, deleted = self._counts[number]
            line = {"path": file.path, "size": file.size, "rows": file.rows, "stats": file.stats}
            lines.append({**line, "is_history": self._is_history, "dirty": dirty, "deleted": deleted})
        return lines or ([] if self._is_history else [{"is_history": False, "rows": 0, "dirty": 0, "deleted": 0}])

    def abandon(self) -> None:
        """Close the files, which no commit will name."""
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
        self._counts[number] = dirty + count_true(rows["_dirty"]), deleted + count_true(rows["_deleted"])


class History:
    """Versions of rows that a rewrite ends."""

    def __init__(self, columns: Columns, plan: HistoryPlan | None) -> None:
        self._columns, self._plan = columns, plan
        self._bases: list[pa.RecordBatch] = []
        if plan is not None:
            self._output = Output(plan.location.filesystem(), version_schema(columns), is_history=True)

    def note(self, base: pa.RecordBatch, new: pa.RecordBatch, dropped: pa.BooleanArray) -> None:
        """Record rows before and after the merge."""
        if self._plan is None:
            return
        if self._plan.gone_at is None:
            self._bases.append(base)  # at most as many rows as changes
        else:
            self._output.append(ended_by_refresh(base, new, dropped, self._columns, self._plan.gone_at))

    def end(self, changes: pa.RecordBatch | None) -> None:
        """Write the versions that end in an ID range, after all its rows were recorded.

        :param changes: its incoming rows; ``None`` without a history.
        """
        if self._plan is not None and self._plan.gone_at is None and changes is not None and len(changes):
            for ended in ended_by_changes(self._bases, changes, self._columns, self._plan.deletes):
                self._output.append(ended)
        self._bases.clear()

    def close(self) -> list[dict[str, Any]]:
        """Return the lines of the files."""
        return [] if self._plan is None else self._output.close()

    def abandon(self) -> None:
        """Close the files, which no commit will name."""
        if self._plan is not None:
            self._output.abandon()
