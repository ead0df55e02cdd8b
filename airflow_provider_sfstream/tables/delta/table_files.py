"""Parquet files of Delta tables, written directly from Arrow columns, with the statistics that a commit needs.

Spark's own writer processes wide rows value by value, which takes several times as long as decoding. The executors'
Python writes files of one partition each.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from airflow_provider_sfstream.tables.delta.delta_table import TableFile
from airflow_provider_sfstream.tables.delta.table_location import TableLocation

ROW_GROUP = 16 << 20
"""Bytes of Arrow columns in a row group, which a task buffers and a reader reads at a time."""
_SAMPLED = 4096
"""Rows sampled to choose the encoding of a column."""
_SMALL = 128 << 10
"""Bytes of Arrow columns up to which the rows of a file are compressed with snappy, without dictionaries. Each column
that zstd compresses takes as long as a hundred values."""
_WITH_STATS = 32
"""Number of leading columns with statistics, as with Delta's own writers."""
_LONGEST_TEXT = 64
"""Maximum characters of a text in statistics: whole texts would fill the log."""
_LAST = "\U0010ffff"
"""The last of all characters."""
_CALENDAR = {b"org.apache.spark.version": b"3.1.0"}
"""Metadata of a file that informs Spark that its times are of the proleptic Gregorian calendar, as Spark writes them
since 3.1. Without it, Spark 3 by default reads no timestamp before 1900, and Salesforce has some since 1700."""


class TableFileWriter:
    """Writer of one file, a row group at a time.

    :param filesystem: a ``pyarrow.fs.FileSystem`` whose root is the table's folder.
    :param path: path in it. The path must never have been used before.
    """

    def __init__(self, filesystem: Any, path: str, schema: pa.Schema) -> None:
        self.path, self.rows, self.buffered = path, 0, 0
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []
        self._metadata: list[pa.parquet.FileMetaData] = []
        self._filesystem = filesystem
        self._sink: Any = None
        self._writer: pa.parquet.ParquetWriter | None = None

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._batches.append(batch)
        self.rows += len(batch)
        self.buffered += batch.nbytes
        if self.buffered > ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        """Write buffered rows as a row group, or as several if one batch is larger than a row group."""
        if self._batches:
            table = pa.Table.from_batches(self._batches)
            groups = max(1, round(self.buffered / ROW_GROUP))
            self._parquet_writer(table).write_table(table, row_group_size=math.ceil(len(table) / groups))
        self._batches, self.buffered = [], 0

    def close(self, partition: dict[str, str] | None = None) -> TableFile:
        """Close the file, and return its entry for a commit.

        :param partition: the value of each of the table's partition columns.
        """
        self.flush()
        (self._writer or self._parquet_writer(self._schema.empty_table())).close()
        size = self._sink.tell()
        self._sink.close()
        return TableFile(self.path, size, self.rows, _stats(self._schema, self._metadata[0]), partition or {})

    def abandon(self) -> None:
        """Close a file that will not be committed, and ignore errors of its storage."""
        self._batches = []
        for stream in filter(None, (self._writer, self._sink)):
            with suppress(Exception):
                stream.close()

    def _parquet_writer(self, first: pa.Table) -> pa.parquet.ParquetWriter:
        """Return the writer. The ``first`` rows determine the encoding of each column."""
        if self._writer is None:
            self._filesystem.create_dir(self.path.rpartition("/")[0] or ".", recursive=True)
            self._sink = self._filesystem.open_output_stream(self.path)
            is_small = self.buffered <= _SMALL
            self._writer = pa.parquet.ParquetWriter(
                self._sink,
                self._schema.with_metadata({**(self._schema.metadata or {}), **_CALENDAR}),
                compression="snappy" if is_small else "zstd",
                compression_level=None if is_small else 1,
                use_dictionary=[] if is_small else _repetitive_columns(first.slice(0, _SAMPLED)),
                metadata_collector=self._metadata,
            )
        return self._writer


