"""Files that the rewrite of a piece makes: those of the table, and those of its history."""

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
from airflow_provider_sfstream.tables.rows.routing import pieces_of


@dataclass(frozen=True)
class HistoryPlan:
    """Where the versions that a rewrite ends are written.

    :param gone_at: when the version of a row ends that a refresh drops, microseconds since the epoch; ``None`` for
        changes.
    """

    location: TableLocation
    deletes: Deletes
    gone_at: int | None = None


class Output:
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
        self._counts[number] = dirty + count_true(rows["_dirty"]), deleted + count_true(rows["_deleted"])


class History:
    """The versions that end with a rewrite."""

    def __init__(self, columns: Columns, plan: HistoryPlan | None) -> None:
        self._columns, self._history = columns, plan
        self._bases: list[pa.RecordBatch] = []
        if plan is not None:
            self._output = Output(plan.location.filesystem(), version_schema(columns), is_history=True)

    def note(self, base: pa.RecordBatch, new: pa.RecordBatch, dropped: pa.BooleanArray) -> None:
        """Take note of rows, as they were and as they become."""
        if self._history is None:
            return
        if self._history.gone_at is None:
            self._bases.append(base)  # no more rows than changes
        else:
            self._output.append(ended_by_refresh(base, new, dropped, self._columns, self._history.gone_at))

    def end(self, changes: pa.RecordBatch | None) -> None:
        """Write the versions that end in a range of ids, when all its rows were noted.

        :param changes: its incoming rows; ``None`` without a history.
        """
        if self._history is not None and self._history.gone_at is None and changes is not None and len(changes):
            for ended in ended_by_changes(self._bases, changes, self._columns, self._history.deletes):
                self._output.append(ended)
        self._bases.clear()

    def close(self) -> list[dict[str, Any]]:
        """Return the lines of the files."""
        return [] if self._history is None else self._output.close()

    def abandon(self) -> None:
        """End files that nobody will name."""
        if self._history is not None:
            self._output.abandon()
