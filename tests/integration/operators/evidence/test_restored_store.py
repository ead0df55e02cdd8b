"""Replay store restored from an old backup: drains refuse to read until the position is restored from the landing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.exceptions import ReplayStoreLostError
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.restore_replay_position import RestoreReplayPositionOperator
from airflow_provider_sfstream.replay_stores.document import airflow_variables
from airflow_provider_sfstream.salesforce.streams import Stream
from tests.support.landed import landed_replay_ids, replay_ids_of
from tests.support.shared_org import SharedOrg, org, shared_org
from tests.support.tasks import context_for, error_text, set_connection

__all__ = ["org", "shared_org"]


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Replace Airflow Variables, which need a running Airflow, with a dictionary."""
    values: dict[str, str] = {}
    monkeypatch.setattr(airflow_variables, "get_variable", values.get)
    monkeypatch.setattr(airflow_variables, "set_variable", lambda key, value, _: values.update({key: value}))
    monkeypatch.setattr(airflow_variables, "variable_keys", lambda prefix: [k for k in values if k.startswith(prefix)])
    return values


@pytest.fixture
def backups(tmp_path: Path, variables: dict[str, str]) -> dict[str, Callable[[], Callable[[], Any]]]:
    """Return, by store, a function that makes a backup and returns a function that restores it."""

    def of_file(path: Path) -> Callable[[], Callable[[], Any]]:
        def back_up() -> Callable[[], Any]:
            copy = tmp_path / "backup"
            (shutil.copytree if path.is_dir() else shutil.copy)(path, copy)

            def put_back() -> None:
                if path.is_dir():
                    shutil.rmtree(path)
                    shutil.copytree(copy, path)
                else:
                    shutil.copy(copy, path)

            return put_back

        return back_up

    def of_variables() -> Callable[[], Any]:
        copy = dict(variables)
        return lambda: (variables.clear(), variables.update(copy))

    return {
        "table": of_file(tmp_path / "replay.db"),
        "landing": of_file(tmp_path / "lake" / "positions"),
        "variable": of_variables,
    }


@pytest.mark.parametrize("kind", ["table", "variable", "landing"])
def test_each_event_is_landed_and_returned_once_after_a_restored_backup(
    kind: str,
    org: SharedOrg,
    backups: dict[str, Callable[[], Callable[[], Any]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
    set_connection(monkeypatch, "sfstream_replay_store", conn_type="sqlite", host=str(tmp_path / "replay.db"))
    stream = Stream(org.org_id, "pubsub", org.topic)
    org.knobs(keepalive_seconds=0.2)
    names: dict[str, Any] = {"topic": org.topic, "landing_url": str(tmp_path / "lake"), "replay_store": kind}

    def drain(number: int, try_number: int = 1) -> dict[str, Any]:
        operator = DrainReplayWindowOperator(task_id="drain", idle_timeout=1.0, **names)
        return operator.execute(context_for("drain", f"run-{number}", try_number, hour=number))

    def publish(count: int) -> list[bytes]:
        return org.publish(org.topic, [{"Number__c": float(number)} for number in range(count)])

    published = publish(6)
    results = [drain(1)]
    put_back = backups[kind]()
    published += publish(5)
    results.append(drain(2))
    published += publish(4)
    results.append(drain(3))
    put_back()

    for number, try_number in ((4, 1), (3, 2), (2, 2)):
        with pytest.raises((AirflowFailException, ReplayStoreLostError)) as raised:
            drain(number, try_number)
        assert "RestoreReplayPositionOperator" in error_text(raised.value)
        assert "Nothing was read from Salesforce" in error_text(raised.value)
    assert landed_replay_ids(tmp_path / "lake", stream) == published

    restored = RestoreReplayPositionOperator(task_id="restore", **names).execute(context_for("restore"))
    assert restored["live_windows"] == 2
    for number in (2, 3):
        again = drain(number, try_number=3)
        assert (again["window_id"], again["event_count"]) == (
            results[number - 1]["window_id"],
            results[number - 1]["event_count"],
        )
    assert drain(4)["event_count"] == 0
    published += publish(3)
    results.append(drain(5))
    assert [key for result in results for key in replay_ids_of(result["manifest_url"])] == published
    assert landed_replay_ids(tmp_path / "lake", stream) == published
