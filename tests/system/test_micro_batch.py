"""The micro-batch example on a real scheduler, from the drain to the table that spark-submit writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from deltalake import DeltaTable

from airflow_provider_sfstream.salesforce.streams import Stream
from scripts.airflow_stack import AirflowStack, wait_for
from tests.support.backfills import create_variable_of_new_stream, live_position
from tests.support.localorg import LocalOrg

DAG_ID = "sfstream_micro_batch"
TOPIC = "/event/Order__e"


def table_rows(lake: Path) -> list[tuple[bytes, Any]]:
    """Return the replay ID and ``Number__c`` of each row of the event log, in stream order."""
    table = DeltaTable(str(lake / "tables" / "Order__e")).to_pyarrow_table(columns=["_replay_id", "Number__c"])
    return sorted((row["_replay_id"], row["Number__c"]) for row in table.to_pylist())


def position(airflow: AirflowStack, org: LocalOrg) -> str:
    """Return the position in the stream's Variable."""
    recorded = live_position(airflow, Stream(org.org_id, "pubsub", TOPIC, "airflow"))
    assert recorded is not None
    return str(recorded["position"])


@pytest.fixture(scope="module")
def runs(airflow: AirflowStack, system_org: LocalOrg) -> list[str]:
    """Return two runs that drained events, one scheduled and one manual."""
    system_org.define("Order__e", Number__c="double")
    system_org.publish(TOPIC, [{"Number__c": float(n)} for n in range(700)])
    create_variable_of_new_stream(airflow, Stream(system_org.org_id, "pubsub", TOPIC, "airflow"))
    airflow.wait_for_dag(DAG_ID)
    airflow.unpause(DAG_ID)
    scheduled = wait_for(lambda: airflow.run_ids(DAG_ID), 180, "the scheduled run")[0]
    assert airflow.wait_for_run(DAG_ID, scheduled) == "success", airflow.task_log(DAG_ID, scheduled, "drain")
    system_org.publish(TOPIC, [{"Number__c": float(n)} for n in range(700, 1000)])
    second = airflow.trigger(DAG_ID)
    assert airflow.wait_for_run(DAG_ID, second) == "success", airflow.task_log(DAG_ID, second, "event_log")
    return [scheduled, second]


def test_the_table_holds_what_the_org_published(
    airflow: AirflowStack, system_org: LocalOrg, lake: Path, runs: list[str]
) -> None:
    record = [(event["replay_id"], event["fields"]["Number__c"]) for event in system_org.record(TOPIC)]
    assert table_rows(lake) == record
    assert bytes.fromhex(position(airflow, system_org)) == record[-1][0]
    window = airflow.xcom(DAG_ID, runs[-1], "drain")
    assert bytes.fromhex(window["through"]) == record[-1][0]

    events = airflow.api("GET", "/assets/events", params={"source_dag_id": DAG_ID, "source_run_id": runs[-1]})
    assert [event["extra"]["event_count"] for event in events["asset_events"]] == [window["event_count"]]

    for task in ("drain", "event_log"):
        log = airflow.task_log(DAG_ID, runs[-1], task)
        assert system_org.client_secret not in log
        assert "00D" not in log or "!" not in log.split("00D", 1)[1][:20], "an access token is in the log"


def test_tasks_link_to_their_stream_the_previous_run_and_spark(airflow: AirflowStack, runs: list[str]) -> None:
    asset = airflow.xcom(DAG_ID, runs[-1], "drain")["asset_uri"]
    assert asset == f"sfstream://salesforce_default{TOPIC}?subscription=airflow"
    stream = f"{airflow.url}/plugin/salesforce-streams?stream={quote(asset, safe='')}"
    before = f"{airflow.url}/dags/{DAG_ID}/runs/{quote(runs[0])}/tasks/drain"
    assert airflow.links(DAG_ID, runs[0], "drain") == {"Stream": stream, "Manifest": None, "Previous window": None}
    assert airflow.links(DAG_ID, runs[1], "drain") == {"Stream": stream, "Manifest": None, "Previous window": before}
    application = airflow.xcom(DAG_ID, runs[1], "event_log")["application_id"]
    ui = f"http://history.example.com:18080/history/{application}/jobs/"
    assert airflow.links(DAG_ID, runs[1], "event_log") == {"Stream": stream, "Manifest": None, "Spark UI": ui}

    # The link opens the page of the previous run.
    page = httpx.get(before, follow_redirects=True)
    assert (page.status_code, page.headers["content-type"].partition(";")[0]) == (200, "text/html")
    emitted = airflow.api("GET", "/assets/events", params={"source_dag_id": DAG_ID, "source_run_id": runs[0]})
    assert [event["extra"]["task_url"] for event in emitted["asset_events"]] == [before]


@pytest.mark.extended
@pytest.mark.usefixtures("runs")
def test_preflight_checks_all_requirements_of_the_runs(airflow: AirflowStack, system_org: LocalOrg) -> None:
    system_org.knobs(delivery_quota=10_000_000)  # other tests may have used up the org's default allocation
    airflow.wait_for_dag("sfstream_preflight")
    airflow.unpause("sfstream_preflight")
    run = airflow.trigger("sfstream_preflight")
    assert airflow.wait_for_run("sfstream_preflight", run) == "success"
    found = airflow.xcom("sfstream_preflight", run, "preflight")
    names = [TOPIC, "clock", "allocations", "landing", "replay store", "Spark connection spark_default"]
    assert [(each["check"], each["works"]) for each in found] == [(name, True) for name in names]
    log = airflow.task_log("sfstream_preflight", run, "preflight")
    assert all(f"works  {name}: " in log for name in names)
    system_org.reset_knobs()


@pytest.mark.usefixtures("runs")
def test_a_run_without_events_is_skipped(airflow: AirflowStack) -> None:
    empty = airflow.trigger(DAG_ID)
    assert airflow.wait_for_run(DAG_ID, empty) == "success"
    assert airflow.task_states(DAG_ID, empty) == {"drain": "skipped", "event_log": "skipped"}


@pytest.mark.extended
def test_clearing_a_finished_run_changes_nothing(
    airflow: AirflowStack, system_org: LocalOrg, lake: Path, runs: list[str]
) -> None:
    before = (table_rows(lake), position(airflow, system_org), airflow.xcom(DAG_ID, runs[0], "drain"))
    clear = {"dag_run_id": runs[0], "dry_run": False, "only_failed": False}
    airflow.api("POST", f"/dags/{DAG_ID}/clearTaskInstances", json=clear)
    assert airflow.wait_for_run(DAG_ID, runs[0]) == "success"
    window = airflow.xcom(DAG_ID, runs[0], "drain")
    assert window == {**before[2], "drained": False}
    assert (table_rows(lake), position(airflow, system_org)) == before[:2]
