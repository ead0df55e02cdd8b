"""Status documents of tasks: they match the org's record, and an error in storing them never fails a task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.actions.status import report_event_log
from airflow_provider_sfstream.monitoring.known_status import ReportedStatus
from airflow_provider_sfstream.monitoring.table_status import TableStatusStore
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.spark_submit_event_log import SparkSubmitEventLogOperator
from tests.support.localorg import LocalOrg, org
from tests.support.tasks import context_for, set_connection

__all__ = ["org"]
TOPIC = "/event/Order__e"
URI = "sfstream://salesforce_default/event/Order__e?subscription=airflow"


@pytest.fixture
def statuses(org: LocalOrg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableStatusStore]:
    database = tmp_path / "replay.db"
    org.define("Order__e", Number__c="double")
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
    set_connection(monkeypatch, "sfstream_replay_store", conn_type="sqlite", host=str(database))
    monkeypatch.setenv("AIRFLOW__SFSTREAM__STATUS_CONN_ID", "sfstream_replay_store")
    store = TableStatusStore(f"sqlite:///{database}")
    yield store
    store.close()


def drain(tmp_path: Path, **arguments: Any) -> DrainReplayWindowOperator:
    given = {"topic": TOPIC, "landing_url": str(tmp_path / "landing"), "idle_timeout": 2.0, **arguments}
    return DrainReplayWindowOperator(task_id="drain", replay_store="table", **given)


def sections(statuses: TableStatusStore) -> dict[str, Any]:
    return {each.section: each.document for each in statuses.statuses(subject=URI)}


def test_the_status_of_a_drain_matches_the_record_of_the_org(
    org: LocalOrg, statuses: TableStatusStore, tmp_path: Path
) -> None:
    for number in (1, 2):
        org.publish(TOPIC, [{"Number__c": float(number)}] * 3)
        result = drain(tmp_path).execute(context_for("drain", run_id=f"run-{number}"))
    stored = sections(statuses)
    record = org.record(TOPIC)
    assert stored["drain"]["position"] == record[-1]["replay_id"].hex() == result["through"]
    assert sum(stored["drain"]["hours"].values()) == len(record) == 6
    assert stored["drain"].get("confirmed_at") == result["confirmed_at"]
    assert [line["event_count"] for line in stored["windows"]["windows"]] == [3, 3]
    assert stored["windows"]["windows"][-1]["manifest_url"] == result["manifest_url"]
    assert stored["drain"]["task"]["run_id"] == "run-2"
    assert result["asset_uri"] == URI
    assert not ReportedStatus(statuses.statuses()).failures(URI)


def test_the_status_of_an_event_log_names_the_last_run_with_quarantined_rows(statuses: TableStatusStore) -> None:
    for run, quarantined in (("run-1", 2), ("run-2", 0)):
        context = context_for("event_log", run_id=run)
        report_event_log(URI, "s3://lake/tables", context, {"quarantined": quarantined, "windows": [run]})
    [stored] = [document for section, document in sections(statuses).items() if section.startswith("event_log.")]
    assert (stored["task"]["run_id"], stored["quarantined"], stored["output_url"]) == ("run-2", 0, "s3://lake/tables")
    assert (stored["set_aside"]["rows"], stored["set_aside"]["task"]["run_id"]) == (2, "run-1")


def test_the_status_of_a_failed_drain_has_its_failure_report(
    org: LocalOrg, statuses: TableStatusStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    org.publish(TOPIC, [{"Number__c": 1.0}])
    drain(tmp_path).execute(context_for("drain"))
    connection = org.airflow_connection()
    connection["extra"] = {**connection["extra"], "consumer_secret": "wrong"}
    set_connection(monkeypatch, "salesforce_default", **connection)
    # The failure of another task of the stream does not replace the failure of the drain.
    for task_id in ("drain", "drain_night", "drain"):
        context = context_for(task_id, run_id="run-9")
        monkeypatch.setattr("airflow.sdk.get_current_context", lambda context=context: context)
        with pytest.raises(AirflowFailException):
            drain(tmp_path).execute(context)
    failures = ReportedStatus(statuses.statuses()).failures(URI)
    assert [failure["task"]["task_id"] for failure in failures] == ["drain", "drain_night"]
    for failure in failures:
        assert "refused the login" in failure["report"]["Error"]
        assert failure["task"]["run_id"] == "run-9"
    assert sections(statuses)["drain"]["task"]["run_id"] == "run-1"


def test_a_drain_succeeds_when_its_status_cannot_be_stored(
    org: LocalOrg, statuses: TableStatusStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setenv("AIRFLOW__SFSTREAM__STATUS_CONN_ID", "nowhere")
    org.publish(TOPIC, [{"Number__c": 1.0}])
    result = drain(tmp_path).execute(context_for("drain"))
    assert (result["event_count"], result["committed"]) == (1, True)
    assert "was not stored" in caplog.text


def test_a_password_in_a_url_is_in_no_status(statuses: TableStatusStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow.sdk.get_current_context", lambda: context_for("event_log"))
    url = "s3://name:hush-hush@lake/tables"
    operator = SparkSubmitEventLogOperator(task_id="event_log", windows=["file:///m.json"], output_url=url)
    with pytest.raises(AirflowFailException, match="contains a password"):
        operator.execute(context_for("event_log"))
    assert statuses.statuses() == []
