from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from airflow_provider_sfstream.tables.runner.engine import Engine
from tests.support.engines import ENGINES, engine_of
from tests.support.java_archive import submit_options
from tests.support.spark import COMPILED, INTERPRETED, SHORT_LIVED, start_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with mock.patch.dict(os.environ, SPARK_SUBMIT_OPTS=submit_options({})):
        session = start_session(tmp_path_factory.mktemp("spark"), SHORT_LIVED | INTERPRETED)
    yield session
    session.stop()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Engine]:
    """Return a function that returns the engine of the next run."""
    spark = None if request.param == "embedded" else request.getfixturevalue("spark")
    return engine_of(request.param, spark, tmp_path / "engines")


@pytest.fixture
def compiled(spark: Any) -> Iterator[None]:
    """Enable Spark's defaults of code generation and adaptive planning, for one test of each job and of wide rows."""
    for name, value in COMPILED.items():
        spark.conf.set(name, value)
    yield
    for name, value in INTERPRETED.items():
        spark.conf.set(name, value)
