"""Waiting sensors and a waiting drain in a real Airflow: deferred, rescheduled, in the worker, and timed out."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_sfstream.salesforce.streams import Stream
from scripts.airflow_stack import AirflowStack, wait_for
from tests.support.landed import landed_replay_ids
from tests.support.localorg import LocalOrg

pytestmark = pytest.mark.extended
TOPIC = "/event/Sensed__e"
WAITING = {
    "sensing.deferred": ("wait", "deferred"),
    "sensing.rescheduled": ("wait", "up_for_reschedule"),
    "sensing.worker": ("drain", "running"),
}


def start(airflow: AirflowStack, org: LocalOrg) -> dict[str, str]:
    """Trigger each DAG, wait until its task waits for events, and return the run IDs."""
    runs = {dag_id: airflow.trigger(dag_id) for dag_id in WAITING}
    for dag_id, (task_id, state) in WAITING.items():
        wait_for(lambda: airflow.task_states(dag_id, runs[dag_id])[task_id] == state, 300, f"{dag_id} to wait")  # noqa: B023
    wait_for(
        lambda: len([each for each in org.streams() if each["topic"] == TOPIC]) >= 2, 180, "the waits to subscribe"
    )
    return runs


def test_waits_count_events_after_the_position_and_end_with_enough_events(
    airflow: AirflowStack, system_org: LocalOrg, lake: Path
) -> None:
    system_org.define("Sensed__e", Number__c="double")
    for dag_id in WAITING:
        airflow.wait_for_dag(dag_id)
        airflow.unpause(dag_id)
    for _ in range(2):
        system_org.publish(TOPIC, [{"Number__c": 1.0}, {"Number__c": 2.0}])
        runs = start(airflow, system_org)
        system_org.publish(TOPIC, [{"Number__c": 3.0}])
        record = [event["replay_id"] for event in system_org.record(TOPIC)]
        for dag_id, run_id in runs.items():
            assert airflow.wait_for_run(dag_id, run_id) == "success", dag_id
            landed = landed_replay_ids(lake, Stream(system_org.org_id, "pubsub", TOPIC, dag_id.rpartition(".")[2]))
            assert landed == record, dag_id
    result = airflow.xcom("sensing.deferred", runs["sensing.deferred"], "wait")
    assert (result["reason"], result["event_count"], result["through"]) == ("events", 3, record[-1].hex())
    assert (
        airflow.xcom("sensing.rescheduled", runs["sensing.rescheduled"], "wait")["first_replay_id"] == record[3].hex()
    )


def test_timed_out_wait_fails_without_a_retry_or_is_skipped(airflow: AirflowStack, system_org: LocalOrg) -> None:
    dag_id = "sensing.timed_out"
    system_org.define("Sensed__e", Number__c="double")
    airflow.wait_for_dag(dag_id)
    airflow.unpause(dag_id)
    run_id = airflow.trigger(dag_id)
    assert airflow.wait_for_run(dag_id, run_id) == "failed"
    assert airflow.task_states(dag_id, run_id) == {"skipped": "skipped", "failed": "failed"}
    assert airflow.api("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/failed")["try_number"] == 1
    assert "AirflowSensorTimeout" in airflow.task_log(dag_id, run_id, "failed")
