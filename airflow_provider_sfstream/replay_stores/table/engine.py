"""Database engines of the table store: supported URLs, connections and error messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, SQLAlchemyError

from airflow_provider_sfstream.exceptions import ConfigurationError, ReplayStoreError
from airflow_provider_sfstream.redaction import remember_secrets
from airflow_provider_sfstream.replay_stores.table.models import MYSQL

CONNECT_SECONDS = 15
"""Seconds to wait for a connection, and on SQLite for another writer to finish."""

LOCK_SECONDS = 60
"""Seconds to wait on PostgreSQL and MySQL for an open transaction of another process."""

_WRITES = "sfstream_writes"


def engine_for(engine_or_url: Engine | URL | str) -> Engine:
    """Return an engine whose transactions are short, checked before use, and do not log values.

    A given engine is used unchanged, apart from its isolation level: READ COMMITTED, and BEGIN IMMEDIATE for writes on
    SQLite.

    :raises ConfigurationError: if the URL is malformed, the driver is not installed, or the database does not persist
        data (SQLite in memory).
    """
    if isinstance(engine_or_url, Engine):
        engine = engine_or_url
        _reject_memory(engine.url)
    else:
        engine = _create(engine_or_url)
    if engine.dialect.name != "sqlite":
        return engine.execution_options(isolation_level="READ COMMITTED")
    if not event.contains(engine, "begin", _begin_sqlite):
        event.listen(engine, "connect", _disable_driver_transactions)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def describe(url: URL) -> str:
    """Return the name of the database in errors: backend, host and database, never a credential or option."""
    if url.get_backend_name() == "sqlite":
        return f"SQLite database {url.database}"
    port = "" if url.port is None else f":{url.port}"
    return f"{url.get_backend_name()} database {url.database or '(default)'} on {url.host or 'the local socket'}{port}"


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Yield a connection for reads. After a statement ends it holds no lock that blocks a writer."""
    with _translate_errors(engine), engine.connect() as connection:
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Yield a connection in one transaction: committed at the end, rolled back on any exception.

    :raises IntegrityError: if another transaction inserted the same key meanwhile; nothing was written.
    """
    with (
        _translate_errors(engine),
        engine.connect().execution_options(**{_WRITES: True}) as connection,
        connection.begin(),
    ):
        _prepare(connection)
        yield connection


def _prepare(connection: Connection) -> None:
    """Limit the waits of a transaction, and make the database refuse values that do not fit their column."""
    # Without a limit, the transaction of a worker that lost its network blocks others until TCP times out.
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
    elif connection.dialect.name in MYSQL:
        # Without strict mode MySQL truncates long values, replay IDs too, and only warns.
        connection.exec_driver_sql(
            "SET SESSION sql_mode = CONCAT(@@SESSION.sql_mode, ',STRICT_ALL_TABLES'), "
            f"innodb_lock_wait_timeout = {LOCK_SECONDS}, lock_wait_timeout = {LOCK_SECONDS}"
        )


@contextmanager
def _translate_errors(engine: Engine) -> Iterator[None]:
    try:
        yield
    except IntegrityError:
        raise
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        text = " ".join(str(cause).split())
        raise ReplayStoreError(
            f"The replay store could not access the {describe(engine.url)} ({type(cause).__name__}: {text}). "
            "This call did not move the position, unless a later read shows it; a retry is safe. Check that the server "
            "runs and is reachable from this worker, and that the login of the connection has access to the database."
        ) from error


def _create(url: URL | str) -> Engine:
    try:
        parsed = make_url(url)
        remember_secrets(None if parsed.password is None else str(parsed.password))
        _reject_memory(parsed)
        backend = parsed.get_backend_name()
        seconds = "timeout" if backend == "sqlite" else "connect_timeout"
        arguments: dict[str, Any] = {} if seconds in parsed.query else {seconds: CONNECT_SECONDS}
        if parsed.get_driver_name() == "pymysql" and parsed.password:
            # The driver would encode the password in Latin-1, but the server compares it in UTF-8.
            arguments["password"] = str(parsed.password).encode()
        return create_engine(parsed, pool_pre_ping=True, pool_size=1, hide_parameters=True, connect_args=arguments)
    except (ArgumentError, ValueError):
        # The messages of these errors repeat parts of the URL, and so may show the password.
        raise ConfigurationError(
            "The replay store's database URL is malformed (it is not shown, because it may contain a password). "
            "Use dialect+driver://user:password@host:port/database. Nothing was read or moved."
        ) from None
    except (NoSuchModuleError, ImportError) as error:
        raise ConfigurationError(
            f"The driver for the replay store's database is not installed ({error}). Install it on every worker, for "
            "PostgreSQL with: pip install 'airflow-provider-sfstream[postgres]', for MySQL and MariaDB with "
            "'airflow-provider-sfstream[mysql]'. Nothing was read or moved."
        ) from error


def _reject_memory(url: URL) -> None:
    if url.get_backend_name() == "sqlite" and (url.database or ":memory:") == ":memory:":
        raise ConfigurationError(
            "A replay store in a SQLite database in memory loses every position when the task ends. "
            "Use the absolute path of a file, or PostgreSQL. Nothing was read or moved."
        )


def _disable_driver_transactions(connection: Any, record: object) -> None:
    # The driver begins a transaction only at the first write, after the reads that the write depends on.
    connection.isolation_level = None


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
