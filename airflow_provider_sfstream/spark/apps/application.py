"""What every Spark application of this package does around its job."""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from airflow_provider_sfstream.spark.apps.executor_package import is_shipped, write_executor_package


def run_application(name: str, job: Callable[[Any], Any]) -> None:
    """Run ``job`` in a session of its own, and print the metrics that it returns as the last line.

    :param name: of the job, for example ``event_log``. The line begins with ``event_log metrics:``.
    :param job: takes the ``SparkSession``, returns a dataclass.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName(f"sfstream-{name.replace('_', '-')}").getOrCreate()
    try:
        with tempfile.TemporaryDirectory() as folder:
            if not is_shipped(spark):
                spark.sparkContext.addPyFile(str(write_executor_package(folder)))
            metrics = job(spark)
        print(f"{name} metrics: {json.dumps(asdict(metrics))}", flush=True)
    finally:
        spark.stop()


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


def configure(spark: Any, settings: dict[str, str]) -> None:
    """Set what results depend on, what a job needs, and how many tasks shuffle unless that is set already.

    Spark's 200 tasks would make a small window wait for two hundred empty ones.
    """
    for name, value in (RESULT_SETTINGS | settings).items():
        spark.conf.set(name, value)
    context, partitions = spark.sparkContext, "spark.sql.shuffle.partitions"
    if not context.getConf().contains(partitions):
        spark.conf.set(partitions, max(4, 2 * context.defaultParallelism))
