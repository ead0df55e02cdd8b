"""From an org to its tables on Azure and Google Cloud Storage, in the worker's process."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.erase_records import EraseRecordsOperator
from airflow_provider_sfstream.operators.event_log import EventLogOperator
from airflow_provider_sfstream.operators.replica import ReplicaOperator
from tests.support.cloud_storage import CloudStorage, azure, google
from tests.support.localorg import LocalOrg
from tests.support.tasks import context_for, set_connection

__all__ = ["azure", "google"]

pytestmark = pytest.mark.extended

TOPIC = "/data/Widget__ChangeEvent"


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as local_org:
        local_org.knobs(keepalive_seconds=0.2)
        local_org.define_object("Widget__c", Amount__c="Number")
        yield local_org


@dataclass
class Lake:
    """Landing, event log and replica of a stream on one storage, written by the operators."""

    org: LocalOrg
    url: str
    conn_id: str
    runs: int = 0

    def run(self) -> None:
        """Drain the new events, and add them to both tables."""
        self.runs += 1
        landing = {"landing_url": f"{self.url}/landing", "landing_conn_id": self.conn_id}
        operator = DrainReplayWindowOperator(
            task_id="drain", topic=TOPIC, replay_store="landing", idle_timeout=0.5, **landing
        )
        window = operator.execute(context_for("drain", f"run-{self.runs}", hour=self.runs))
        for kind in (EventLogOperator, ReplicaOperator):
            output = {"output_url": f"{self.url}/tables", "output_conn_id": self.conn_id}
            task = kind(task_id=kind.__name__, windows=window, landing_conn_id=self.conn_id, **output)
            task.execute(context_for(kind.__name__, f"run-{self.runs}", hour=self.runs))

    def erase(self, record_id: str) -> None:
        tables = [f"{self.url}/tables"]
        EraseRecordsOperator(
            task_id="erase", entity="Widget__c", ids=[record_id], landing_url=f"{self.url}/landing",
            event_log_urls=tables, replica_urls=tables, landing_conn_id=self.conn_id, output_conn_id=self.conn_id,
        ).execute(context_for("erase"))  # fmt: skip

    def events(self) -> list[tuple[Any, ...]]:
        rows = sorted(self._rows("Widget__ChangeEvent"), key=lambda row: row["_replay_id"])
        return [(row["_replay_id"], *_values(row)) for row in rows]

    def records(self) -> list[tuple[Any, ...]]:
        """Return the records of the replica that are not deleted."""
        rows = [row for row in self._rows("Widget__c") if not row["_deleted"]]
        return sorted((row["Id"], row["Name"], row["Amount__c"]) for row in rows)

    def _rows(self, table: str) -> list[dict[str, Any]]:
        location = ObjectStorageFiles(self.conn_id).table_location(f"{self.url}/tables/{table}")
        table_now = DeltaTable(location.uri, storage_options=dict(location.options))
        found: list[dict[str, Any]] = table_now.to_pyarrow_table().to_pylist()
        return found


def _values(event: dict[str, Any]) -> tuple[Any, ...]:
    return (*event["ChangeEventHeader"]["recordIds"], event["Name"], event["Amount__c"])


@pytest.fixture(params=["azure", "google"])
def storage(request: pytest.FixtureRequest) -> CloudStorage:
    running: CloudStorage = request.getfixturevalue(request.param)
    return running


def test_event_log_and_replica_equal_the_org(
    org: LocalOrg, storage: CloudStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
    lake = Lake(org, storage.url(), storage.connect(monkeypatch))
    created = [{"Name": f"number {n}", "Amount__c": n + 0.5} for n in range(3)]
    ids = [str(org.rest("POST", "/sobjects/Widget__c", record)["id"]) for record in created]
    lake.run()
    org.rest("PATCH", f"/sobjects/Widget__c/{ids[0]}", {"Amount__c": -1})
    org.rest("DELETE", f"/sobjects/Widget__c/{ids[1]}")
    lake.run()
    events = [(event["replay_id"], *_values(event["fields"])) for event in org.record(TOPIC)]
    assert lake.events() == events
    query = org.rest("GET", "/query?q=SELECT+Id,Name,Amount__c+FROM+Widget__c+ORDER+BY+Id")
    records = [(each["Id"], each["Name"], each["Amount__c"]) for each in query["records"]]
    assert lake.records() == records
    lake.erase(ids[2])
    assert lake.events() == [event for event in events if event[1] != ids[2]]
    assert lake.records() == [record for record in records if record[0] != ids[2]]


def test_commits_of_concurrent_jobs_are_all_stored(storage: CloudStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    location = ObjectStorageFiles(storage.connect(monkeypatch)).table_location(f"{storage.url()}/table")
    options = dict(location.options)

    def append(number: int) -> None:
        write_deltalake(location.uri, pa.table({"number": [number]}), mode="append", storage_options=options)

    append(0)
    with ThreadPoolExecutor(4) as jobs:
        list(jobs.map(append, range(1, 5)))
    table = DeltaTable(location.uri, storage_options=options)
    assert sorted(table.to_pyarrow_table()["number"].to_pylist()) == list(range(5))
