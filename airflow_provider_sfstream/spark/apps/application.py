"""What every Spark application of this package does around its job."""

from __future__ import annotations

import json
import logging
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from airflow_provider_sfstream.spark.apps.executor_package import is_shipped, write_executor_package
from airflow_provider_sfstream.spark.apps.progress import progress

log = logging.getLogger(__name__)

HAS_BEGUN = re.compile(r"Spark application (\S+) has begun; ")
"""In the line by which the driver's log names the application."""


def run_application(name: str, job: Callable[[Any], Any]) -> None:
    """Run ``job`` in a session of its own, and print the metrics that it returns as the last line.

    :param name: of the job, for example ``event_log``. The line begins with ``event_log metrics:``.
    :param job: takes the ``SparkSession``, returns a dataclass.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName(f"sfstream-{name.replace('_', '-')}").getOrCreate()
    ui = spark.sparkContext.uiWebUrl
    log.info("Spark application %s has begun; its UI: %s.", spark.sparkContext.applicationId, ui or "none")
    try:
        with tempfile.TemporaryDirectory() as folder:
            if not is_shipped(spark):
                spark.sparkContext.addPyFile(str(write_executor_package(folder)))
            with progress(spark):
                metrics = job(spark)
        print(f"{name} metrics: {json.dumps(asdict(metrics))}", flush=True)
    finally:
        spark.stop()
