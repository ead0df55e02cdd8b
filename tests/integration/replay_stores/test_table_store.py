"""Contract of the table store only, on SQLite, PostgreSQL and MariaDB."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import certifi
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, create_engine, event, inspect, text

from airflow_provider_sfstream.exceptions import PositionConflictError, ReplayStoreError
from airflow_provider_sfstream.hooks.replay_store import ReplayStoreHook
from airflow_provider_sfstream.replay_stores.base import Position
from airflow_provider_sfstream.replay_stores.table import TableReplayStore, engine, schema
from airflow_provider_sfstream.replay_stores.table.engine import engine_for, writing
from airflow_provider_sfstream.replay_stores.table.models import Base
from tests.support.mariadb import MariaDBServer
from tests.support.postgres import PostgresServer
from tests.support.replay_stores import gap_at, minute, new_stream, run_at, table_store
from tests.support.store_processes import DEADLINE, hang_before_commit, processes, race, receive, upgrade_concurrently
from tests.support.tasks import set_connection

TABLES = {
    "sfstream_position",
    "sfstream_window",
    "sfstream_gap",
    "sfstream_reset",
    "sfstream_status",
    "sfstream_alembic_version",
}


def as_text(url: URL) -> str:
    return url.render_as_string(hide_password=False)


@pytest.mark.parametrize(
    ("database_url", "workers"),
    [
        ("sqlite", 3),
        ("postgres", 3),  # the only test on a database server that `make test` runs
        *(pytest.param(database, 5, marks=pytest.mark.extended) for database in ("sqlite", "postgres", "mariadb")),
    ],
    indirect=["database_url"],
)
def test_exactly_one_of_many_processes_advances_in_each_round(database_url: URL, workers: int) -> None:
    stream, rounds = new_stream(), 8
    barrier = multiprocessing.get_context("spawn").Barrier(workers)
    arguments = [(as_text(database_url), stream, worker, rounds, barrier) for worker in range(workers)]

    with processes(race, arguments) as started:
        wins = [receive(pipe) for _, pipe in started]

    assert sorted(number for won in wins for number in won) == list(range(rounds))
    store = TableReplayStore(database_url)
    position = store.read(stream)
    assert position.fence == rounds
    last_winner = next(worker for worker, won in enumerate(wins) if rounds - 1 in won)
    assert position.replay_id == bytes([rounds, last_winner])
    for worker, won in enumerate(wins):
        for number in range(rounds):
            recorded = store.windows_of_run(stream, run_at(number, map_index=worker))
            assert len(recorded) == (number in won)
    store.close()


def test_process_killed_before_its_commit_records_nothing(database_url: URL, tmp_path: Path) -> None:
    under_test = table_store(tmp_path / "landing", database_url)
    stream = new_stream()
    under_test.advance(stream, b"\x01", run_at(1))
    position = under_test.store.read(stream)
    window = under_test.land(stream, position, b"\x02", run_at(2), events=(1, 2), gap=gap_at(2))

    with processes(hang_before_commit, [(as_text(database_url), stream, window)]) as [(process, pipe)]:
        assert receive(pipe) == "about to commit"
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(DEADLINE)

    assert process.exitcode == -signal.SIGKILL
    assert under_test.store.read(stream) == position
    assert under_test.store.windows_of_run(stream, window.run) == []
    assert under_test.store.gaps(stream) == []
    under_test.store.advance(stream, position, window)
    assert under_test.store.windows_of_run(stream, window.run) == [window]
    under_test.store.close()


def test_read_does_not_wait_for_a_writer(database_url: URL, tmp_path: Path) -> None:
    under_test = table_store(tmp_path / "landing", database_url)
    stream = new_stream()
    under_test.advance(stream, b"\x01", run_at(1))
    position = under_test.store.read(stream)
    window = under_test.land(stream, position, b"\x02", run_at(2))

    with processes(hang_before_commit, [(as_text(database_url), stream, window)]) as [(_, pipe)]:
        assert receive(pipe) == "about to commit"
        assert under_test.open().read(stream) == position


def test_wait_for_a_hanging_writer_ends_after_the_lock_timeout(
    database_url: URL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "LOCK_SECONDS", 1)
    # On SQLite this is the wait for the lock. On the servers it limits connecting, which is not tested here.
    monkeypatch.setattr(engine, "CONNECT_SECONDS", 1 if database_url.get_backend_name() == "sqlite" else 60)
    under_test = table_store(tmp_path / "landing", database_url)
    stream = new_stream()
    under_test.advance(stream, b"\x01", run_at(1))
    position = under_test.store.read(stream)
    window = under_test.land(stream, position, b"\x02", run_at(2))
    rival = under_test.land(stream, position, b"\x03", run_at(3))

    with processes(hang_before_commit, [(as_text(database_url), stream, rival)]) as [(_, pipe)]:
        assert receive(pipe) == "about to commit"
        with pytest.raises(ReplayStoreError, match=r"(?i)lock") as raised:
            under_test.store.advance(stream, position, window)

    assert raised.value.retriable
    assert not isinstance(raised.value, PositionConflictError)
    under_test.store.close()


def test_several_tasks_may_create_the_tables_at_the_same_time(database_url: URL) -> None:
    barrier = multiprocessing.get_context("spawn").Barrier(3)

    with processes(upgrade_concurrently, [(as_text(database_url), barrier)] * 3) as started:
        revisions = [receive(pipe) for _, pipe in started]

    assert revisions == [schema.REVISION] * 3
    database = engine_for(database_url)
    assert set(inspect(database).get_table_names()) == TABLES
    database.dispose()


def test_migrations_create_the_tables_of_the_models(database_url: URL) -> None:
    database = engine_for(database_url)
    assert schema.current(database) is None
    schema.upgrade(database)

    with database.connect() as connection:
        options = {"version_table": schema.VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, Base.metadata) == []
        assert context.get_current_revision() == schema.REVISION
    assert ScriptDirectory(str(Path(schema.__file__).parent / "migrations")).get_heads() == [schema.REVISION]
    assert schema.upgrade(database) == schema.current(database) == schema.REVISION
    database.dispose()


def test_upgrade_interrupted_after_any_statement_is_finished_by_the_next(database_url: URL) -> None:
    class CutOffError(Exception):
        pass

    def cut_off(connection: object, cursor: object, statement: str, *_: object) -> None:
        if statement.lstrip().upper().startswith(("CREATE", "ALTER", "INSERT", "UPDATE")) and next(statements) == 0:
            raise CutOffError

    database = engine_for(database_url)
    for number in itertools.count():
        statements = itertools.count(-number)
        event.listen(database, "after_cursor_execute", cut_off)
        with suppress(CutOffError):
            schema.upgrade(database)
            break
        event.remove(database, "after_cursor_execute", cut_off)

        schema.upgrade(database)

        with database.connect() as connection:
            options = {"version_table": schema.VERSION_TABLE, "compare_type": True}
            assert compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata) == []
        assert schema.current(database) == schema.REVISION
        with writing(database) as connection:
            for name in TABLES:
                connection.exec_driver_sql(f"DROP TABLE {name}")
    assert number > 10
    database.dispose()


@pytest.mark.extended
@pytest.mark.parametrize("database_url", ["postgres", "mariadb"], indirect=True)  # SQLite stores text of any length
def test_value_too_long_for_its_column_is_refused_and_not_truncated(database_url: URL, tmp_path: Path) -> None:
    under_test = table_store(tmp_path, database_url)
    stream = new_stream()

    with pytest.raises(ReplayStoreError, match=r"(?i)too long"):
        under_test.advance(stream, b"\x01", replace(run_at(1), run_id="r" * 256))

    assert under_test.store.read(stream) == Position()
    under_test.store.close()


def test_tables_of_others_in_the_database_remain_unchanged(database_url: URL) -> None:
    database = create_engine(database_url)
    with database.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('somebody elses')"))

    TableReplayStore(database_url).read(new_stream())

    with database.connect() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all() == ["somebody elses"]
    database.dispose()


def test_store_without_migration_names_the_upgrade_command(database_url: URL) -> None:
    store = TableReplayStore(database_url, migrate=False)
    with pytest.raises(ReplayStoreError, match=r"stores\.table upgrade"):
        store.read(new_stream())

    TableReplayStore(database_url).read(new_stream())

    assert store.read(new_stream()) == Position()
    store.close()


@pytest.mark.parametrize("migrate", [True, False])
def test_tables_of_a_newer_version_are_refused_and_not_changed(database_url: URL, migrate: bool) -> None:
    database = engine_for(database_url)
    schema.upgrade(database)
    with database.begin() as connection:
        connection.execute(text("UPDATE sfstream_alembic_version SET version_num = '9999'"))

    with pytest.raises(ReplayStoreError, match=r"9999.*newer version"):
        TableReplayStore(database, migrate=migrate).read(new_stream())

    assert schema.current(database) == "9999"
    database.dispose()


def test_the_command_upgrades_and_shows_the_revision(database_url: URL) -> None:
    def command(name: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "airflow_provider_sfstream.replay_stores.table", name, "--url-env", "POSITIONS_URL"],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )

    url = as_text(database_url)
    assert "no tables yet" in command("current", POSITIONS_URL=url).stdout
    upgraded = command("upgrade", POSITIONS_URL=url)
    assert (upgraded.returncode, upgraded.stderr) == (0, "")
    assert f": {schema.REVISION} (" in command("current", POSITIONS_URL=url).stdout
    assert command("current").returncode == 2
    broken = command("upgrade", POSITIONS_URL="postgresql+psycopg2://me:hidden-word@:x/y")
    assert broken.returncode == 1
    assert "malformed" in broken.stderr
    assert "hidden-word" not in broken.stderr


@pytest.mark.extended
def test_wrong_postgres_password_is_not_in_the_error(postgres_server: PostgresServer) -> None:
    store = TableReplayStore(postgres_server.url(password="not-the-password"))

    with pytest.raises(ReplayStoreError, match=r"127\.0\.0\.1.*login") as raised:
        store.read(new_stream())

    assert raised.value.retriable
    assert "not-the-password" not in f"{raised.value}{raised.value.__cause__}{store!r}"


def test_unreachable_database_server_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        port = taken.getsockname()[1]
        store = TableReplayStore(f"postgresql+psycopg2://me:hidden-word@127.0.0.1:{port}/positions")

        with pytest.raises(
            ReplayStoreError, match=f"positions on 127.0.0.1:{port}.*Check that the server runs"
        ) as raised:
            store.read(new_stream())

    assert "hidden-word" not in str(raised.value)


@pytest.mark.extended
def test_ended_postgres_sessions_are_reconnected(postgres_server: PostgresServer, tmp_path: Path) -> None:
    url = postgres_server.new_database()
    under_test = table_store(tmp_path, url)
    stream = new_stream()
    under_test.advance(stream, b"\x01", run_at(1))
    other = create_engine(url)
    with other.connect() as connection:
        ended = connection.execute(
            text(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        ).scalar_one()
    other.dispose()

    assert ended >= 1
    under_test.advance(stream, b"\x02", run_at(2))
    under_test.store.close()


@pytest.mark.extended
def test_ended_mariadb_sessions_are_reconnected(mariadb_server: MariaDBServer, tmp_path: Path) -> None:
    url = mariadb_server.new_database()
    under_test = table_store(tmp_path, url)
    stream = new_stream()
    under_test.advance(stream, b"\x01", run_at(1))
    connection = mariadb_server.connect()
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", (url.database,))
        sessions = [number for (number,) in cursor.fetchall()]
        for number in sessions:
            cursor.execute(f"KILL {number}")
    connection.close()

    assert sessions
    under_test.advance(stream, b"\x02", run_at(2))
    under_test.store.close()


@pytest.mark.extended
def test_mysql_and_mariadb_urls_are_the_same_store(mariadb_server: MariaDBServer, tmp_path: Path) -> None:
    url = mariadb_server.new_database()
    under_test = table_store(tmp_path, url.set(drivername="mariadb+pymysql"))
    stream = new_stream()

    window = under_test.advance(stream, b"\x01", run_at(1), events=(0.0001, 1))

    other = TableReplayStore(url)
    assert other.read(stream) == under_test.store.read(stream)
    assert other.windows_of_run(stream, window.run) == under_test.store.windows_of_run(stream, window.run) == [window]
    other.close()
    under_test.store.close()


@pytest.mark.extended
def test_airflow_connection_to_mariadb_works_without_the_mysql_provider(
    mariadb_server: MariaDBServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, stream = mariadb_server.new_database(), new_stream()
    password = "pæss %wörd€/@ łódź"
    mariadb_server.execute("CREATE USER %s@'127.0.0.1' IDENTIFIED BY %s", f"u{url.database[-8:]}", password)
    mariadb_server.execute(f"GRANT ALL ON {url.database}.* TO %s@'127.0.0.1'", f"u{url.database[-8:]}")
    fields = {
        "conn_type": "mysql",
        "host": url.host,
        "port": url.port,
        "login": f"u{url.database[-8:]}",
        "password": password,
        "schema": url.database,
    }

    def store(**extra: object) -> TableReplayStore:
        set_connection(monkeypatch, "sfstream_replay_store", **fields, extra=extra)
        return ReplayStoreHook().get_conn()

    trusting = store(ssl={"ca": str(mariadb_server.ca)})
    moved = trusting.reset(stream, b"\x01", reason="why", updated_by="me")
    assert store(ssl_mode="REQUIRED").read(stream) == store(ssl_mode="DISABLED").read(stream) == moved
    with engine.reading(trusting._engine) as connection:
        assert connection.exec_driver_sql("SHOW STATUS LIKE 'Ssl_version'").one()[1].startswith("TLS")

    another = certifi.where()
    with pytest.raises(ReplayStoreError, match="CERTIFICATE_VERIFY_FAILED") as raised:
        store(ssl={"ca": another}).read(stream)
    assert password not in str(raised.value)


@pytest.mark.extended
def test_wrong_mariadb_password_is_not_in_the_error(mariadb_server: MariaDBServer) -> None:
    store = TableReplayStore(mariadb_server.url(password="not-the-password"))

    with pytest.raises(ReplayStoreError, match=r"127\.0\.0\.1.*login") as raised:
        store.read(new_stream())

    assert "not-the-password" not in f"{raised.value}{raised.value.__cause__}{store!r}"


def test_query_of_the_window_before_a_time_uses_the_index(tmp_path: Path) -> None:
    database = engine_for(f"sqlite:///{tmp_path}/positions.db")
    under_test = table_store(tmp_path, database)
    stream = new_stream()
    window = under_test.advance(stream, b"\x01", run_at(1), covered=(0, 1))
    queries: list[tuple[str, Any]] = []

    def remember(connection: object, cursor: object, statement: str, parameters: Any, *_: object) -> None:
        queries.append((statement, parameters))

    event.listen(database, "before_cursor_execute", remember)
    assert under_test.store.window_before(stream, minute(9)) == window
    event.remove(database, "before_cursor_execute", remember)

    with database.connect() as connection:
        plans = [
            " ".join(row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters))
            for statement, parameters in queries
            if statement.startswith("SELECT")
        ]
    index = "SEARCH sfstream_window USING INDEX ix_sfstream_window_contact"
    assert len(plans) == 2
    assert f"{index} (stream_key=? AND contact_at<?)" in plans[0]
    assert f"{index} (stream_key=? AND contact_at=? AND last_event_time<?)" in plans[1]
    under_test.store.close()


def test_file_that_is_not_a_database_is_named(tmp_path: Path) -> None:
    file = tmp_path / "positions.db"
    file.write_bytes(b"not a database, but long enough to be taken for a broken one" * 20)

    with pytest.raises(ReplayStoreError, match=r"positions\.db.*not a database"):
        TableReplayStore(f"sqlite:///{file}").read(new_stream())

    assert file.read_bytes().startswith(b"not a database")
