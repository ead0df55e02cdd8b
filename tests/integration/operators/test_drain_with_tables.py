"""Drains whose task writes its tables too: the effects of separate tasks, also after failures and for intervals."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.openlineage.conf import is_disabled
from airflow.sdk import DAG, TaskGroup
from deltalake import DeltaTable
from openlineage.client.serde import Serde

from airflow_provider_sfstream._airflow import AirflowFailException, AirflowSkipException
from airflow_provider_sfstream.actions.drain.results import DrainedWindow
from airflow_provider_sfstream.exceptions import ConfigurationError, SalesforceStreamError
from airflow_provider_sfstream.monitoring.lineage import name_of_url
from airflow_provider_sfstream.monitoring.table_status import TableStatusStore
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.event_log import EventLogOperator
from tests.support.datasets import SentDataset
from tests.support.hours import hours_ago
from tests.support.interval_runs import MINUTES, TOPIC, Make, Run, make, org_with_hours, published_ids, run, store
from tests.support.localorg import LocalOrg
from tests.support.tasks import context_for, deferral_of, error_text, run_trigger, set_connection

__all__ = ["make", "run", "store"]
URI = "sfstream://salesforce_default/event/Order__e?subscription=airflow"


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with org_with_hours(tmp_path_factory.mktemp("org")) as local_org:
        local_org.define("Lone__e", Number__c="double")
        yield local_org


@pytest.fixture
def output(store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AIRFLOW__SFSTREAM__STATUS_CONN_ID", "sfstream_replay_store")
    return str(tmp_path / "tables")


@pytest.fixture
def statuses(output: str, tmp_path: Path) -> Iterator[TableStatusStore]:
    statuses = TableStatusStore(f"sqlite:///{tmp_path / 'replay.db'}")
    yield statuses
    statuses.close()


def replay_ids(output: str, table: str = "Order__e") -> list[bytes]:
    rows = DeltaTable(f"{output}/{table}").to_pyarrow_table(columns=["_replay_id"])
    return sorted(rows["_replay_id"].to_pylist())


def test_one_task_lands_the_events_and_writes_their_table(
    org: LocalOrg, make: Make, output: str, statuses: TableStatusStore
) -> None:
    operator, context = make("scheduled", 6, 2, event_log={"output_url": output})
    result = operator.execute(context)
    expected = [event["replay_id"] for event in org.record(TOPIC)]
    assert replay_ids(output) == expected
    assert set(result) == set(DrainedWindow.__annotations__)
    assert result["tables"]["event_log"]["tables"] == {"Order__e": len(expected)}
    sections = {each.section: each.document for each in statuses.statuses(subject=URI)}
    [stored] = [document for section, document in sections.items() if section.startswith("event_log.")]
    assert (stored["output_url"], stored["task"]["task_id"]) == (output, "drain")
    inputs = [SentDataset(each).name.name for each in operator.lineage(has_ended=True).inputs]
    [landed, table] = map(SentDataset, operator.lineage(has_ended=True).outputs)
    assert (inputs, landed.rows) == ([TOPIC], len(expected))
    assert (table.name, table.rows, table.version) == (name_of_url(f"{output}/Order__e"), len(expected), "0")
    separate = EventLogOperator(task_id="event_log", windows=result, output_url=output)
    assert separate.execute(context_for("event_log"))["rows_written"] == len(expected), "the same rows once more"
    assert replay_ids(output) == expected


def test_changes_are_written_to_an_event_log_and_applied_to_a_replica_of_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalOrg.running(tmp_path / "org") as local_org:
        local_org.knobs(keepalive_seconds=0.3)
        set_connection(monkeypatch, "salesforce_default", **local_org.airflow_connection())
        account = str(local_org.rest("POST", "/sobjects/Account", {"Name": "one"})["id"])
        local_org.rest("PATCH", f"/sobjects/Account/{account}", {"Name": "two"})
        output = str(tmp_path / "tables")
        drain = DrainReplayWindowOperator(
            task_id="drain",
            topic="/data/AccountChangeEvent",
            landing_url=str(tmp_path / "landing"),
            replay_store="landing",
            idle_timeout=1.0,
            event_log={"output_url": output},
            replica={"output_url": output, "history": True},
        )
        metrics = drain.execute(context_for("drain"))["tables"]
    assert list(metrics) == ["event_log", "replica"]
    assert len(replay_ids(output, "AccountChangeEvent")) == 2
    [row] = DeltaTable(f"{output}/Account").to_pyarrow_table().to_pylist()
    assert (row["Id"], row["Name"], metrics["replica"]["tables"]["Account"]["rows"]) == (account, "two", 1)
    written = [SentDataset(each).name.name for each in drain.lineage(has_ended=True).outputs][1:]
    assert written == [f"{output}/AccountChangeEvent", f"{output}/Account"]
    stored = Path(output, "_sfstream/metrics")
    files = {name: json.loads((stored / f"orders.drain.{name}.json").read_text()) for name in metrics}
    assert files == {name: {**each, "job": "orders.drain run run-1 try 1"} for name, each in metrics.items()}


def test_the_forked_process_of_the_listener_has_the_lineage_of_the_tables(
    org: LocalOrg, make: Make, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta's library aborts in a process that was forked from one that has used it."""
    monkeypatch.setenv("OPENLINEAGE_URL", "http://lineage.example")
    assert not is_disabled()
    operator, context = make("scheduled", 6, 2, event_log={"output_url": output})
    operator.execute(context)
    reading, writing = os.pipe()
    if os.fork() == 0:
        with os.fdopen(writing, "w") as pipe, suppress(BaseException):
            pipe.write(Serde.to_json(operator.get_openlineage_facets_on_complete(None).outputs[1]))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        table = json.loads(pipe.read())
    os.wait()
    assert table["name"] == f"{output}/Order__e"
    assert table["facets"]["version"]["datasetVersion"] == "0"


