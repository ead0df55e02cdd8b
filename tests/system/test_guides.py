"""The DAGs of the guides, copied from the pages and run by a real scheduler."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_provider_sfstream.monitoring.status import subject_key
from airflow_provider_sfstream.monitoring.status_store import status_from_text
from scripts.airflow_stack import AirflowStack, wait_for
from tests.support.guides import SNIPPETS
from tests.support.localorg import LocalOrg

pytestmark = pytest.mark.extended
TOPICS = ("/event/Guide__e", "/data/ContactChangeEvent")
DAGS = [name for name, code in SNIPPETS.items() if "with DAG(" in code]
ELSEWHERE = {
    "backfill-1": "sfstream_hourly",
    "cookbook-1": "sfstream_many_topics",
    "cookbook-2": "on_landed",
    "event-log-1": "drain-1",
    "managed-subscriptions-1": "sfstream_managed",
    "reference/personal-data-1": "test_hidden_fields: the other guides keep that replica without rules",
    "reference/personal-data-2": "test_erase_records, test_erase_from_replicas",
    "tutorial-1": "the tutorial's test, command by command",
    "when-to-run-1": "sfstream_on_event",
    "when-to-run-2": "test_hourly",
}
"""Snippets that are not run here, and the test that runs the same code."""
AFTER = ("replica-1", "cookbook-4", "cookbook-5", "replica-refresh-2", "replica-refresh-3", "operations-2", "pruning-1")
"""Snippets that need the landing, the replica or the position table of other snippets, in this order."""


def write(airflow: AirflowStack, lake: Path, name: str) -> None:
    """Copy a guide's DAGs into Airflow's DAG folder, with the names, folders and topics of this test."""
    code = SNIPPETS[name].replace("Order__e", "Guide__e").replace("AccountChange", "ContactChange")
    code = re.sub(r"s3a?://lake", str(lake / "guides"), code)
    code = re.sub(r'(DAG\(\s*f?")', rf"\1guide.{name}.", code)
    (airflow.dags_folder / f"guide_{name}.py").write_text(code)


def dags_of(airflow: AirflowStack, name: str) -> list[str]:
    """Wait until Airflow has parsed a guide's DAGs, and return their IDs."""

    def known() -> list[str]:
        assert airflow.api("GET", "/importErrors")["import_errors"] == []
        dags = airflow.api("GET", "/dags", params={"dag_id_pattern": f"guide.{name}.%"})["dags"]
        return [dag["dag_id"] for dag in dags]

    return wait_for(known, 300, f"the DAGs of {name}")


def ended(airflow: AirflowStack, dag_id: str) -> bool:
    """Return whether the DAG has ended runs; check that all of them succeeded."""
    states = airflow.run_states(dag_id)
    assert "failed" not in states.values(), (dag_id, [airflow.task_states(dag_id, run) for run in states])
    return bool(states) and set(states.values()) == {"success"}


def test_each_dag_of_the_guides_runs(airflow: AirflowStack, system_org: LocalOrg, lake: Path) -> None:
    system_org.define("Guide__e", Number__c="double")
    for name in ("salesforce_emea", "salesforce_apac"):
        airflow.add_connection(name, **system_org.airflow_connection())
    airflow.api("POST", "/pools", json={"name": "replica", "slots": 1})
    names = [name for name in DAGS if name not in ELSEWHERE]
    for name in names:
        write(airflow, lake, name)
    for name in sorted(names, key=lambda name: (name in AFTER and 1 + AFTER.index(name), name)):
        system_org.publish(TOPICS[0], [{"Number__c": 1.0}])
        system_org.rest("POST", "/sobjects/Contact", {"LastName": "Guide"})
        for dag_id in dags_of(airflow, name):
            airflow.unpause(dag_id)
            if "schedule=None" in SNIPPETS[name]:  # a scheduled DAG runs for its last interval when it is unpaused
                airflow.trigger(dag_id)
            wait_for(lambda dag_id=dag_id: ended(airflow, dag_id), 300, f"the runs of {dag_id}")
            airflow.pause(dag_id)
    check_status(airflow, system_org)


def check_status(airflow: AirflowStack, system_org: LocalOrg) -> None:
    """Check the status documents in Airflow's Variables, and that the watchdog has no finding for these streams."""
    subject = f"sfstream://salesforce_default{TOPICS[0]}?subscription=airflow"
    left = airflow.variables(f"sfstream_status.{subject_key(subject)}")
    sections = {each["key"].rpartition(".")[2]: each["value"] for each in left}
    drain = status_from_text(sections["drain"], "it").document
    assert drain["position"] in {event["replay_id"].hex() for event in system_org.record(TOPICS[0])}
    assert {"windows", "wait"} <= sections.keys()
    airflow.unpause("sfstream_watchdog")
    run = airflow.trigger("sfstream_watchdog")
    airflow.wait_for_run("sfstream_watchdog", run)  # fails if streams of other tests need attention
    log = airflow.task_log("sfstream_watchdog", run, "check")
    assert "needs attention" in log or "Error" in log
    # No drain of this test waits for a confirmation, so the remaining time is an estimate. The watchdog reports it if
    # no other stream needs attention. The two other connections share the org's events, so one of them may drain none.
    found = [line for line in log.splitlines() if f"salesforce_default{TOPICS[0]}" in line]
    assert not [line for line in found if "the remaining time is an estimate" not in line]
