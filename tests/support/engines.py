"""The engines of table jobs, for tests that run on each of them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.tables.runner.embedded import EmbeddedEngine
from airflow_provider_sfstream.tables.runner.engine import Engine
from airflow_provider_sfstream.tables.runner.on_spark import SparkEngine

ENGINES = (pytest.param("spark", marks=pytest.mark.extended), "embedded")
"""Spark runs the contract of both engines in ``make test-all`` only, because it needs five times as long."""
BOTH_IN_TURN = pytest.mark.parametrize("engine", [*ENGINES, "in turn"], indirect=True)
"""Mark of a test of several runs, which is also repeated with runs that alternate between the two engines."""


def embedded(folder: Path, **options: Any) -> EmbeddedEngine:
    """Return an embedded engine with a new folder below ``folder``."""
    own = folder / f"copies{len(list(folder.glob('copies*')))}"
    own.mkdir(parents=True)
    return EmbeddedEngine(ObjectStorageFiles(None), ObjectStorageFiles(None), own, **options)


def engine_of(name: str, spark: Any, folder: Path) -> Callable[[], Engine]:
    """Return a function that returns the engine of the next run.

    :param name: ``spark``, ``embedded`` or ``in turn``: the runs alternate between the two engines.
    :param folder: temporary folder.
    """

    def on_spark() -> SparkEngine:
        spark.catalog.clearCache()  # this shared session does not notice the files that the other engine writes
        return SparkEngine(spark)

    choices: dict[str, Callable[[], Engine]] = {
        "spark": on_spark,
        "embedded": lambda: embedded(folder),
    }
    if name in choices:
        return choices[name]
    turns = cycle(choices[each] for each in ("embedded", "spark"))
    return lambda: next(turns)()
