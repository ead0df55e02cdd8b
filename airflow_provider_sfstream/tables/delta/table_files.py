"""Parquet files of Delta tables, written directly from Arrow columns, with the statistics that a commit needs.

Spark's own writer processes wide rows value by value, which takes several times as long as decoding.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from airflow_provider_sfstream.tables.delta.delta_table import TableFile

ROW_GROUP = 16 << 20
"""Bytes of Arrow columns in a row group, which a task buffers and a reader reads at a time."""
_SAMPLED = 4096
"""Rows sampled to choose the encoding of a column."""
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
    :param row_group: bytes of Arrow columns in a row group.
    """

    def __init__(self, filesystem: Any, path: str, schema: pa.Schema, row_group: int = ROW_GROUP) -> None:
        self.path, self.rows, self.buffered = path, 0, 0
        self._filesystem, self._schema, self._row_group = filesystem, schema, row_group
        self._batches: list[pa.RecordBatch] = []
        filesystem.create_dir(path.rpartition("/")[0] or ".", recursive=True)
        self._metadata: list[pa.parquet.FileMetaData] = []
        self._sink = filesystem.open_output_stream(path)
        self._writer: pa.parquet.ParquetWriter | None = None

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._batches.append(batch)
        self.rows += len(batch)
        self.buffered += batch.nbytes
        if self.buffered > self._row_group:
            self.flush()

    def flush(self) -> None:
        """Write buffered rows as a row group, or as several if one batch is larger than a row group."""
        if self._batches:
            table = pa.Table.from_batches(self._batches)
            groups = max(1, round(self.buffered / self._row_group))
            self._parquet_writer(table).write_table(table, row_group_size=math.ceil(len(table) / groups))
        self._batches, self.buffered = [], 0

    def close(self, partition: dict[str, str] | None = None) -> TableFile:
        """Close the file, and return its entry for a commit.

        :param partition: the value of each of the table's partition columns.
        """
        self.flush()
        self._parquet_writer(self._schema.empty_table()).close()
        self._sink.close()
        size = self._filesystem.get_file_info(self.path).size
        return TableFile(self.path, size, self.rows, _stats(self._schema, self._metadata[0]), partition or {})

    def abandon(self) -> None:
        """Close a file that will not be committed, and ignore errors of its storage."""
        self._batches = []
        for stream in filter(None, (self._writer, self._sink)):
            with suppress(Exception):
                stream.close()

    def _parquet_writer(self, first: pa.Table) -> pa.parquet.ParquetWriter:
        """Return the writer, and create it at the first call.

        :param first: the first rows, from which the encoding of each column is chosen.
        """
        if self._writer is None:
            self._writer = pa.parquet.ParquetWriter(
                self._sink,
                self._schema.with_metadata({**(self._schema.metadata or {}), **_CALENDAR}),
                compression="zstd",
                compression_level=1,
                use_dictionary=_repetitive_columns(first.slice(0, _SAMPLED)),
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
