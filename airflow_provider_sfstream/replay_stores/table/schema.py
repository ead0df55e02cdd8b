"""Creating and upgrading the tables, also when several tasks do it at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from airflow_provider_sfstream.exceptions import ReplayStoreError
from airflow_provider_sfstream.replay_stores.table.engine import describe, reading, writing
from airflow_provider_sfstream.replay_stores.table.models import MYSQL

VERSION_TABLE = "sfstream_alembic_version"
_LOCK = 0x7366_7374_7265_616D  # "sfstream", as the bigint that PostgreSQL's advisory locks take
_LOCK_SECONDS = 60
# Alembic keeps the running migration in module globals.
_one_at_a_time = threading.Lock()


def head() -> str:
    """Return the revision that this version of the package works with."""
    return cast("str", ScriptDirectory.from_config(_config()).get_current_head())


def current(engine: Engine) -> str | None:
    """Return the revision of the database; ``None`` where the tables were never created."""
    with reading(engine) as connection:
        return _revision(connection)


def upgrade(engine: Engine) -> str:
    """Create the tables, or bring them to the newest revision, and return that. Does nothing where they are current.

    Safe to call from several tasks at once: the first does it under a lock, the others wait and find it done. Where
    the database has transactional DDL (SQLite, PostgreSQL) a failed upgrade leaves no trace; elsewhere (MySQL) the
    next one goes on where it stopped.

    :raises ReplayStoreError: if the database is of a newer revision than this package, or cannot be changed.
    """
    newest = head()
    with _one_at_a_time, writing(engine) as connection, _locked(connection):
        revision = _revision(connection)
        if revision != newest:
            _refuse_newer(engine, revision)
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    return newest


def require_current(engine: Engine) -> None:
    """Do nothing but check.

    :raises ReplayStoreError: if the tables are missing or of another revision than this package works with.
    """
    revision = current(engine)
    if revision != head():
        _refuse_newer(engine, revision)
        found = "missing" if revision is None else f"of revision {revision}"
        raise ReplayStoreError(
            f"The tables of the replay store in the {describe(engine.url)} are {found}; this version needs {head()}. "
            "Upgrade them with "
            "'python -m airflow_provider_sfstream.replay_stores.table upgrade --url-env NAME', or let the store do it "
            "(migrate=True). Nothing was read or moved."
        )


def _refuse_newer(engine: Engine, revision: str | None) -> None:
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if revision is not None and revision not in known:
        raise ReplayStoreError(
            f"The tables of the replay store in the {describe(engine.url)} are of revision {revision}, which this "
            "version of airflow-provider-sfstream does not know: a newer version upgraded them. Upgrade the package on "
            "this worker. Nothing was read or moved."
        )


def _revision(connection: Connection) -> str | None:
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    return context.get_current_revision()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config


@contextmanager
def _locked(connection: Connection) -> Iterator[None]:
    """Hold the lock that upgrades take. SQLite needs none: BEGIN IMMEDIATE already is one."""
    backend = connection.dialect.name
    if backend == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        yield
    elif backend in MYSQL:
        with _mysql_lock(connection):
            yield
    else:
        yield


@contextmanager
def _mysql_lock(connection: Connection) -> Iterator[None]:
    """Hold a lock of the session: MySQL commits on every DDL statement, so one of the transaction would be gone."""
    name = "CONCAT('sfstream_schema_', MD5(DATABASE()))"  # such locks are the server's, not the database's
    if connection.execute(text(f"SELECT GET_LOCK({name}, :seconds)"), {"seconds": _LOCK_SECONDS}).scalar() != 1:
        raise ReplayStoreError(
            "Another task has been upgrading the tables of the replay store for a minute; this one gave up "
            "waiting. Nothing was changed by it. Try again."
        )
    try:
        yield
    finally:
        # It goes with the session too: on a connection that broke there is nothing left to release.
        with suppress(SQLAlchemyError):
            connection.execute(text(f"SELECT RELEASE_LOCK({name})"))
