"""One Spark session for all tests of a run, and how ``spark-submit`` is started beside it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_provider_sfstream.spark.executor_package import write_executor_package

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}
SHORT_LIVED = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m",
    # Many wide tables are worked on by turns: what was compiled for one is wanted again.
    "spark.sql.codegen.cache.maxEntries": "3000",
}
"""What a test does is too short for Java's second compiler to pay. Not for what is measured."""
MASTER = "local[2]"


def spark_environment() -> dict[str, str]:
    """Return the environment in which Spark runs on this Python and on the loopback interface."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return os.environ | {"PATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


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
