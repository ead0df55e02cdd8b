"""Deferred tasks that wait on a topic: they use no worker, and the loss of the triggerer loses no event."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pyarrow.dataset as ds
import pytest

from airflow_provider_sfstream.salesforce.streams import Stream
from scripts.airflow_stack import AirflowStack, wait_for
from tests.support.landed import landed_replay_ids
from tests.support.localorg import LocalOrg

TOPIC = "/event/Waited__e"
EXAMPLE = "sfstream_wait_and_drain"


def replay_ids(org: LocalOrg, topic: str) -> list[bytes]:
    return [event["replay_id"] for event in org.record(topic)]


def wait_until_deferred(airflow: AirflowStack, org: LocalOrg, dag_id: str, run_id: str, topic: str) -> None:
    """Wait until the drain is deferred, its trigger is subscribed, and no task process runs."""
    wait_for(lambda: airflow.task_states(dag_id, run_id)["drain"] == "deferred", 180, "the deferral")
    wait_for(lambda: topic in {each["topic"] for each in org.streams()}, 180, "the stream of the trigger")
    wait_for(lambda: airflow.task_processes() == [], 120, "the task process to end")


@pytest.mark.extended
def test_deferred_drain_lands_events_published_while_the_triggerer_is_dead(
    airflow: AirflowStack, system_org: LocalOrg, lake: Path
) -> None:
    dag_id = "waiting.drain"
    system_org.define("Waited__e", Number__c="double")
    airflow.wait_for_dag(dag_id)
    airflow.unpause(dag_id)
    run_id = airflow.trigger(dag_id)
    wait_until_deferred(airflow, system_org, dag_id, run_id, TOPIC)
    airflow.kill_component("triggerer")
    system_org.publish_many(TOPIC, 250, {"Number__c": "{n}"})
    airflow.start_component("triggerer")
    assert airflow.wait_for_run(dag_id, run_id) == "success", airflow.task_log(dag_id, run_id, "drain")
    stream = Stream(system_org.org_id, "pubsub", TOPIC, "waiting")
    assert landed_replay_ids(lake, stream) == replay_ids(system_org, TOPIC)

    again = airflow.trigger(dag_id)
    wait_until_deferred(airflow, system_org, dag_id, again, TOPIC)
    published = time.monotonic()
    system_org.publish(TOPIC, [{"Number__c": 1.0}])
    wait_for(lambda: airflow.task_states(dag_id, again)["drain"] != "deferred", 180, "the task to resume")
    print(f"\nfrom publish to the task's return from the triggerer: {time.monotonic() - published:.2f} s")
    assert airflow.wait_for_run(dag_id, again) == "success"
    assert landed_replay_ids(lake, stream) == replay_ids(system_org, TOPIC)
    log = airflow.task_log(dag_id, again, "drain")
    assert "Waiting on the triggerer" in log
    assert system_org.client_secret not in log


@pytest.mark.extended
def test_the_example_waits_drains_and_loads(airflow: AirflowStack, system_org: LocalOrg, lake: Path) -> None:
    topic = "/event/Order__e"
    system_org.define("Order__e", Number__c="double")
    system_org.publish(topic, [{"Number__c": float(n)} for n in range(50)])
    airflow.wait_for_dag(EXAMPLE)
    airflow.unpause(EXAMPLE)
    try:
        first = wait_for(lambda: airflow.run_ids(EXAMPLE), 180, "the first run")[0]
        assert airflow.wait_for_run(EXAMPLE, first) == "success", airflow.task_log(EXAMPLE, first, "drain")
        second = wait_for(lambda: airflow.run_ids(EXAMPLE)[1:], 180, "the next run")[0]
        wait_until_deferred(airflow, system_org, EXAMPLE, second, topic)
        system_org.publish(topic, [{"Number__c": float(n)} for n in range(50, 80)])
        assert airflow.wait_for_run(EXAMPLE, second) == "success", airflow.task_log(EXAMPLE, second, "drain")
    finally:
        airflow.pause(EXAMPLE)
    rows = ds.dataset(lake / "wait_and_drain" / "Order__e", partitioning="hive").to_table(columns=["_replay_id"])
    assert sorted(rows["_replay_id"].to_pylist()) == replay_ids(system_org, topic)


@pytest.fixture
def revocable_org(airflow: AirflowStack, tmp_path: Path) -> Iterator[LocalOrg]:
    """Start a separate org whose credentials a test may revoke."""
    with LocalOrg.running(tmp_path / "org") as org:
        airflow.add_connection("salesforce_revoked", **org.airflow_connection())
        yield org
        airflow.api("DELETE", "/connections/salesforce_revoked")


@pytest.mark.extended
def test_permanently_revoked_credentials_fail_the_waiting_task(airflow: AirflowStack, revocable_org: LocalOrg) -> None:
    dag_id = "waiting.revoked"
    revocable_org.define("Waited__e", Number__c="double")
    airflow.wait_for_dag(dag_id)
    airflow.unpause(dag_id)
    run_id = airflow.trigger(dag_id)
    wait_until_deferred(airflow, revocable_org, dag_id, run_id, TOPIC)
    begun = time.monotonic()
    revocable_org.admin("POST", "/oauth", {"fail_next": 1_000_000, "fail_error": "invalid_client"})
    revocable_org.revoke()
    assert airflow.wait_for_run(dag_id, run_id) == "failed"
    print(f"\nfrom revocation to the failed run: {time.monotonic() - begun:.1f} s")
    # The refused try is the last one, although retries remain. Airflow itself may have ended an earlier try: its
    # scheduler does so if it learns of the end of a deferral only after the task runs again. Its audit log shows that.
    task = airflow.api("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/drain")
    *earlier, log = (airflow.task_log(dag_id, run_id, "drain", n + 1) for n in range(task["try_number"]))
    assert task["try_number"] <= task["max_tries"], log
    query = urlencode({"dag_id": dag_id, "run_id": run_id, "event": "state mismatch"})
    audit = airflow.api("GET", f"/eventLogs?{query}")
    ended_by_airflow = {each["try_number"] for each in audit["event_logs"]}
    refused = {n for n, each in enumerate(earlier, 1) if "AuthenticationError" in each}
    assert refused <= ended_by_airflow, "\n".join(earlier)
    assert "AuthenticationError" in log
    assert "invalid_client" in log
    assert revocable_org.client_secret not in log
