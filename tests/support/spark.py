"""One Spark session for all tests of a run, and how ``spark-submit`` is started beside it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_provider_sfstream.spark.executor_package import write_executor_package
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
    # Many wide tables are worked on by turns: what was compiled for one is wanted again.
    "spark.sql.codegen.cache.maxEntries": "3000",
    # Each use of a column would look through Python's stack, and tell Java of it, for a better error message.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
"""What a test does is too short for Java's second compiler to pay. Not for what is measured."""
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
"""A few rows of many columns: compiling code for them, and planning again at each stage, takes longer than the rows."""
COMPILED = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.shuffle.partitions": SETTINGS["spark.sql.shuffle.partitions"],
}
"""The same settings as Spark has them by itself, and so as users run the jobs."""
MASTER = "local[2]"


def spark_environment() -> dict[str, str]:
    """Return the environment in which Spark runs on this Python and on the loopback interface."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return os.environ | {"PATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


def short_lived_environment() -> dict[str, str]:
    """Return that environment for ``spark-submit`` in a test: its Java starts sooner and compiles less."""
    return spark_environment() | {"SPARK_SUBMIT_OPTS": submit_options(INTERPRETED)}


def start_session(folder: Path, settings: Mapping[str, str] | None = None) -> Any:
    """Start a session whose executors have this package from the zip only, as on a cluster."""
    os.environ.update(spark_environment())
    # It logs once more when Python ends, to streams that the test runner has closed by then.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(MASTER).appName("sfstream tests")
    for name, value in (SETTINGS | dict(settings or {})).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.sparkContext.addPyFile(str(write_executor_package(folder)))
    return session