def test_a_failed_job_leaves_the_window_recorded_and_a_retry_writes_it(
    org: LocalOrg, make: Make, output: str, statuses: TableStatusStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "/event/Lone__e"
    given = {"topic": topic, "run_id": "failing"}
    org.publish(topic, [{"Number__c": 1.0}, {"Number__c": 2.0}])
    operator, context = make("scheduled", 6, 2, event_log={"output_url": output, "max_events": 1}, **given)
    monkeypatch.setattr("airflow.sdk.get_current_context", lambda: context)
    with pytest.raises(AirflowFailException) as caught:
        operator.execute(context)
    text = error_text(caught.value)
    assert "ConfigurationError" in text
    assert f"tables {output}" in text
    assert text.count("Data loss: Nothing: the windows of this run are landed.") == 1, "one failure report"
    [failed] = [each.document for each in statuses.statuses(subject=output) if each.section.startswith("failed.")]
    assert "max_events=1" in failed["report"]["Error"]
    about_stream = [each.section for each in statuses.statuses(subject=URI.replace("Order", "Lone"))]
    assert not [section for section in about_stream if section.startswith("failed.")]
    assert [SentDataset(each).rows for each in operator.lineage(has_ended=True).outputs] == [2], "the landed stream"

    org.publish(topic, [{"Number__c": 3.0}])
    record = [event["replay_id"] for event in org.record(topic)]
    operator, context = make("scheduled", 6, 2, event_log={"output_url": output}, **given)
    result = operator.execute(context)
    assert (result["drained"], result["event_count"], result["through"]) == (False, 2, record[1].hex())
    assert replay_ids(output, "Lone__e") == record[:2]
    operator, context = make("scheduled", 6, 2, **{**given, "run_id": "next"}, event_log={"output_url": output})
    assert operator.execute(context)["after"] == record[1].hex()
    assert replay_ids(output, "Lone__e") == record


def test_the_class_of_a_transient_error_of_a_job_is_kept_and_reported_once(
    org: LocalOrg, make: Make, output: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    operator, context = make("scheduled", 6, 2, event_log={"output_url": output})
    monkeypatch.setattr("airflow.sdk.get_current_context", lambda: context)
    error = SalesforceStreamError("The table is busy. Nothing is lost.")
    error.retriable = True  # type: ignore[misc]

    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(EventLogOperator, "run_on", fail)
    with pytest.raises(SalesforceStreamError) as caught:
        operator.execute(context)
    assert caught.value is error
    assert caplog.text.count("Data loss") == 1


def test_an_interval_run_writes_the_events_of_its_interval_also_in_its_second_try(
    org: LocalOrg, run: Run, make: Make, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"mode": "interval", "run_id": "hour"}
    operator, context = make("scheduled", 4, 3, event_log={"output_url": output, "max_events": 1}, **given)
    monkeypatch.setattr("airflow.sdk.get_current_context", lambda: context)
    with pytest.raises(AirflowFailException):
        operator.execute(context)
    operator, context = make("scheduled", 4, 3, event_log={"output_url": output}, **given)
    result = operator.execute(context)
    assert replay_ids(output) == published_ids(org, 4, 3)
    assert result["tables"]["event_log"]["outside_interval"] > 0
    backfill = run("backfill", 3, 2, event_log={"output_url": output})
    assert backfill["tables"]["event_log"]["rows_written"] == len(MINUTES)
    assert replay_ids(output) == published_ids(org, 4, 2)
    assert backfill["event_time_from"] == hours_ago(3).isoformat()


def test_a_run_without_events_writes_no_table(org: LocalOrg, make: Make, output: str) -> None:
    org.define("Quiet__e", Number__c="double")
    given = {"topic": "/event/Quiet__e", "event_log": {"output_url": output}, "replica": {"output_url": output}}
    operator, context = make("scheduled", 6, 2, **given)
    assert operator.execute(context)["tables"] == {"event_log": None, "replica": None}
    operator, context = make("scheduled", 6, 2, **given, skip_if_empty=True)
    with pytest.raises(AirflowSkipException):
        operator.execute(context)
    assert not Path(output).exists()


def test_a_drain_that_waited_on_the_triggerer_writes_its_table(org: LocalOrg, make: Make, output: str) -> None:
    org.define("Awaited__e", Number__c="double")
    given = {"topic": "/event/Awaited__e", "deferrable": True, "event_log": {"output_url": output}}
    operator, context = make("scheduled", 6, 2, **given)
    deferral = deferral_of(lambda: operator.execute(context))
    org.publish("/event/Awaited__e", [{"Number__c": 1.0}])
    event = run_trigger(deferral)
    resumed, context = make("scheduled", 6, 2, **given)
    assert resumed.execute_complete(context, event)["tables"]["event_log"]["rows_written"] == 1
    assert len(replay_ids(output, "Awaited__e")) == 1


def drain(**arguments: Any) -> DrainReplayWindowOperator:
    return DrainReplayWindowOperator(task_id="drain", topic=TOPIC, landing_url="/lake", **arguments)


def test_the_arguments_of_a_job_are_checked_when_the_dag_is_parsed() -> None:
    for arguments, message in (
        ({"output_url": "/lake", "pool": "one"}, "event_log has pool"),
        ({"output_url": "/lake", "windows": []}, "event_log has windows"),
        ({"output_url": "/lake", "max_events": 0}, "max_events"),
        ({"output_url": "/lake", "hash_fields": ["Email"]}, "hash_conn_id"),
        ("/lake", "event_log is a str"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            drain(event_log=arguments)
    with pytest.raises(TypeError, match="histroy"):
        drain(replica={"output_url": "/lake", "histroy": True})


def test_arguments_from_another_task_are_checked_before_the_drain(org: LocalOrg, make: Make, output: str) -> None:
    operator, context = make("scheduled", 6, 2, event_log={"output_url": output})
    operator.event_log = {"output_url": output, "max_events": 0}  # as rendered
    with pytest.raises(AirflowFailException, match="max_events"):
        operator.execute(context)
    assert not list(Path(operator.landing_url).rglob("manifest.json"))


def test_a_job_is_no_task_of_the_dag_and_its_arguments_are_templates() -> None:
    with DAG("orders", schedule=None) as dag, TaskGroup("group") as group:
        folder = drain().output["landing_url"]
        operator = DrainReplayWindowOperator(
            task_id="second",
            topic=TOPIC,
            landing_url="/lake",
            event_log={"output_url": "{{ params.lake }}/tables"},
            replica={"output_url": folder},
        )
        mapped = DrainReplayWindowOperator.partial(
            task_id="mapped", landing_url="/lake", event_log={"output_url": "/lake"}
        ).expand(topic=[TOPIC])
    assert dag.task_ids == list(group.children) == ["group.drain", "group.second", "group.mapped"]
    assert operator.upstream_task_ids == {"group.drain"}
    operator.replica = None
    operator.render_template_fields({"params": {"lake": "s3://lake"}})  # type: ignore[typeddict-item]
    assert operator.event_log == {"output_url": "s3://lake/tables"}
    unmapped = mapped.unmap({"topic": TOPIC})
    assert unmapped.event_log == {"output_url": "/lake"}
