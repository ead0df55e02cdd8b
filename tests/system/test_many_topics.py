"""The many-topics example: each topic is drained, loaded and emitted separately, and a failed topic delays no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.dataset as ds
import pytest

from scripts.airflow_stack import AirflowStack, wait_for
from tests.support.localorg import LocalOrg

EXAMPLE = "sfstream_many_topics"
COUNTS = {"Many_One__e": 10, "Many_Two__e": 20}


def counts_of_runs(airflow: AirflowStack, dag_id: str) -> list[int]:
    """Return the event counts of the windows that started the runs of a DAG."""
    runs = airflow.run_ids(dag_id)
    assert all(airflow.wait_for_run(dag_id, run) == "success" for run in runs)
    return sorted(count for run in runs for count in airflow.xcom(dag_id, run, "event_counts"))


@pytest.mark.extended
def test_each_topic_is_drained_loaded_and_emitted_separately(
    airflow: AirflowStack, system_org: LocalOrg, lake: Path
) -> None:
    for name, count in COUNTS.items():
        system_org.define(name, Number__c="double")
        system_org.publish(f"/event/{name}", [{"Number__c": float(n)} for n in range(count)])
    for dag_id in (EXAMPLE, "on_landed.one", "on_landed.any"):
        airflow.wait_for_dag(dag_id)
    for dag_id in ("on_landed.one", "on_landed.any", EXAMPLE):
        airflow.unpause(dag_id)
    run = wait_for(lambda: airflow.run_ids(EXAMPLE), 180, "the scheduled run")[0]
    assert airflow.wait_for_run(EXAMPLE, run) == "failed"

    tasks: dict[str, dict[str, Any]] = {}
    for each in airflow.api("GET", f"/dags/{EXAMPLE}/dagRuns/{run}/taskInstances")["task_instances"]:
        tasks.setdefault(each["task_id"], {})[each["map_index"]] = each
    states = {each["rendered_map_index"]: each["state"] for each in tasks["stream.drain"].values()}
    assert states == {"/event/Many_Missing__e": "failed"} | {f"/event/{name}": "success" for name in COUNTS}
    loaded = {each["rendered_map_index"]: each["state"] for each in tasks["stream.event_log"].values()}
    assert sorted(loaded.values()) == ["success"] * 2 + ["upstream_failed"]

    for index, drain in tasks["stream.drain"].items():
        topic = drain["rendered_map_index"]  # set for the failed task too
        uri = quote(f"sfstream://salesforce_default{topic}?subscription=many_topics", safe="")
        links = airflow.links(EXAMPLE, run, "stream.drain", index)
        assert links["Stream"] == f"{airflow.url}/plugin/salesforce-streams?stream={uri}", topic

    for name, count in COUNTS.items():
        table = ds.dataset(lake / "many_topics" / name, partitioning="hive").to_table(columns=["_replay_id"])
        record = [event["replay_id"] for event in system_org.record(f"/event/{name}")]
        assert len(record) == count
        assert sorted(table["_replay_id"].to_pylist()) == record

    events = airflow.api("GET", "/assets/events", params={"source_dag_id": EXAMPLE})["asset_events"]
    assert sorted(event["extra"]["event_count"] for event in events) == [10, 20]
    wait_for(lambda: counts_of_runs(airflow, "on_landed.one") == [20], 120, "the DAG on one of the streams")
    wait_for(lambda: counts_of_runs(airflow, "on_landed.any") == [10, 20], 120, "the DAG on all of them")
