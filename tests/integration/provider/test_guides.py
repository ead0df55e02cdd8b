"""Python snippets of the guides that are not DAGs, run unchanged against a local org."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from tests.support.guides import LIVE, SNIPPETS
from tests.support.localorg import LocalOrg, wait_until
from tests.support.tasks import context_for, set_connection

pytestmark = pytest.mark.extended
TOPIC, PUSH_TOPIC = "/event/Order__e", "/topic/OrderUpdates"
OTHERS = {
    "event-log-2": "test_event_log_delta",
    "replica-2": "test_replica_readers",
    "replica-3": "test_replica_readers",
    "replica-4": "test_replica_readers",
    "local-org-1": "the tests' own fixtures",
    "reference/changes-5": "test_replica_readers",
    "reference/spark-source-1": "test_source",
    "reference/spark-source-2": "test_source",
    "reference/spark-source-3": "the tests' own Spark session",
}
"""Snippets that these tests cover, because they have the tables that the snippets read."""


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as local_org:
        local_org.define("Order__e", Number__c="double")
        local_org.publish(TOPIC, [{"Number__c": float(n)} for n in range(3)])
        local_org.push_topic("OrderUpdates", "SELECT Id, Name FROM Account")
        yield local_org


@pytest.fixture
def connected(org: LocalOrg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalOrg:
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
    set_connection(monkeypatch, "sfstream_replay_store", conn_type="sqlite", host=str(tmp_path / "replay.db"))
    return org


def run(name: str, lake: Path) -> dict[str, object]:
    """Run a snippet with its storage in ``lake`` and return its global names."""
    code = SNIPPETS[name].replace("s3://lake", str(lake))
    code = code.replace(', landing_conn_id="lake_storage"', "")
    names: dict[str, object] = {}
    exec(compile(code, name, "exec"), names)
    return names


def test_a_connection_is_tested_with_a_topic(
    connected: LocalOrg, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    run("connection-1", tmp_path)
    run("streaming-api-3", tmp_path)
    assert [line[:6] for line in capsys.readouterr().out.splitlines()] == ["(True,"] * 2


def test_landed_events_are_read_into_pandas(connected: LocalOrg, tmp_path: Path) -> None:
    landing = str(tmp_path / "landing")
    arguments = {"landing_url": landing, "replay_store": "table", "max_events": 3}
    DrainReplayWindowOperator(task_id="drain", topic=TOPIC, **arguments).execute(context_for("drain"))
    assert list(run("landing-2", tmp_path)["orders"]["Number__c"]) == [0.0, 1.0, 2.0]  # type: ignore[index]


def test_managed_event_subscriptions_are_listed_made_and_deleted(connected: LocalOrg, tmp_path: Path) -> None:
    names = run("managed-subscriptions-3", tmp_path)
    assert list(names["hook"].list()) == []  # type: ignore[attr-defined]


def test_snippet_with_its_own_client_receives_events(connected: LocalOrg, tmp_path: Path) -> None:
    connected.admin("DELETE", "/requests")
    code = SNIPPETS["streaming-api-4"].replace("order_updates", str(tmp_path / "order_updates"))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as client:
        impatient = threading.Timer(60, client.kill)
        impatient.start()
        try:
            wait_until(lambda: connected.requests(method="/meta/subscribe"), what="a subscription")
            connected.rest("POST", "/sobjects/Account", {"Name": "Acme"})
            assert client.stdout is not None
            assert any(b"'Name': 'Acme'" in line for line in client.stdout), (
                "the client ended before it received the event"
            )
        finally:
            impatient.cancel()
            client.kill()


def test_every_snippet_of_the_guides_is_covered() -> None:
    here = {"connection-1", "streaming-api-3", "landing-2", "managed-subscriptions-3", "streaming-api-4"}
    dags = {name for name in LIVE if "with DAG(" in SNIPPETS[name]}
    assert set(LIVE) - dags == here | set(OTHERS)
