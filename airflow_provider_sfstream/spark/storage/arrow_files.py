"""Parquet files written by the executors' Python, straight from Arrow columns.

Spark's own writer takes wide rows one value after the other, which costs several times what decoding does. This one
needs a file system that executors and driver share; elsewhere the job lets Spark write.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from airflow_provider_sfstream.spark.rows.event_batches import Batches, Rows

WRITTEN = pa.schema(
    [("event_date", pa.date32()), ("window_id", pa.string()), ("name", pa.string()), ("rows", pa.int64())]
)
_BUFFERED = 64 << 20
"""Bytes held back by one task, so that row groups are large."""


def write_files(rows: Rows, folder: str) -> Rows:
    """Return a function for ``mapInArrow`` that writes what ``rows`` gives into files of one partition each.

    The files of a task that fails stay unnamed, so that they are never used.

    :param rows: gives batches with ``event_date`` and ``window_id``.
    :param folder: an existing folder. File names are unique in it.
    """

    def write(batches: Batches) -> Batches:
        files: dict[tuple[date, str], _PartitionFile] = {}
        try:
            for batch in rows(batches):
                for key, part in _by_partition(batch):
                    if key not in files:
                        files[key] = _PartitionFile(Path(folder), part.schema)
                    files[key].append(part)
                while sum(file.buffered for file in files.values()) > _BUFFERED:
                    max(files.values(), key=lambda file: file.buffered).flush()
        finally:
            for file in files.values():
                file.close()
        written = [
            {"event_date": day, "window_id": window, "name": file.path.name, "rows": file.rows}
            for (day, window), file in files.items()
        ]
        yield pa.RecordBatch.from_pylist(written, schema=WRITTEN)

    return write


class _PartitionFile:
    """One file, written a row group at a time."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self.path = folder / f"part-{uuid.uuid4().hex}.parquet"
        self.rows = self.buffered = 0
        self._batches: list[pa.RecordBatch] = []
        self._writer = pa.parquet.ParquetWriter(self.path, schema, compression="zstd", compression_level=1)

    def append(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self.rows += len(batch)
        self.buffered += batch.nbytes

    def flush(self) -> None:
        if self._batches:
            table = pa.Table.from_batches(self._batches)
            self._writer.write_table(table, row_group_size=len(table))
        self._batches, self.buffered = [], 0

    def close(self) -> None:
        self.flush()
        self._writer.close()


def _by_partition(batch: pa.RecordBatch) -> Iterator[tuple[tuple[date, str], pa.RecordBatch]]:
    days, windows = batch.column("event_date"), batch.column("window_id")
    values = batch.drop_columns(["event_date", "window_id"])
    keys = pa.table({"day": days, "window": windows}).group_by(["day", "window"]).aggregate([]).to_pylist()
    for key in keys:
        if len(keys) == 1:
            yield (key["day"], key["window"]), values
        else:
            chosen = pa.compute.and_(pa.compute.equal(days, key["day"]), pa.compute.equal(windows, key["window"]))
            yield (key["day"], key["window"]), values.filter(chosen)
