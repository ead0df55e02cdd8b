"""Creation and upgrade of the tables, safe for several tasks at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, column, inspect, select, table, text
from sqlalchemy.exc import SQLAlchemyError

from airflow_provider_sfstream.exceptions import ReplayStoreError
from airflow_provider_sfstream.replay_stores.table.engine import describe, reading, writing
from airflow_provider_sfstream.replay_stores.table.models import MYSQL

if TYPE_CHECKING:
    from alembic.config import Config

REVISION = "0005"
"""Revision that this version of the package requires: the newest in ``migrations``."""
VERSION_TABLE = "sfstream_alembic_version"
_LOCK = 0x7366_7374_7265_616D  # "sfstream", as the bigint that PostgreSQL's advisory locks take
_LOCK_SECONDS = 60
# Alembic keeps the running migration in module globals.
_upgrade_lock = threading.Lock()


def current(engine: Engine) -> str | None:
    """Return the revision of the database; ``None`` if the tables do not exist."""
    with reading(engine) as connection:
        return _revision(connection)


def upgrade(engine: Engine) -> str:
    """Create the tables, or upgrade them to the newest revision, and return it. If they are current, only read it,
    without a lock and without the import of Alembic.

    Several tasks may call this at the same time: the first upgrades under a lock, the others wait and find the tables
    current. Where the database has transactional DDL (SQLite, PostgreSQL) a failed upgrade changes nothing; elsewhere
    (MySQL) the next upgrade continues where it stopped.

    :raises ReplayStoreError: if the database has a newer revision than this package, or cannot be changed.
    """
    if current(engine) == REVISION:
        return REVISION
    from alembic import command

    with _upgrade_lock, writing(engine) as connection, _locked(connection):
        revision = _revision(connection)
        if revision != REVISION:
            _reject_newer(engine, revision)
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, REVISION)
    return REVISION


def require_current(engine: Engine) -> None:
    """Raise :class:`ReplayStoreError` if the tables are missing, or not of the revision of this package."""
    revision = current(engine)
    if revision != REVISION:
        _reject_newer(engine, revision)
        state = "missing" if revision is None else f"of revision {revision}"
        raise ReplayStoreError(
            f"The tables of the replay store in the {describe(engine.url)} are {state}; this version requires "
            f"{REVISION}. Upgrade them with "
            "'python -m airflow_provider_sfstream.replay_stores.table upgrade --url-env NAME', or set migrate=True, so "
            "that the store upgrades them. Nothing was read or moved."
        )


def _reject_newer(engine: Engine, revision: str | None) -> None:
    from alembic.script import ScriptDirectory

    revisions = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if revision is not None and revision not in revisions:
        raise ReplayStoreError(
            f"The tables of the replay store in the {describe(engine.url)} are of revision {revision}, which is "
            "unknown to this version of airflow-provider-sfstream. A newer version upgraded them: upgrade the package "
            f"on this worker. Tables before {REVISION} are of development versions: use an empty database. Nothing was "
            "read or moved."
        )


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    revision: str | None = connection.execute(select(column("version_num")).select_from(table(VERSION_TABLE))).scalar()
    return revision


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config


@contextmanager
def _locked(connection: Connection) -> Iterator[None]:
    """Hold the lock of upgrades. SQLite needs none: BEGIN IMMEDIATE already locks."""
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
    """Hold a lock of the session: MySQL commits at every DDL statement, which would release a transaction's lock."""
    name = "CONCAT('sfstream_schema_', MD5(DATABASE()))"  # these locks belong to the server, not to the database
    if connection.execute(text(f"SELECT GET_LOCK({name}, :seconds)"), {"seconds": _LOCK_SECONDS}).scalar() != 1:
        raise ReplayStoreError(
            "Another task has been upgrading the tables of the replay store for a minute; this task "
            "stopped waiting and changed nothing. Retry the task."
        )
    try:
        yield
    finally:
        # The end of the session releases the lock too: a broken connection holds no lock.
        with suppress(SQLAlchemyError):
            connection.execute(text(f"SELECT RELEASE_LOCK({name})"))
