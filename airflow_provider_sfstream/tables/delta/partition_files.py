"""Files of one partition each, written by the executors' Python."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, Self

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
"""Schema of a row for each file, read by :func:`files_of`."""
_ROW_GROUP = 2 * ROW_GROUP
"""Bytes of Arrow columns in a row group. Most fields of an event are empty, and take almost no space in a file."""
_OPEN = 64
"""Maximum open files of a task: each has buffers for its columns, and on an object store the part being sent."""


def write_files(rows: Rows, location: TableLocation, partition_by: Sequence[str]) -> Rows:
    """Return a function for ``mapInArrow`` that writes the result of ``rows``, and yields the written files.

    A file has rows of one window and of one value of each partition column, is in folders named after them, and does
    not contain the partition columns. The window's folder has its bare name, unless it is a partition column too. The
    files of a failed task are not returned, so they are never committed.

    :param rows: yields batches with ``window_id`` and the columns of ``partition_by``.
    :param location: the table's folder.
    """

    def write(batches: Batches) -> Batches:
        with PartitionFiles(location) as files:
            for batch in rows(batches):
                files.append("", batch, partition_by)
            written = [vars(file) for _, file in files.close()]
        yield pa.RecordBatch.from_pylist(written, schema=WRITTEN)

    return write


def unchanged_batches(batches: Batches) -> Batches:
    """Yield rows unchanged: the argument ``rows`` of :func:`write_files` for rows that are those of the table."""
    yield from batches


def files_of(rows: Iterable[Mapping[str, Any]]) -> list[TableFile]:
    """Return the files of the result of :func:`write_files`."""
    return [TableFile(**row) for row in rows]


def window_of(path: str) -> str | None:
    """Return the window partition of a table's file; ``None`` if it has none, as after compacting several windows."""
    folder = path.rpartition("/")[0].rpartition("/")[2]
    return folder if folder and "=" not in folder else None


class PartitionFiles:
    """Partition files of tables, written by one task. At most a row group of rows is in memory, over all files.

    It is a context manager: after an error, it closes open files, which are not returned.

    :param location: folder of the tables.
    """

    def __init__(self, location: TableLocation) -> None:
        self._filesystem = location.filesystem()
        self._open: dict[tuple[str, str], tuple[TableFileWriter, Mapping[str, str]]] = {}
        self._closed: list[tuple[str, TableFile]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for writer, _partition in self._open.values():
            writer.abandon()

    def append(self, table: str, batch: pa.RecordBatch, partition_by: Sequence[str]) -> None:
        """Add rows of a table.

        :param table: folder of the table below the location; empty if the location is the table's own folder.
        :param batch: rows with ``window_id`` and the columns of ``partition_by``.
        """
        for values, rows in _by_partition(batch, partition_by):
            partition = dict(zip(partition_by, values, strict=False))
            folders = [f"{name}={value}" for name, value in partition.items()]
            folder = "/".join([*folders, *values[len(folders) :]])
            self._writer(table, folder, rows.schema, partition).append(rows)
            while sum(writer.buffered for writer, _ in self._open.values()) > _ROW_GROUP:
                max((writer for writer, _ in self._open.values()), key=lambda writer: writer.buffered).flush()

    def close(self) -> list[tuple[str, TableFile]]:
        """Close all files; return them, each with its table."""
        for key in list(self._open):
            self._close(key)
        return self._closed

    def _writer(self, table: str, folder: str, schema: pa.Schema, partition: Mapping[str, str]) -> TableFileWriter:
        key = table, folder
        if key not in self._open:
            if len(self._open) == _OPEN:
                self._close(max(self._open, key=lambda open_key: self._open[open_key][0].buffered))
            path = f"{table}/{folder}/part-{uuid.uuid4().hex}.parquet".removeprefix("/")
            self._open[key] = TableFileWriter(self._filesystem, path, schema, _ROW_GROUP), partition
        return self._open[key][0]

    def _close(self, key: tuple[str, str]) -> None:
        writer, partition = self._open[key]
        file = writer.close(dict(partition))
        del self._open[key]
        self._closed.append((key[0], replace(file, path=file.path.removeprefix(f"{key[0]}/"))))


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
        masks = [pa.compute.equal(batch.column(name), value) for name, value in key.items()]
        mask = masks[0] if len(masks) == 1 else pa.compute.and_(*masks)
        yield text, values.filter(mask)