def _repetitive_columns(rows: pa.Table) -> list[str]:
    """Return the columns with repeated values. For other columns, a dictionary takes more time and space."""
    names = (field.name for field in rows.schema if not pa.types.is_nested(field.type))
    return [name for name in names if pa.compute.count_distinct(rows[name]).as_py() <= len(rows) // 4]


def _stats(schema: pa.Schema, metadata: pa.parquet.FileMetaData) -> str:
    """Return the statistics of a file in Delta's form."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    places = {metadata.schema.column(place).path: place for place in range(metadata.num_columns)}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for field in list(schema)[:_WITH_STATS]:
        if field.name not in places or pa.types.is_nested(field.type):
            continue
        chunks = [group.column(places[field.name]).statistics for group in groups]
        if not all(chunk is not None and chunk.has_null_count for chunk in chunks):
            continue
        nulls[field.name] = sum(chunk.null_count for chunk in chunks)
        bounded = [chunk for chunk in chunks if chunk.has_min_max]
        if bounded and len(bounded) == len([chunk for chunk in chunks if chunk.num_values]):
            lowest[field.name] = _bound(min(chunk.min for chunk in bounded))
            highest[field.name] = _bound(max(chunk.max for chunk in bounded), is_upper=True)
        elif pa.types.is_string(field.type) and any(chunk.num_values for chunk in chunks):
            lowest[field.name], highest[field.name] = "", _LAST  # Parquet has none for texts of several thousand bytes
    both = {name for name in lowest if lowest[name] is not None and highest[name] is not None}
    # deltalake's Arrow datasets treat all values of a column as null if it has a null count but no bounds.
    nulls = {name: count for name, count in nulls.items() if name in both or count == metadata.num_rows}
    return json.dumps(
        {
            "numRecords": metadata.num_rows,
            "minValues": {name: lowest[name] for name in lowest if name in both},
            "maxValues": {name: highest[name] for name in highest if name in both},
            "nullCount": nulls,
        }
    )


def _bound(value: Any, *, is_upper: bool = False) -> Any | None:
    """Return a minimum or maximum in JSON form, ``None`` if JSON has none."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return value[:_LONGEST_TEXT] + (_LAST if is_upper else "")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, bool | int | str) else None


WRITTEN = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        ("stats", pa.string()),
        ("partition", pa.map_(pa.string(), pa.string())),
    ]
)
"""Schema of a row for each file: the values of a :class:`TableFile`."""
_OPEN = 64
"""Maximum open files of a task: each has buffers for its columns, and on an object store the part being sent."""


def write_rows(location: TableLocation, batches: Iterable[pa.RecordBatch]) -> list[TableFile]:
    """Write rows with ``window_id`` to files of a table without partition columns."""
    with PartitionFiles(location) as files:
        for batch in batches:
            files.append("", batch, ())
        return [file for _, file in files.close()]


def window_of(path: str) -> str | None:
    """Return the window partition of a table's file; ``None`` if it has none, as after compacting several windows."""
    folder = path.rpartition("/")[0].rpartition("/")[2]
    return folder if folder and "=" not in folder else None


class PartitionFiles:
    """Partition files of tables, written by one task. At most a row group of rows is in memory, over all files.

    A file has rows of one window and of one value of each partition column, is in folders named after them, and does
    not contain the partition columns. The window's folder has its bare name, unless it is a partition column too.

    It is a context manager: after an error, it closes open files, which are not returned, so they are never committed.

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
            while sum(writer.buffered for writer, _ in self._open.values()) > ROW_GROUP:
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
            self._open[key] = TableFileWriter(self._filesystem, path, schema), partition
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
    keys = pa.Table.from_batches([batch.select(names)]).group_by(names, use_threads=False).aggregate([]).to_pylist()
    for key in keys:
        text = tuple(value.isoformat() if isinstance(value, date) else str(value) for value in key.values())
        if len(keys) == 1:
            yield text, values
            continue
        masks = [pa.compute.equal(batch.column(name), value) for name, value in key.items()]
        mask = masks[0] if len(masks) == 1 else pa.compute.and_(*masks)
        yield text, values.filter(mask)
