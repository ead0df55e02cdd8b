"""An Airflow database of a test module's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow import settings
from airflow.models.dagbundle import DagBundleModel
from airflow.utils.db import initdb
from airflow.utils.session import create_session

BUNDLE = "tests"


@contextmanager
def airflow_database(path: Path) -> Iterator[None]:
    """Use the database at ``path`` in this process's Airflow for a ``with`` block; create it if it does not exist."""
    is_new = not path.exists()
    before = settings.SQL_ALCHEMY_CONN
    settings.dispose_orm(do_log=False)
    settings.SQL_ALCHEMY_CONN = f"sqlite:///{path}"
    try:
        settings.configure_orm()
        if is_new:
            initdb()
            with create_session() as session:
                session.add(DagBundleModel(name=BUNDLE))
        yield
    finally:
        settings.dispose_orm(do_log=False)
        settings.SQL_ALCHEMY_CONN = before
        settings.configure_orm()
