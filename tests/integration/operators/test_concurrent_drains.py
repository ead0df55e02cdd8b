"""Concurrent drains of one stream in two processes, with a replay table in PostgreSQL or MariaDB: one commits."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.salesforce.streams import Stream
from tests.support.localorg import LocalOrg
from tests.support.mariadb import mariadb_server
from tests.support.postgres import postgres_server
from tests.support.store_processes import processes
from tests.support.tasks import context_for, set_connection

__all__ = ["mariadb_server", "postgres_server"]

TOPIC = "/event/Order__e"
DEADLINE = 120


@pytest.fixture
def org(tmp_path: Path) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path / "org") as local_org:
        local_org.define("Order__e", Number__c="double")
        local_org.publish(TOPIC, [{"Number__c": float(n)} for n in range(300)])
        yield local_org


def drain_once(results: Connection, run_id: str, landing_url: str, both: Barrier) -> None:
    """Run the operator; read events only after the other process has also read the position, and advance only after it
    has also landed its window."""
    advance, known_position = TableReplayStore.advance, LandedStream.known_position

    def known_position_of_both(self: LandedStream, *arguments: Any) -> Any:
        position = known_position(self, *arguments)
        both.wait(DEADLINE)
        return position

    def advance_after_both_landed(self: TableReplayStore, *arguments: Any) -> Any:
        both.wait(DEADLINE)
        return advance(self, *arguments)

    LandedStream.known_position = known_position_of_both  # type: ignore[method-assign]
    TableReplayStore.advance = advance_after_both_landed  # type: ignore[method-assign]
    operator = DrainReplayWindowOperator(
        task_id="drain", topic=TOPIC, landing_url=landing_url, replay_store="table", idle_timeout=1.0
    )
    try:
        results.send(("won", operator.execute(context_for("drain", run_id=run_id))))
    except Exception as error:
        results.send((type(error).__name__, str(error)))


@pytest.mark.extended
@pytest.mark.parametrize(("conn_type", "server"), [("postgres", "postgres_server"), ("mysql", "mariadb_server")])
def test_one_concurrent_drain_commits_and_the_other_names_its_run(
    org: LocalOrg,
    conn_type: str,
    server: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = request.getfixturevalue(server).new_database()
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
    set_connection(
        monkeypatch,
        "sfstream_replay_store",
        conn_type=conn_type,
        host=url.host,
        port=url.port,
        login=url.username,
        password=url.password,
        schema=url.database,
    )
    landing_url = str(tmp_path / "landing")
    barrier = multiprocessing.get_context("spawn").Barrier(2)
    with processes(drain_once, [("run-a", landing_url, barrier), ("run-b", landing_url, barrier)]) as started:
        answers = []
        for _, results in started:
            assert results.poll(DEADLINE), "a drain did not end"
            answers.append(results.recv())
    outcomes = dict(answers)
    assert set(outcomes) == {"won", "PositionConflictError"}, answers
    won = outcomes["won"]
    winner = "run-a" if answers[0][0] == "won" else "run-b"
    assert winner in outcomes["PositionConflictError"]
    assert str(url.password) not in outcomes["PositionConflictError"]

    record = [event["replay_id"] for event in org.record(TOPIC)]
    store = TableReplayStore(url)
    stream = Stream(org.org_id, "pubsub", TOPIC)
    assert store.read(stream).replay_id == record[-1]
    windows = [w for run in ("run-a", "run-b") for w in store.windows_of_run(stream, run_identity_of(run))]
    store.close()
    assert [window.window_id for window in windows] == [won["window_id"]]
    manifest = LandingCatalog(Landing.from_url(landing_url)).read_manifest_url(won["manifest_url"])
    folder = Path(won["manifest_url"].removeprefix("file://")).parent
    landed = [key for f in manifest.files for key in pq.read_table(folder / f.name)["replay_id"].to_pylist()]
    assert landed == record


def run_identity_of(run_id: str) -> Any:
    """Return the identity that the operator derived from the context of ``run_id``."""
    from airflow_provider_sfstream.actions.task_runs import run_identity

    return run_identity(context_for("drain", run_id=run_id))
