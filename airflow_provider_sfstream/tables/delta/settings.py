"""Settings of a session on which the results of every job depend."""

from __future__ import annotations

from typing import Any

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
