"""Rows as files of one partition each, written by the executors' Python."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute

from airflow_provider_sfstream.tables.delta.delta_table import TableFile
from airflow_provider_sfstream.tables.delta.table_files import ROW_GROUP, TableFileWriter
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows

WRITTEN = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        ("stats", pa.string()),
        ("partition", pa.map_(pa.string(), pa.string())),
    ]
)
"""A row for each file, as :func:`files_of` reads it."""
_ROW_GROUP = 2 * ROW_GROUP
"""Bytes of Arrow columns in a row group. Most fields of an event are empty, and take next to no room in a file."""
_OPEN = 64
"""Files that one task writes at once: each has its columns' buffers, and on an object store the part that it sends."""


def write_files(rows: Rows, location: TableLocation, partition_by: Sequence[str]) -> Rows:
    """Return a function for ``mapInArrow`` that writes what ``rows`` gives, and tells the files that it wrote.

    A file has rows of one window and of one value of each partition column, is in folders named after them, and does
    not have the partition columns. The window's folder has its bare name, unless it is a partition column too. The
    files of a task that fails are told to nobody, so that they never count.

    :param rows: gives batches with ``window_id`` and the columns of ``partition_by``.
    :param location: the table's folder.
    """

    def write(batches: Batches) -> Batches:
        files = _Files(location, partition_by)
        try:
            for batch in rows(batches):
                for key, part in _by_partition(batch, partition_by):
                    files.append(key, part)
        except BaseException:
            files.abandon()
            raise
        yield pa.RecordBatch.from_pylist([vars(file) for file in files.close()], schema=WRITTEN)

    return write


def as_they_are(batches: Batches) -> Batches:
    """Give rows as they come, for :func:`write_files`."""
    yield from batches


def files_of(rows: Iterable[Mapping[str, Any]]) -> list[TableFile]:
    """Return the files that rows of :func:`write_files` tell of."""
    return [TableFile(**row) for row in rows]


def window_of(path: str) -> str | None:
    """Return the window partition that a file of a table is of; ``None`` if it is of none, as one that a compaction
    made of several."""
    folder = path.rpartition("/")[0].rpartition("/")[2]
    return folder if folder and "=" not in folder else None


class _Files:
    """The files that a task writes. What it holds back is a row group, over all of them."""

    def __init__(self, location: TableLocation, partition_by: Sequence[str]) -> None:
        self._filesystem, self._partition_by = location.filesystem(), partition_by
        self._open: dict[tuple[str, ...], TableFileWriter] = {}
        self._closed: list[TableFile] = []

    def append(self, key: tuple[str, ...], batch: pa.RecordBatch) -> None:
        if key not in self._open:
            if len(self._open) == _OPEN:
                self._close(max(self._open, key=lambda each: self._open[each].buffered))
            path = f"{self._folder(key)}/part-{uuid.uuid4().hex}.parquet"
            self._open[key] = TableFileWriter(self._filesystem, path, batch.schema, _ROW_GROUP)
        self._open[key].append(batch)
        while sum(file.buffered for file in self._open.values()) > _ROW_GROUP:
            max(self._open.values(), key=lambda file: file.buffered).flush()

    def close(self) -> list[TableFile]:
        for key in list(self._open):
            self._close(key)
        return self._closed

    def abandon(self) -> None:
        for file in self._open.values():
            file.abandon()

    def _close(self, key: tuple[str, ...]) -> None:
        self._closed.append(self._open.pop(key).close(dict(zip(self._partition_by, key, strict=False))))

    def _folder(self, key: tuple[str, ...]) -> str:
        folders = [f"{name}={value}" for name, value in zip(self._partition_by, key, strict=False)]
        return "/".join([*folders, *key[len(folders) :]])


def _by_partition(
    batch: pa.RecordBatch, partition_by: Collection[str]
) -> Iterator[tuple[tuple[str, ...], pa.RecordBatch]]:
    names = list(dict.fromkeys([*partition_by, "window_id"]))
    values = batch.drop_columns(list(partition_by))
    keys = pa.Table.from_batches([batch.select(names)]).group_by(names).aggregate([]).to_pylist()
    for key in keys:
        text = tuple(value.isoformat() if isinstance(value, date) else str(value) for value in key.values())
        if len(keys) == 1:
            yield text, values
            continue
        chosen = [pa.compute.equal(batch.column(name), value) for name, value in key.items()]
        mask = chosen[0] if len(chosen) == 1 else pa.compute.and_(*chosen)
        yield text, values.filter(mask)
