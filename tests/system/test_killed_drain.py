"""kill -9 of a task process on a real Airflow at each critical line, followed by Airflow's own retry."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest

from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from scripts.airflow_stack import AirflowStack
from tests.support.localorg import LocalOrg

pytestmark = pytest.mark.extended
TOPIC = "/event/Killed__e"
LINES = ("in_drain", "before_manifest", "before_position", "after_position")
MANAGED_LINES = (*LINES, "before_commit", "before_acknowledgement", "after_acknowledgement")
LINES_OF = {"variable": LINES, "table": LINES, "managed": MANAGED_LINES}


@pytest.fixture(scope="module")
def record(system_org: LocalOrg) -> list[tuple[bytes, bytes]]:
    """Return the replay ID and payload of each published event, in order."""
    system_org.define("Killed__e", Number__c="double")
    system_org.publish_many(TOPIC, 1500, {"Number__c": 1.0})
    return [(event["replay_id"], event["payload"]) for event in system_org.record(TOPIC)]


def landed(lake: Path, windows: list[dict[str, Any]]) -> list[tuple[bytes, bytes]]:
    """Return the rows of the files in the windows' manifests; check that the folders contain no other file."""
    catalog = LandingCatalog(Landing.from_url(str(lake)))
    rows = []
    for window in windows:
        manifest = catalog.read_manifest_url(window["manifest_url"])
        catalog.verify(manifest, sha256=True)
        folder = Path(urlsplit(window["manifest_url"]).path).parent
        assert {path.name for path in folder.iterdir()} == {"manifest.json", *(file.name for file in manifest.files)}
        for file in manifest.files:
            table = pq.read_table(folder / file.name, columns=["replay_id", "payload"])
            rows += [(row["replay_id"], row["payload"]) for row in table.to_pylist()]
    return rows


@pytest.fixture(scope="module")
def managed_subscriptions(system_org: LocalOrg, record: list[tuple[bytes, bytes]]) -> None:
    """Create a managed event subscription for each line at which a managed drain is killed."""
    for line in ("undisturbed", *LINES_OF["managed"]):
        system_org.managed_subscription(f"Killed_{line}", TOPIC)


@pytest.mark.usefixtures("managed_subscriptions")
@pytest.mark.parametrize("store", LINES_OF)
def test_retried_drain_after_a_kill_commits_the_same_windows_as_an_undisturbed_one(
    airflow: AirflowStack, system_org: LocalOrg, record: list[tuple[bytes, bytes]], lake: Path, store: str
) -> None:
    windows: dict[str, list[dict[str, Any]]] = {}
    runs: dict[str, list[str]] = {}
    lines = ("undisturbed", *LINES_OF[store])
    for line in lines:
        airflow.wait_for_dag(f"killed.{store}.{line}")
        airflow.unpause(f"killed.{store}.{line}")
    for _ in range(2):
        started = {line: airflow.trigger(f"killed.{store}.{line}") for line in lines}
        for line, run_id in started.items():
            dag_id = f"killed.{store}.{line}"
            assert airflow.wait_for_run(dag_id, run_id) == "success", airflow.task_log(dag_id, run_id, "drain")
            windows.setdefault(line, []).append(airflow.xcom(dag_id, run_id, "drain"))
            runs.setdefault(line, []).append(run_id)

    def place(replay_id: str | None) -> int:
        """Return the number of events up to a replay ID, which may be one that no event has."""
        return 0 if replay_id is None else sum(each <= bytes.fromhex(replay_id) for each, _ in record)

    def facts(line: str) -> list[tuple[int, ...]]:
        return [(place(window["after"]), place(window["through"]), window["event_count"]) for window in windows[line]]

    for line in lines:
        instance = airflow.api("GET", f"/dags/killed.{store}.{line}/dagRuns/{runs[line][0]}/taskInstances/drain")
        assert instance["try_number"] == (1 if line == "undisturbed" else 2), line
        assert instance["max_tries"] == 3, "the DAG sets no retries: operators have three by default"
        assert facts(line) == facts("undisturbed")
        assert landed(lake, windows[line]) == record
    assert windows["after_position"][0]["drained"] is False
    assert windows["before_position"][0]["drained"] is False
    assert windows["in_drain"][0]["drained"] is True
    if store == "managed":
        kept = system_org.managed_subscriptions()
        assert {place(kept[f"Killed_{line}"]["committed"].hex()) for line in lines} == {len(record)}
