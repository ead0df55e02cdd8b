"""Engine that runs a job on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa

from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.tables.delta.hadoop_files import HadoopFiles
from airflow_provider_sfstream.tables.delta.landed_windows import check_files, read_rows
from airflow_provider_sfstream.tables.rows.event_batches import Rows
from airflow_provider_sfstream.tables.rows.shuffle import BLOCK


@dataclass(frozen=True)
class SparkFrame:
    """DataFrame as a frame.

    :param checked: returns when the rows are verified; until then no row is returned.
    """

    rows: Any
    checked: Callable[[], None] = lambda: None

    def select(self, *columns: str) -> SparkFrame:
        return replace(self, rows=self.rows.select(*columns))

    def map_batches(self, make: Rows, schema: pa.Schema) -> SparkFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        return replace(self, rows=self.rows.mapInArrow(make, from_arrow_schema(schema)))

    def collect(self) -> list[Mapping[str, Any]]:
        try:
            rows = self.rows.collect()
        finally:
            self.checked()  # a failed verification also explains why rows cannot be read
        return [row.asDict() for row in rows]


class SparkEngine:
    """Engine that runs a job's functions in Spark's tasks.

    :param spark: a ``SparkSession`` (not Spark Connect).
    """

    def __init__(self, spark: Any) -> None:
        configure(spark)
        self.spark = spark
        self.landing = self.files = HadoopFiles(spark)
        self.application_id = str(spark.sparkContext.applicationId)
        self.tasks_at_once = int(spark.sparkContext.defaultParallelism)

    def prepare(self, event_counts: Sequence[int]) -> None:
        """Do nothing: this engine can read any window."""

    def landed_rows(self, windows: Sequence[Manifest], *, verify: bool) -> SparkFrame:
        rows = SparkFrame(read_rows(self.spark, windows))
        if not verify:
            return rows
        # In parallel with the first use of the rows, which is mostly planning.
        executor = ThreadPoolExecutor(max_workers=1)
        verification = executor.submit(check_files, self.spark, windows)
        executor.shutdown(wait=False)
        return replace(rows, checked=verification.result)

    def file_rows(self, url: str, paths: Sequence[str], schema: pa.Schema) -> SparkFrame:
        return SparkFrame(read_files(self.spark, url, paths, schema))

    def shuffle(self, frames: Sequence[SparkFrame], by: Sequence[str], parts: int) -> SparkFrame:
        from pyspark.sql import functions as f

        numbered = [frame.rows.withColumn("_frame", f.lit(number)) for number, frame in enumerate(frames)]
        rows = reduce(lambda one, other: one.unionByName(other), numbered)
        rows = rows.repartition(max(parts, self.tasks_at_once), *by)
        rows = (rows.sortWithinPartitions("_frame") if len(frames) > 1 else rows).drop("_frame")
        return replace(frames[0], rows=rows)

    def shuffle_blocks(self, blocks: SparkFrame, also: Sequence[int], file_groups: int) -> SparkFrame:
        from pyspark.sql import functions as f

        sent = blocks.rows
        if also:
            empty = pa.RecordBatch.from_pylist([{"file_group": number} for number in also], schema=BLOCK)
            sent = sent.unionByName(self.rows_of(empty).rows)
        tasks = min(file_groups, 4 * self.tasks_at_once)
        task = f.pmod("file_group", f.lit(tasks))
        divide = getattr(sent, "repartitionById", sent.repartition)
        return replace(blocks, rows=divide(tasks, task))

    def text_rows(self, url: str, paths: Sequence[str], columns: Sequence[str]) -> SparkFrame:
        schema = ", ".join(f"`{name}` string" for name in columns)
        if not paths:
            return SparkFrame(self.spark.createDataFrame([], schema))
        reader = self.spark.read.schema(schema).option("mode", "FAILFAST")
        return SparkFrame(reader.json([f"{url}/{path}" for path in paths]))

    def rows_of(self, batch: pa.RecordBatch) -> SparkFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        rows = [tuple(row.values()) for row in batch.to_pylist()]
        return SparkFrame(self.spark.createDataFrame(rows, from_arrow_schema(batch.schema)))


def read_files(spark: Any, url: str, paths: Iterable[str], schema: pa.Schema) -> Any:
    """Return the rows of Parquet files in a folder as a DataFrame. Columns that a file lacks are null in its rows."""
    from pyspark.sql.pandas.types import from_arrow_schema

    urls, spark_schema = [f"{url}/{path}" for path in paths], from_arrow_schema(schema)
    return spark.read.schema(spark_schema).parquet(*urls) if urls else spark.createDataFrame([], spark_schema)


RESULT_SETTINGS = {
    # Meaning of texts, times and names.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.ansi.enforceReservedKeywords": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    # Contents of Parquet files.
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.fieldId.read.enabled": "false",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.parquet.mergeSchema": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    # A missing or corrupt file is an error and must not reduce the rows.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # Input and output of the executors' Python. A column of a batch holds at most 2 GiB of text.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}
"""Session settings that affect results, equal for every job regardless of the cluster's defaults."""

WORKER_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Environment of the executors' Python, unless the session sets it. Arrow's other pools retain freed memory: a worker
that rewrites file groups of a wide table needs 50 % more memory with them. Arrow chooses its pool once, and in part
only from the environment."""


def configure(spark: Any) -> None:
    """Set the options that affect results, and the number of shuffle partitions unless the session sets it.

    With Spark's default of 200 partitions, a small window would wait for two hundred empty tasks.
    """
    for name, value in RESULT_SETTINGS.items():
        spark.conf.set(name, value)
    context, partitions = spark.sparkContext, "spark.sql.shuffle.partitions"
    context.environment.update(WORKER_ENVIRONMENT | context.environment)
    if not context.getConf().contains(partitions):
        spark.conf.set(partitions, max(4, 2 * context.defaultParallelism))
