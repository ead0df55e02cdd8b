"""The engines that a job runs on, for tests of what holds on each."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

from airflow_provider_sfstream.actions.worker_files import WorkerFiles
from airflow_provider_sfstream.tables.runner.embedded import EmbeddedEngine
from airflow_provider_sfstream.tables.runner.engine import Engine
from airflow_provider_sfstream.tables.runner.on_spark import SparkEngine

ENGINES = ("spark", "embedded", "in turn")
"""``in turn``: each run on the other one than the run before."""


def embedded(folder: Path, **given: Any) -> EmbeddedEngine:
    """Return the embedded engine, with a folder of its own below another one."""
    own = folder / f"copies{len(list(folder.glob('copies*')))}"
    own.mkdir(parents=True)
    return EmbeddedEngine(WorkerFiles(None), WorkerFiles(None), own, **given)


def engine_of(name: str, spark: Any, folder: Path) -> Callable[[], Engine]:
    """Return what gives the engine of the next run.

    :param name: one of :data:`ENGINES`.
    :param folder: a temporary one.
    """

    def on_spark() -> SparkEngine:
        spark.catalog.clearCache()  # a session of its own would not have it; what others write here it does not notice
        return SparkEngine(spark)

    choices: dict[str, Callable[[], Engine]] = {
        "spark": on_spark,
        "embedded": lambda: embedded(folder),
    }
    if name in choices:
        return choices[name]
    turns = cycle(choices[each] for each in ("embedded", "spark"))
    return lambda: next(turns)()
