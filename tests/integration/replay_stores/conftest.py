"""Fixtures of the stores that the suites in this folder test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL

from airflow_provider_sfstream.landing.replaced_files import PositionFiles
from airflow_provider_sfstream.replay_stores.base import ReplayStore
from airflow_provider_sfstream.replay_stores.document.store import DocumentReplayStore
from airflow_provider_sfstream.replay_stores.table import TableReplayStore
from tests.support.mariadb import mariadb_server  # noqa: F401 (a fixture)
from tests.support.postgres import postgres_server  # noqa: F401 (a fixture)
from tests.support.replay_stores import DictVariables, StoreUnderTest, landing_store, table_store, variable_store

ON_SERVERS = [pytest.param(name, marks=pytest.mark.extended) for name in ("postgres", "mariadb")]
"""Database servers. Only ``make test-all`` uses them, because their results nearly always equal those of SQLite."""


@pytest.fixture(params=["sqlite", *ON_SERVERS])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> URL:
    """Create an empty database of each kind."""
    if request.param == "sqlite":
        return URL.create("sqlite", database=str(tmp_path / "positions.db"))
    url: URL = request.getfixturevalue(f"{request.param}_server").new_database()
    return url


@pytest.fixture(
    params=[
        "variables",
        "landing",
        "table-sqlite",
        *(pytest.param(f"table-{param.values[0]}", marks=param.marks) for param in ON_SERVERS),
    ]
)
def under_test(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreUnderTest]:
    """Create an empty store of each kind."""
    landing = tmp_path / "landing"
    if request.param == "variables":
        under_test = variable_store(landing)
    elif request.param == "landing":
        under_test = landing_store(landing)
    elif request.param == "table-sqlite":
        under_test = table_store(landing, f"sqlite:///{tmp_path}/positions.db")
    else:
        server = request.getfixturevalue(f"{request.param.removeprefix('table-')}_server")
        under_test = table_store(landing, server.new_database())
    yield under_test
    under_test.store.close()


@pytest.fixture
def empty_store(request: pytest.FixtureRequest, under_test: StoreUnderTest, tmp_path: Path) -> Callable[[], Any]:
    """Return a function that creates an empty store of the same kind over the same landing, as after a loss."""
    kind = request.node.callspec.params["under_test"]

    def make() -> ReplayStore:
        if kind == "variables":
            return DocumentReplayStore(under_test.catalog, DictVariables())
        if kind == "landing":
            shutil.rmtree(tmp_path / "landing" / "positions")
            return DocumentReplayStore(under_test.catalog, PositionFiles(under_test.catalog.landing))
        if kind == "table-sqlite":
            return TableReplayStore(f"sqlite:///{tmp_path}/another.db")
        return TableReplayStore(request.getfixturevalue(f"{kind.removeprefix('table-')}_server").new_database())

    return make
