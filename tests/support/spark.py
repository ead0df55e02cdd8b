"""Spark session shared by all tests of a run, and environments for ``spark-submit``."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_provider_sfstream.tables.spark_apps.executor_package import write_executor_package
from tests.support.java_archive import SHORT, submit_options

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}
SHORT_LIVED = {
    "spark.driver.extraJavaOptions": f"{SHORT} -XX:ReservedCodeCacheSize=240m",
    # Tests alternate between many wide tables: a larger cache avoids compiling the code of a table again.
    "spark.sql.codegen.cache.maxEntries": "3000",
    # Otherwise each column expression sends Python's call stack to Java, for better error messages.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
"""Settings for tests, which are too short to benefit from Java's second compiler. Not for benchmarks."""
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
"""Settings without compiled code or adaptive plans, which cost more than they save with few rows and many columns."""
COMPILED = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.shuffle.partitions": SETTINGS["spark.sql.shuffle.partitions"],
}
"""Spark's defaults for the settings of :data:`INTERPRETED`, with which users run the jobs."""
HOSTILE = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.ansi.enforceReservedKeywords": "true",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.caseSensitive": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "3",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.jsonGenerator.ignoreNullFields": "false",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.parquet.compression.codec": "gzip",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
    "spark.sql.parquet.mergeSchema": "true",
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.writeLegacyFormat": "true",
    "spark.sql.session.timeZone": "America/St_Johns",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.sources.default": "orc",
    "spark.sql.sources.partitionOverwriteMode": "static",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
}
"""Settings that a cluster may have for all sessions, and that would corrupt tables if a job did not override them."""
SPECULATIVE = {
    "spark.speculation": "true",
    "spark.speculation.interval": "10ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
}
"""Settings with which Spark runs many tasks twice; without effect on a local master."""
MASTER = "local[2]"


def spark_environment() -> dict[str, str]:
    """Return environment variables with which Spark uses this Python and the loopback interface."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return os.environ | {"PATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


def short_lived_environment() -> dict[str, str]:
    """Return :func:`spark_environment` for ``spark-submit`` in a test: Java starts faster and compiles less."""
    return spark_environment() | {"SPARK_SUBMIT_OPTS": submit_options(INTERPRETED)}


def start_session(folder: Path, settings: Mapping[str, str] | None = None) -> Any:
    """Start a session whose executors import this package only from its zip file, as on a cluster."""
    os.environ.update(spark_environment())
    # py4j also logs at the exit of Python, when the test runner has already closed the log streams.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(MASTER).appName("sfstream tests")
    for name, value in (SETTINGS | dict(settings or {})).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.sparkContext.addPyFile(str(write_executor_package(folder)))
    return session


def session_with(spark: Any, settings: Mapping[str, str]) -> Any:
    """Return a new session with further settings in the same Spark application."""
    session = spark.newSession()
    for name, value in settings.items():
        session.conf.set(name, value)
    return session
