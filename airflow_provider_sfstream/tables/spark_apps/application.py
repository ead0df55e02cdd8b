"""Functions that all Spark applications of this package share."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any, TypeVar

from airflow_provider_sfstream.privacy.field_rules import HASH_KEY_VARIABLE
from airflow_provider_sfstream.tables.job_config import JobConfig, WindowsJobConfig
from airflow_provider_sfstream.tables.spark_apps.executor_package import is_shipped, write_executor_package

log = logging.getLogger(__name__)

Config = TypeVar("Config", bound=JobConfig)

HAS_BEGUN = re.compile(r"Spark application (\S+) has begun; ")
"""Pattern for the line of the driver's log that names the application."""

PROGRESS_INTERVAL = 15.0
"""Seconds between two lines about the progress of a job."""


def run_application(name: str, kind: type[Config], job: Callable[[Any, Config], Any], arguments: Sequence[str]) -> None:
    """Run a job in its own Spark session, and print its metrics as the last line.

    :param name: name of the job, for example ``event_log``. The line begins with ``event_log metrics:``.
    :param kind: class of the config.
    :param job: takes the engine and the config, returns a dataclass.
    :param arguments: of the command line, as :meth:`JobConfig.to_arguments` returns them. The environment has the key
        of hashes.
    :raises ConfigurationError: if the config is invalid. No session was started.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    config = read_config(kind, arguments)
    from pyspark.sql import SparkSession

    from airflow_provider_sfstream.tables.runner.on_spark import SparkEngine

    spark = SparkSession.builder.appName(f"sfstream-{name.replace('_', '-')}").getOrCreate()
    ui = spark.sparkContext.uiWebUrl
    log.info("Spark application %s has begun; its UI: %s.", spark.sparkContext.applicationId, ui or "none")
    try:
        with tempfile.TemporaryDirectory() as folder:
            if not is_shipped(spark):
                spark.sparkContext.addPyFile(str(write_executor_package(folder)))
            with progress(spark):
                metrics = job(SparkEngine(spark), config)
        print(f"{name} metrics: {json.dumps(asdict(metrics))}", flush=True)
    finally:
        spark.stop()


def read_config(kind: type[Config], arguments: Sequence[str]) -> Config:
    """Return the config from a driver's command line and environment."""
    config = kind.from_arguments(arguments)
    if isinstance(config, WindowsJobConfig):
        config = replace(config, hash_key=os.environ.get(HASH_KEY_VARIABLE))
        _ = config.rules
    return config


@contextmanager
def progress(spark: Any, interval: float = PROGRESS_INTERVAL) -> Iterator[None]:
    """Log the completed tasks of the active stages from a thread, while the block runs."""
    ended = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def report() -> None:
        while not ended.wait(interval):
            if line := _progress_line(tracker):
                log.info("%s", line)

    thread = threading.Thread(target=report, name="sfstream-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _progress_line(tracker: Any) -> str | None:
    """Return the progress of Spark's active stages; ``None`` if there are none, or Spark does not respond."""
    try:
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    except Exception:  # the session is ending; the job reports the cause
        return None
    active = [stage for stage in stages if stage is not None]
    counts = [f"{stage.numCompletedTasks} of {stage.numTasks} tasks of stage {stage.stageId}" for stage in active]
    return f"Spark has completed {', '.join(counts)}." if counts else None
