"""The Parquet files of replica tables: ``{base}/{table}/_files/{folder}/_bucket=N/part-*.parquet``, never changed.

A rewrite of a bucket gives new files beside the old ones; which of them are the table, a snapshot says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_sfstream.spark.decode.arrow_columns import arrow_type
from airflow_provider_sfstream.spark.decode.avro_columns import ColumnType
from airflow_provider_sfstream.spark.rows.replica_merge import DROPPED, joined
from airflow_provider_sfstream.spark.rows.replica_rows import BUCKET, TABLE_ENVELOPE
from airflow_provider_sfstream.spark.storage.hadoop_files import HadoopFiles

ROWS_PER_FILE = 2_000_000
_ROW_GROUP = 32 << 20
"""Bytes that an open file may hold back; a task has several open."""
_BUCKET_FOLDER = re.compile(rf"/{BUCKET}=(\d+)/")
BucketFiles = Mapping[int, Sequence[str]]


class ReplicaFiles:
    """Reads, writes and removes files of tables. File names are relative to ``base``.

    :param spark: a ``SparkSession``.
    :param base: the output folder, as Hadoop names it.
    """

    def __init__(self, spark: Any, files: HadoopFiles, base: str) -> None:
        self._spark, self._files, self._base = spark, files, base

    def read(self, table: str, files: BucketFiles, columns: dict[str, ColumnType]) -> Any:
        """Return the rows of files, with their bucket. Columns that a file does not have are null in its rows.

        :param columns: the record's columns.
        """
        import pyarrow as pa
        from pyspark.sql import functions as f
        from pyspark.sql.pandas.types import from_arrow_schema

        wanted = TABLE_ENVELOPE | columns
        schema = from_arrow_schema(pa.schema([(name, arrow_type(type_)) for name, type_ in wanted.items()]))
        urls = [f"{self._base}/{name}" for names in files.values() for name in names]
        if not urls:
            return self._spark.createDataFrame([], schema.add(BUCKET, "integer"))
        # The folder tells the bucket; Spark's own reading of folders cannot take files of several rewrites together.
        rows = self._spark.read.schema(schema).option("recursiveFileLookup", True).parquet(*urls)
        tail = f.substring_index(f.col("_metadata.file_path"), f"/{BUCKET}=", -1)
        return rows.withColumn(BUCKET, f.substring_index(tail, "/", 1).cast("int"))

    def write(self, table: str, rows: Any, folder: str) -> dict[int, list[str]]:
        """Write rows, which have a bucket, into a folder of their own; return the new files by bucket.

        A task of Spark's that is killed leaves nothing behind that would be returned.

        :param folder: a name that was never used for this table.
        :raises pyspark.errors.AnalysisException: if it was.
        """
        place = f"{table}/_files/{folder}"
        writer = rows.write.partitionBy(BUCKET).option("maxRecordsPerFile", ROWS_PER_FILE)
        writer = writer.option("compression", "zstd").option("parquet.compression.codec.zstd.level", "1")
        writer = writer.option("parquet.block.size", _ROW_GROUP)
        # Version 2, which some clusters have for speed, publishes the files of tasks that did not finish.
        writer.option("mapreduce.fileoutputcommitter.algorithm.version", "1").parquet(f"{self._base}/{place}")
        written: dict[int, list[str]] = {}
        for name in self._files.files_below(f"{self._base}/{place}"):
            bucket = _BUCKET_FOLDER.search(f"/{name}")
            if bucket and name.endswith(".parquet"):
                written.setdefault(int(bucket[1]), []).append(f"{place}/{name}")
        return written

    def remove_unreferenced(self, table: str, live: set[str]) -> None:
        """Remove the table's files that are not in ``live``: those of former snapshots, and what a killed job left."""
        place = f"{table}/_files"
        for folder in self._files.folders(f"{self._base}/{place}"):
            names = [f"{place}/{folder}/{name}" for name in self._files.files_below(f"{self._base}/{place}/{folder}")]
            if live.isdisjoint(names):
                self._files.delete(f"{self._base}/{place}/{folder}")
                continue
            for name in names:
                if name.endswith(".parquet") and name not in live:
                    self._files.delete(f"{self._base}/{name}")


@dataclass(frozen=True)
class Rewritten:
    """A table after a rewrite of some of its rows.

    :param files: all of its files by bucket, of a table in Parquet.
    :param rows: how many rows were written anew; ``dirty`` and ``deleted`` of them.
    """

    files: dict[int, list[str]]
    rows: int
    dirty: int
    deleted: int


def rewrite_buckets(
    files: ReplicaFiles,
    table: str,
    live: BucketFiles,
    columns: dict[str, ColumnType],
    changes: Any,
    merge: Sequence[Any],
    folder: str,
    *,
    also: Iterable[int] = (),
) -> Rewritten:
    """Merge ``changes`` into the buckets of a table that they are in. Other buckets keep their files.

    :param live: the table's files by bucket.
    :param columns: the record's columns, those included that the changes bring.
    :param changes: rows with ``Id`` (unique) and ``_bucket``; persisted, since they are read more than once.
    :param merge: the columns of the new row over ``base`` and ``change``, and ``_dropped``.
    :param folder: a name that was never used for this table.
    :param also: buckets to rewrite although no change is in them.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    touched = sorted({*also, *(row[0] for row in changes.select(BUCKET).distinct().collect())})
    if not touched:
        return Rewritten({bucket: list(names) for bucket, names in live.items()}, 0, 0, 0)
    base = files.read(table, {bucket: live.get(bucket, ()) for bucket in touched}, columns)
    new = joined(base, changes).select(BUCKET, *merge).where(~f.col(DROPPED)).drop(DROPPED)
    counts = Observation()
    written = files.write(table, new.observe(counts, *counted()), folder)
    kept = {bucket: list(names) for bucket, names in live.items() if bucket not in touched}
    return Rewritten(dict(sorted((kept | written).items())), **counts.get)


def counted() -> list[Any]:
    """Return what is counted of new rows while they are written, by the names of :class:`Rewritten`."""
    from pyspark.sql import functions as f

    return [
        f.count(f.lit(1)).alias("rows"),
        f.count_if("_dirty").alias("dirty"),
        f.count_if("_deleted").alias("deleted"),
    ]
