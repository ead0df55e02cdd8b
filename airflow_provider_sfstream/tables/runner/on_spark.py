"""Spark as the engine of a job."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from airflow_provider_sfstream.tables.delta.hadoop_files import HadoopFiles
from airflow_provider_sfstream.tables.delta.landed_windows import LandedWindow, check_files, read_rows
from airflow_provider_sfstream.tables.rows.routing import PARCEL
from airflow_provider_sfstream.tables.runner.spark_frames import SparkFrame, union


class SparkEngine:
    """Runs a job's functions in Spark's tasks.

    :param spark: a ``SparkSession`` (not Spark Connect).
    """

    tables_at_once = 4
    """Most of a small table's time is Spark's planning: several are planned at once."""
    rows_at_once: int | None = None

    def __init__(self, spark: Any) -> None:
        configure(spark)
        self.spark = spark
        self.application_id = str(spark.sparkContext.applicationId)
        self.tasks_at_once = int(spark.sparkContext.defaultParallelism)

    @cached_property
    def files(self) -> HadoopFiles:
        return HadoopFiles(self.spark)

    @property
    def landing(self) -> HadoopFiles:
        return self.files

    def prepare(self, windows: Sequence[LandedWindow]) -> None:
        """Any window can be read here."""

    def landed_rows(self, windows: Sequence[LandedWindow], *, verify: bool) -> SparkFrame:
        rows = SparkFrame(read_rows(self.spark, windows))
        if not verify:
            return rows
        # Beside the first look at the rows, which is planning for the most part.
        beside = ThreadPoolExecutor(max_workers=1)
        checking = beside.submit(check_files, self.spark, windows)
        beside.shutdown(wait=False)
        return replace(rows, checked=checking.result)

    def file_rows(self, url: str, paths: Sequence[str], schema: pa.Schema) -> SparkFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        if not paths:
            return SparkFrame(self.spark.createDataFrame([], from_arrow_schema(schema)))
        read = self.spark.read.schema(from_arrow_schema(schema))
        return SparkFrame(read.parquet(*(f"{url}/{path}" for path in paths)))

    def shuffled(self, frames: Sequence[SparkFrame], by: Sequence[str], parts: int) -> SparkFrame:
        from pyspark.sql import functions as f

        numbered = [frame.rows.withColumn("_frame", f.lit(number)) for number, frame in enumerate(frames)]
        rows = union(numbered).repartition(max(parts, self.tasks_at_once), *by)
        return frames[0].of((rows.sortWithinPartitions("_frame") if len(frames) > 1 else rows).drop("_frame"))

    def routed(self, parcels: SparkFrame, also: Sequence[int], pieces: int) -> SparkFrame:
        from pyspark.sql import functions as f
        from pyspark.sql.pandas.types import from_arrow_schema

        sent = parcels.rows
        if also:
            empty = [(number, None, 0) for number in also]
            sent = sent.unionByName(self.spark.createDataFrame(empty, from_arrow_schema(PARCEL)))
        tasks = min(pieces, 4 * self.tasks_at_once)
        task = f.pmod("piece", f.lit(tasks))
        by_piece = hasattr(sent, "repartitionById")
        return parcels.of(sent.repartitionById(tasks, task) if by_piece else sent.repartition(tasks, task))

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


RESULT_SETTINGS = {
    # What a text, a time or a name means.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.ansi.enforceReservedKeywords": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    # What is in a Parquet file.
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.fieldId.read.enabled": "false",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.parquet.mergeSchema": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    # A file that is gone or broken is an error, not fewer rows.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # What the executors' Python is given, and may give. A column of a batch holds 2 GiB of text at most.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}
"""Settings of a session on which results depend, as every job has them whatever the cluster's defaults are."""

WORKER_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""The environment of the executors' Python, unless the session has set it. Arrow's other pools keep what was freed: a
worker that rewrites pieces of a wide table needs half as much again with them. Arrow takes its pool for good, and
partly from the environment alone."""


def configure(spark: Any) -> None:
    """Set what results depend on, and how many tasks shuffle unless that is set already.

    Spark's 200 tasks would make a small window wait for two hundred empty ones.
    """
    for name, value in RESULT_SETTINGS.items():
        spark.conf.set(name, value)
    context, partitions = spark.sparkContext, "spark.sql.shuffle.partitions"
    context.environment.update(WORKER_ENVIRONMENT | context.environment)
    if not context.getConf().contains(partitions):
        spark.conf.set(partitions, max(4, 2 * context.defaultParallelism))
