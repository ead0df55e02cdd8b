"""Files that the rewrite of a file group creates, and the lines with which its task reports them to the driver."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_provider_sfstream.tables.delta.delta_table import TableFile
from airflow_provider_sfstream.tables.delta.table_files import WRITTEN, TableFileWriter
from airflow_provider_sfstream.tables.replica.file_groups import FileGroup
from airflow_provider_sfstream.tables.rows.shuffle import file_groups_of

REWRITTEN = pa.schema(
    [
        ("file_group", pa.int32()),
        ("is_history", pa.bool_()),
        *WRITTEN,
        ("dirty", pa.int64()),
        ("deleted", pa.int64()),
        ("counts", pa.binary()),
    ]
)
"""Output of a task: each file that it wrote, and its numbers of dirty rows and of rows of deleted records. A rewritten
file group without remaining rows yields a line without a path. For fetched records, one line has ``counts`` as JSON:
rows whose record is ``gone``, and the number of merged records (``incoming``). The lines of other counts contain them
unchanged."""


@dataclass(frozen=True)
class RewriteResult:
    """Number of rewritten ``rows``, and of ``dirty`` and ``deleted`` rows among them; their ``files``, and the ID
    ``ranges`` of the rewritten file groups.

    For fetched records: number of rows without a record in the org (``gone``), and of merged records (``incoming``).
    """

    rows: int
    dirty: int
    deleted: int
    gone: int
    incoming: int
    files: tuple[str, ...]
    ranges: tuple[tuple[str | None, str | None], ...]

    @classmethod
    def from_lines(cls, lines: Sequence[Mapping[str, Any]], file_groups: Iterable[FileGroup]) -> RewriteResult:
        """Return the result of rewriting file groups of one table.

        :param lines: all lines of :data:`REWRITTEN` for the table.
        """
        rows = [line for line in lines if line["is_history"] is False]
        counts = [json.loads(bytes(line["counts"])) for line in lines if line["counts"] is not None]
        return cls(
            **{key: sum(line[key] for line in rows) for key in ("rows", "dirty", "deleted")},
            **{key: sum(count[key] for count in counts) for key in ("gone", "incoming")},
            files=tuple(line["path"] for line in rows if line["path"]),
            ranges=tuple((file_group.after, file_group.through) for file_group in file_groups),
        )


def table_files(lines: Sequence[Mapping[str, Any]], *, is_history: bool | None) -> list[TableFile]:
    """Return the files to commit of a table, or of its history, or (``None``) of the quarantine."""
    return [
        TableFile(**{name: line[name] for name in WRITTEN.names})
        for line in lines
        if line["path"] and line["is_history"] is is_history
    ]


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
            dirty, deleted = self._counts[number]
            counts = {"is_history": self._is_history, "dirty": dirty, "deleted": deleted}
            lines.append({**vars(writer.close()), **counts})
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
        self._counts[number] = dirty + rows["_dirty"].true_count, deleted + rows["_deleted"].true_count
