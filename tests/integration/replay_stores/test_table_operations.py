"""Upgrades of the replay table, and the documented database user for tasks, which cannot change its schema."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import URL, create_engine, event, inspect, text

from airflow_provider_sfstream.exceptions import ReplayStoreError
from airflow_provider_sfstream.replay_stores.table import schema
from airflow_provider_sfstream.replay_stores.table.__main__ import main
from airflow_provider_sfstream.replay_stores.table.engine import engine_for
from tests.support.postgres import PostgresServer
from tests.support.replay_stores import gap_at, minute, new_stream, run_at, table_store

GUIDE = Path(__file__).parents[3] / "docs" / "operations.md"


def new_task_user(url: URL) -> URL:
    """Create a database user that may only connect, and return its URL."""
    name, password = f"tasks_{uuid4().hex[:8]}", uuid4().hex
    database = create_engine(url)
    with database.begin() as connection:
        connection.execute(text(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'"))
        connection.execute(text("REVOKE CREATE ON SCHEMA public FROM PUBLIC"))
    database.dispose()
    return url.set(username=name, password=password)


@pytest.mark.extended
def test_tasks_need_no_privilege_to_change_the_schema(
    postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    owner = postgres_server.new_database()
    tasks = new_task_user(owner)
    under_test = table_store(tmp_path, tasks)
    stream = new_stream()
    with pytest.raises(ReplayStoreError, match="permission denied"):
        under_test.store.read(stream)

    monkeypatch.setenv("POSITIONS_URL", owner.render_as_string(hide_password=False))
    assert main(["upgrade", "--url-env", "POSITIONS_URL"]) == 0
    assert main(["current", "--url-env", "POSITIONS_URL"]) == 0
    assert capsys.readouterr().out.count(schema.REVISION) == 4
    [grants] = [block for block in re.findall(r"```sql\n(.*?)```", GUIDE.read_text(), re.DOTALL) if "GRANT" in block]
    database = engine_for(owner)
    with database.begin() as connection:
        for statement in filter(None, map(str.strip, grants.replace(" tasks", f" {tasks.username}").split(";"))):
            connection.execute(text(statement))
    database.dispose()

    window = under_test.advance(stream, b"\x01", run_at(1), events=(0, 1), gap=gap_at(1))
    backfill = under_test.land(stream, under_test.store.read(stream), b"\x02", run_at(2), kind="backfill")
    under_test.store.record_backfill(stream, backfill)
    under_test.store.record_gap(stream, gap_at(2))
    under_test.store.reset(stream, b"\x00", reason="test", updated_by="test")
    assert under_test.store.windows_overlapping(stream, minute(0), minute(9)) == [window]
    assert [gap.detected_at for gap in under_test.store.gaps(stream)] == [minute(1), minute(2)]
    assert len(under_test.store.resets(stream)) == 1
    under_test.store.forget_windows(stream, [window.window_id])
    assert under_test.store.windows_of_run(stream, window.run) == []
    under_test.store.close()


def test_upgrade_that_failed_midway_can_be_repeated(database_url: URL) -> None:
    database = engine_for(database_url)

    def fail(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if "ix_sfstream_window_contact" in statement:
            raise ConnectionResetError

    event.listen(database, "before_cursor_execute", fail)
    with pytest.raises(ConnectionResetError):
        schema.upgrade(database)
    event.remove(database, "before_cursor_execute", fail)
    tables = inspect(database).get_table_names()
    if database.dialect.name in ("sqlite", "postgresql"):
        assert tables == []

    assert schema.upgrade(database) == schema.current(database) == schema.REVISION
    database.dispose()
