"""The replica example DAG: a first run with existing records, later changes, gaps and deletes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from scripts.airflow_stack import AirflowStack, wait_for
from tests.support.localorg import LocalOrg

pytestmark = pytest.mark.extended
DAG_ID = "sfstream_account_replica"
TOPIC = "/data/AccountChangeEvent"
FIELDS = ("Name", "Phone", "BillingCity", "AnnualRevenue", "NumberOfEmployees")


def snapshot(lake: Path) -> dict[str, Any]:
    """Return the replica's newest snapshot."""
    return dict(json.loads(max((lake / "replica/_sfstream/replica/snapshots").glob("*.json")).read_text()))


def replica(lake: Path) -> dict[str, tuple[Any, ...]]:
    """Read the replica without Spark; return the values of each row and its deleted and dirty flags."""
    table = DeltaTable(lake / "replica/Account")
    assert table.version() == snapshot(lake)["tables"]["Account"]["version"]
    rows = table.to_pyarrow_table().to_pylist()
    return {row["Id"]: (*(row[field] for field in FIELDS), row["_deleted"], row["_dirty"]) for row in rows}


def org_records(org: LocalOrg) -> dict[str, tuple[Any, ...]]:
    """Return the same values from the org's own records."""
    answer = org.rest("GET", f"/queryAll?q=SELECT+Id,IsDeleted,{','.join(FIELDS)}+FROM+Account")
    assert answer["done"]
    records = answer["records"]
    return {row["Id"]: (*(row[field] for field in FIELDS), row["IsDeleted"], False) for row in records}


def create(org: LocalOrg, name: str, **values: Any) -> str:
    return str(org.rest("POST", "/sobjects/Account", {"Name": name, **values})["id"])


@pytest.fixture
def account_replica(airflow: AirflowStack, system_org: LocalOrg) -> Iterator[str]:
    """Unpause the example DAG for a test."""
    airflow.wait_for_dag(DAG_ID)
    system_org.knobs(keepalive_seconds=2)
    yield DAG_ID
    airflow.pause(DAG_ID)
    system_org.reset_knobs()


@pytest.mark.usefixtures("account_replica")
@pytest.mark.timeout(2400)  # four Spark jobs, each in its own process, one after the other
def test_the_replica_equals_the_org(airflow: AirflowStack, system_org: LocalOrg, lake: Path) -> None:
    before = [create(system_org, f"before {n}", AnnualRevenue=n * 1.5) for n in range(30)]
    # Expire all events but the last one.
    newest = system_org.record(TOPIC)[-1]["replay_id"].hex()
    system_org.fault("expire_before", topic=TOPIC, replay_id=newest)
    first = create(system_org, "first", BillingCity="Hamburg")
    airflow.unpause(DAG_ID)
    scheduled = wait_for(lambda: airflow.run_ids(DAG_ID), 180, "the scheduled run")[0]
    assert airflow.wait_for_run(DAG_ID, scheduled) == "success", airflow.task_log(DAG_ID, scheduled, "refresh")
    assert replica(lake) == org_records(system_org)
    assert {*before, first} <= replica(lake).keys()  # and the accounts of other tests

    system_org.rest("PATCH", f"/sobjects/Account/{first}", {"Phone": "040", "BillingCity": None})
    system_org.rest("DELETE", f"/sobjects/Account/{before[0]}")
    system_org.admin("POST", "/entities/Account/gaps", {"percent": 100})
    system_org.rest("PATCH", f"/sobjects/Account/{before[1]}", {"NumberOfEmployees": 7})
    system_org.admin("POST", "/entities/Account/gaps", {"percent": 0})
    system_org.rest("PATCH", f"/sobjects/Account/{before[1]}", {"Phone": "030"})
    second = airflow.trigger(DAG_ID)
    assert airflow.wait_for_run(DAG_ID, second) == "success", airflow.task_log(DAG_ID, second, "refresh")
    assert airflow.xcom(DAG_ID, second, "replica")["tables"]["Account"]["dirty"] == 1
    refreshed = airflow.xcom(DAG_ID, second, "refresh")["tables"]["Account"]
    assert (refreshed["mode"], refreshed["fetched"], refreshed["still_dirty"], refreshed["flag"]) == (
        "records",
        1,
        0,
        None,
    )
    assert replica(lake) == org_records(system_org)

    quiet = airflow.trigger(DAG_ID)
    assert airflow.wait_for_run(DAG_ID, quiet) == "success"
    assert airflow.task_states(DAG_ID, quiet) == {"drain": "success", "replica": "skipped", "refresh": "skipped"}

    for task in ("drain", "replica", "refresh"):
        log = airflow.task_log(DAG_ID, second, task)
        assert system_org.client_secret not in log
        assert "00D" not in log or "!" not in log.split("00D", 1)[1][:20], "an access token is in the log"
