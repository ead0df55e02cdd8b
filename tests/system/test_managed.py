"""The managed subscription example: create, drain, commit and load; a backfill does not commit."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset as ds
import pytest

from scripts.airflow_stack import AirflowStack, wait_for
from tests.support.localorg import LocalOrg

pytestmark = pytest.mark.extended
EXAMPLE, TOPIC, NAME = "sfstream_managed", "/event/Order__e", "Airflow_Orders"


def table_rows(lake: Path) -> list[bytes]:
    table = ds.dataset(lake / "managed" / "Order__e", partitioning="hive").to_table(columns=["_replay_id"])
    return sorted(table["_replay_id"].to_pylist())


def record(org: LocalOrg) -> list[bytes]:
    return [event["replay_id"] for event in org.record(TOPIC)]


def test_managed_example_commits_its_position_to_salesforce(
    airflow: AirflowStack, system_org: LocalOrg, lake: Path
) -> None:
    system_org.define("Order__e", Number__c="double")
    system_org.publish(TOPIC, [{"Number__c": float(n)} for n in range(40)])
    positions = airflow.variables("sfstream_position")
    airflow.wait_for_dag(EXAMPLE)
    airflow.unpause(EXAMPLE)
    scheduled = wait_for(lambda: airflow.run_ids(EXAMPLE), 180, "the scheduled run")[0]
    assert airflow.wait_for_run(EXAMPLE, scheduled) == "success", airflow.task_log(EXAMPLE, scheduled, "drain")
    assert system_org.managed_subscriptions()[NAME]["committed"] == record(system_org)[-1]
    assert table_rows(lake) == record(system_org)

    system_org.publish(TOPIC, [{"Number__c": float(n)} for n in range(25)])
    second = airflow.trigger(EXAMPLE)
    assert airflow.wait_for_run(EXAMPLE, second) == "success", airflow.task_log(EXAMPLE, second, "drain")
    assert airflow.xcom(EXAMPLE, second, "drain")["event_count"] == 25
    assert system_org.managed_subscriptions()[NAME]["committed"] == record(system_org)[-1]
    assert table_rows(lake) == record(system_org)
    assert airflow.variables("sfstream_position") == positions

    empty = airflow.trigger(EXAMPLE)
    assert airflow.wait_for_run(EXAMPLE, empty) == "success"
    assert airflow.task_states(EXAMPLE, empty) == {"create": "success", "drain": "skipped", "event_log": "skipped"}
