"""OpenLineage events that a real Airflow sends over HTTP, compared with the org's record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from scripts.airflow_stack import AirflowStack, running_airflow, wait_for
from tests.support.java_archive import submit_options
from tests.support.lineage_listener import LineageListener, listening
from tests.support.localorg import LocalOrg
from tests.support.secret_sweep import secrets_of
from tests.support.spark import INTERPRETED

pytestmark = pytest.mark.extended  # a separate Airflow, because lineage would slow down each task of the other tests

EVENTS, RECORDS, FAILING = "lineage.events", "lineage.records", "lineage.failing"
ORG = "sfstream://salesforce_default"
LANDED = (ORG, "/event/Told__e?subscription=airflow")
CHANGES = (ORG, "/data/ContactChangeEvent?subscription=airflow")
HISTORY = "http://history.example.com:18080"
DAG_FILE = Path(__file__).parent / "dags" / "lineage.py"


@pytest.fixture(scope="module")
def listener() -> Iterator[LineageListener]:
    with listening() as receiving:
        yield receiving


@pytest.fixture(scope="module")
def own_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def lineage_airflow(
    system_org: LocalOrg, own_lake: Path, listener: LineageListener, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AirflowStack]:
    """Start an Airflow that sends its lineage to the listener."""
    dags = tmp_path_factory.mktemp("dags")
    (dags / DAG_FILE.name).write_text(DAG_FILE.read_text())
    environment = {
        "SFSTREAM_LAKE": str(own_lake),
        "SPARK_SUBMIT_OPTS": submit_options(INTERPRETED),
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(listener.transport),
        "AIRFLOW__OPENLINEAGE__EXECUTION_TIMEOUT": "60",  # long enough for a busy machine
    }
    stack = AirflowStack(tmp_path_factory.mktemp("airflow"), dags, environment)
    with running_airflow(stack):
        stack.add_connection("salesforce_default", **system_org.airflow_connection())
        stack.add_connection("spark_default", conn_type="spark", host="local[2]", extra={"history_server": HISTORY})
        yield stack


def run(airflow: AirflowStack, dag_id: str, *tasks: str, ends: str = "success") -> str:
    """Run a DAG, check that its end state is ``ends``, and return the run ID."""
    airflow.wait_for_dag(dag_id)
    run_id = airflow.trigger(dag_id)
    ended = airflow.wait_for_run(dag_id, run_id)
    assert ended == ends, "\n".join(airflow.task_log(dag_id, run_id, task) for task in tasks)
    return run_id


def spark_link_while_running(airflow: AirflowStack, run_id: str, task: str) -> str | None:
    """Return the Spark UI link of a running task, or ``None`` as long as it has none."""
    state = airflow.task_states(RECORDS, run_id).get(task)
    link = airflow.links(RECORDS, run_id, task)["Spark UI"] if state == "running" else None
    state = airflow.task_states(RECORDS, run_id).get(task)
    assert state not in ("success", "failed", "upstream_failed"), f"{task} ended before it had a link"
    return link if state == "running" else None


def last_event(listener: LineageListener, job: str, kind: str = "COMPLETE") -> dict[str, Any]:
    """Wait for the events of a task and return the last one: Airflow may send it after the task has ended."""
    return wait_for(lambda: listener.events(job, kind), 60, f"{kind} of {job}")[-1]


def names(datasets: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["namespace"], each["name"]) for each in datasets]


def columns(dataset: dict[str, Any]) -> list[str]:
    return [field["name"] for field in dataset["facets"]["schema"]["fields"]]


@pytest.fixture(scope="module")
def events_run(lineage_airflow: AirflowStack, system_org: LocalOrg) -> str:
    system_org.define("Told__e", Number__c="double", Note__c="string")
    system_org.publish("/event/Told__e", [{"Number__c": float(n), "Note__c": "n"} for n in range(120)])
    return run(lineage_airflow, EVENTS, "wait", "drain", "event_log")


def test_drain_emits_datasets_and_row_counts_equal_to_the_org_record(
    lineage_airflow: AirflowStack, system_org: LocalOrg, own_lake: Path, listener: LineageListener, events_run: str
) -> None:
    record = system_org.record("/event/Told__e")
    window = lineage_airflow.xcom(EVENTS, events_run, "drain")
    began = last_event(listener, f"{EVENTS}.drain", "START")
    assert (names(began["inputs"]), names(began["outputs"])) == ([(ORG, "/event/Told__e")], [LANDED])

    ended = last_event(listener, f"{EVENTS}.drain")
    [read], [written] = ended["inputs"], ended["outputs"]
    assert (names([read]), names([written])) == ([(ORG, "/event/Told__e")], [LANDED])
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == len(record) == 120
    assert read["inputFacets"]["inputStatistics"]["size"] == window["payload_bytes"]
    files = list((own_lake / "lineage" / "landing").rglob("part-*.parquet"))
    statistics = {key: written["outputFacets"]["outputStatistics"][key] for key in ("rowCount", "size", "fileCount")}
    assert statistics == {"rowCount": 120, "size": sum(f.stat().st_size for f in files), "fileCount": len(files)}
    assert set(columns(read)) == set(record[0]["fields"])
    assert set(columns(written)) >= {"replay_id", *record[0]["fields"]}
    assert written["facets"]["version"]["datasetVersion"] == window["window_id"]
    [fact] = ended["run"]["facets"]["sfstream_windows"]["windows"]
    assert fact["through"] == record[-1]["replay_id"].hex()


def test_input_of_the_event_log_is_the_output_of_the_drain(
    own_lake: Path, system_org: LocalOrg, listener: LineageListener, events_run: str
) -> None:
    drained, ended = last_event(listener, f"{EVENTS}.drain"), last_event(listener, f"{EVENTS}.event_log")
    assert names(last_event(listener, f"{EVENTS}.event_log", "START")["inputs"]) == [LANDED]
    assert names(ended["inputs"]) == names(drained["outputs"]) == [LANDED]
    assert ended["inputs"][0]["inputFacets"]["inputStatistics"]["rowCount"] == 120
    folder = own_lake / "lineage" / "tables" / "Told__e"
    [table] = ended["outputs"]
    assert names([table]) == [("file", str(folder))]
    stored = DeltaTable(folder)
    sizes = [file["size_bytes"] for file in pa.table(stored.get_add_actions(flatten=True)).to_pylist()]
    statistics = {key: table["outputFacets"]["outputStatistics"][key] for key in ("rowCount", "size", "fileCount")}
    assert statistics == {"rowCount": 120, "size": sum(sizes), "fileCount": len(sizes)}
    assert columns(table) == [field.name for field in stored.schema().fields]
    assert set(columns(table)) >= set(system_org.record("/event/Told__e")[0]["fields"])


def test_replica_and_refresh_emit_their_inputs_and_outputs(
    lineage_airflow: AirflowStack, own_lake: Path, system_org: LocalOrg, listener: LineageListener
) -> None:
    created = [system_org.rest("POST", "/sobjects/Contact", {"LastName": f"Told {n}"})["id"] for n in range(7)]
    lineage_airflow.wait_for_dag(RECORDS)
    run_id = lineage_airflow.trigger(RECORDS)
    at_work = wait_for(lambda: spark_link_while_running(lineage_airflow, run_id, "replica"), 600, "the job's page")
    assert lineage_airflow.wait_for_run(RECORDS, run_id) == "success"
    table = ("file", str(own_lake / "lineage" / "replica" / "Contact"))
    applied, refreshed = last_event(listener, f"{RECORDS}.replica"), last_event(listener, f"{RECORDS}.refresh")
    assert (names(applied["inputs"]), names(applied["outputs"])) == ([CHANGES], [table])
    assert applied["inputs"][0]["inputFacets"]["inputStatistics"]["rowCount"] == len(
        system_org.record("/data/ContactChangeEvent")
    )
    assert applied["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] >= len(created)
    assert {"Id", "_deleted", "Email"} <= set(columns(applied["outputs"][0]))

    assert (names(refreshed["inputs"]), names(refreshed["outputs"])) == ([(ORG, "Contact")], [table])
    stored = DeltaTable(table[1])
    assert columns(refreshed["outputs"][0]) == [field.name for field in stored.schema().fields]
    assert refreshed["inputs"][0]["inputFacets"]["inputStatistics"]["rowCount"] >= len(created)
    assert "Email" in columns(refreshed["inputs"][0])

    for task in ("replica", "refresh"):
        link = lineage_airflow.links(RECORDS, run_id, task)["Spark UI"]
        assert link is not None
        assert link.startswith(f"{HISTORY}/history/local-")
    assert at_work == lineage_airflow.links(RECORDS, run_id, "replica")["Spark UI"]


def test_failed_drain_emits_only_landed_outputs(
    lineage_airflow: AirflowStack, system_org: LocalOrg, own_lake: Path, listener: LineageListener
) -> None:
    job, topic, landed = f"{FAILING}.drain", "/event/Failing__e", "/event/Failing__e?subscription=airflow"

    def failed(number: int) -> dict[str, Any]:
        """Run the DAG, check that it fails, and return its event, which is the ``number``th FAIL event."""
        run(lineage_airflow, FAILING, "drain", ends="failed")
        fails = wait_for(lambda: events if len(events := listener.events(job, "FAIL")) == number else None, 60, "FAIL")
        return fails[-1]

    # The topic does not exist yet, so nothing is read or landed.
    event = failed(1)
    assert "Failing__e" in event["run"]["facets"]["errorMessage"]["message"]
    assert "sfstream_windows" not in event["run"]["facets"]
    assert (names(event["inputs"]), event["outputs"]) == ([(ORG, topic)], [])
    assert not event["inputs"][0].get("inputFacets")
    assert names(last_event(listener, job, "START")["outputs"]) == [(ORG, landed)], "START must name the planned output"

    system_org.define("Failing__e", Number__c="double")
    system_org.publish(topic, [{"Number__c": 1.0}])
    run(lineage_airflow, FAILING, "drain")
    before = set(own_lake.rglob("part-*.parquet"))

    # The run fails for a changed schema after it stored all events, so its FAIL event reports the output.
    system_org.define("Failing__e", Number__c="double", Note__c="string")
    system_org.publish(topic, [{"Number__c": float(n), "Note__c": "new"} for n in range(7)])
    event = failed(2)
    assert "SchemaChangedError" in event["run"]["facets"]["errorMessage"]["message"]
    [read], [written] = event["inputs"], event["outputs"]
    assert (names([read]), names([written])) == ([(ORG, topic)], [(ORG, landed)])
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == 7
    files = set(own_lake.rglob("part-*.parquet")) - before
    statistics = {key: written["outputFacets"]["outputStatistics"][key] for key in ("rowCount", "size", "fileCount")}
    assert statistics == {"rowCount": 7, "size": sum(f.stat().st_size for f in files), "fileCount": len(files)}
    assert sum(pq.read_metadata(file).num_rows for file in files) == 7
    [fact] = event["run"]["facets"]["sfstream_windows"]["windows"]
    assert fact["through"] == system_org.record(topic)[-1]["replay_id"].hex()
    assert written["facets"]["version"]["datasetVersion"] == fact["window_id"]
    assert Path(fact["manifest_url"].removeprefix("file://")).exists()
    assert len(listener.events(job, "COMPLETE")) == 1


def test_sensor_and_drain_link_to_the_same_stream(lineage_airflow: AirflowStack, events_run: str) -> None:
    """The sensor links to the same stream as the drain; ``test_micro_batch.py`` tests the links of the drain."""
    waited = lineage_airflow.links(EVENTS, events_run, "wait")
    assert waited == {"Stream": lineage_airflow.links(EVENTS, events_run, "drain")["Stream"]}
    assert waited["Stream"]


@pytest.mark.usefixtures("events_run")
def test_no_secret_is_sent(system_org: LocalOrg, listener: LineageListener) -> None:
    assert len(listener.texts) > 5
    for name, secret in secrets_of(system_org).items():
        assert not any(secret in text for text in listener.texts), name
