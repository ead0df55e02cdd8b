"""Refreshes from a local org over TLS: afterwards the replica equals the org."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream._airflow import AirflowSkipException
from airflow_provider_sfstream.actions.storage import storage_path
from airflow_provider_sfstream.actions.tables.replica import read_snapshot
from airflow_provider_sfstream.exceptions import ServiceUnavailableError
from airflow_provider_sfstream.salesforce.rest.records import RecordClient
from airflow_provider_sfstream.tables.refresh.fetch import RefreshFiles
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig
from airflow_provider_sfstream.tables.replica.job import run
from airflow_provider_sfstream.tables.replica.reader import read_replica
from airflow_provider_sfstream.tables.replica.refresh_document import FOLDER
from airflow_provider_sfstream.tables.runner.on_spark import SparkEngine
from tests.support.localorg import LocalOrg
from tests.support.org_workload import OrgWorkload, RandomWindows
from tests.support.refreshing import refresh
from tests.support.replica_comparison import Rows, differences, dirty_rows, org_tables, replica_tables, summary
from tests.support.tasks import set_connection

RECORDS: list[dict[str, Any]] = [
    {"Name": 'Smith, "Jones"\r\n& Söhne 💧', "Some_Time__c": "10:20:30.125Z", "Some_Date__c": "1999-12-31"},
    {"FirstName": "Ada", "LastName": "Lovelace", "BillingCity": "Graz", "BillingLatitude": 47.0707},
    {"Name": "Whole", "NumberOfEmployees": 7, "AnnualRevenue": 12345678.25, "Some_Check_Box__c": True},
    *({"Name": f"Account {number}", "Some_Date_Time__c": "2026-01-31T10:00:00Z"} for number in range(27)),
]


class Replica:
    """Replica of an org's accounts, written and refreshed in one Spark session."""

    def __init__(self, spark: Any, org: LocalOrg, windows: RandomWindows, folder: Path) -> None:
        self.spark, self.org, self.folder = spark, org, folder
        self.output = folder.as_uri()
        self._windows = windows
        self._applied = 0
        self.ids = [str(org.rest("POST", "/sobjects/Account", record)["id"]) for record in RECORDS]

    def apply(self) -> None:
        """Drain the new events and apply them."""
        self._windows.drain_rest(1_000)
        manifests = tuple(self._windows.manifests[self._applied :])
        self._applied = len(self._windows.manifests)
        run(SparkEngine(self.spark), ReplicaConfig(output_url=self.output, manifests=manifests))

    def refresh(self, **arguments: Any) -> dict[str, Any]:
        """Run the refresh task; return its result for the accounts."""
        self.result = refresh(self.spark, output_url=self.output, salesforce_conn_id="sf", **arguments)
        assert self.result["tables"].keys() == {"Account"}
        return dict(self.result["tables"]["Account"])

    def rows(self) -> Rows:
        """Return the rows of the table by record ID."""
        none = self.spark.createDataFrame([], "Id string")
        read = {"Account": read_replica(self.spark, self.output, "Account")}
        return replica_tables(lambda table: read.get(table, none))["Account"]

    def assert_equal(self) -> None:
        with OrgWorkload.on(self.org, 7) as workload:
            expected = {"Account": org_tables(workload)["Account"]}
        rows = {"Account": self.rows()}
        assert len(expected["Account"]) >= len(RECORDS)
        found = differences(expected, rows)
        assert not found, summary(found)
        assert dirty_rows(rows) == 0
        assert not (self.folder / FOLDER).exists()

    def lose(self, ids: list[str]) -> None:
        """Change records so that Salesforce sends only a gap event for each change."""
        self.org.admin("POST", "/entities/Account/gaps", {"percent": 100})
        for number, record_id in enumerate(ids):
            self.org.rest("PATCH", f"/sobjects/Account/{record_id}", {"Phone": f"+43 {number}"})
        self.org.admin("POST", "/entities/Account/gaps", {"percent": 0})


@pytest.fixture
def replica(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replica]:
    waits = RecordClient.__init__.__kwdefaults__ | {"job_wait": 0.01}  # jobs of the local org are short
    monkeypatch.setattr(RecordClient.__init__, "__kwdefaults__", waits)
    with (
        LocalOrg.running(tmp_path / "org") as org,
        RandomWindows(org, tmp_path / "lake", 7) as windows,
    ):
        set_connection(monkeypatch, "sf", **org.airflow_connection())
        yield Replica(spark, org, windows, tmp_path / "replica")


@pytest.mark.extended
def test_a_new_table_and_then_its_dirty_rows_are_fetched(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    replica.org.rest("DELETE", f"/sobjects/Account/{replica.ids[5]}")
    replica.apply()
    before = read_snapshot(replica.output, None)
    killed = RefreshFiles(replica.output, partial(storage_path, conn_id=None), "20260101T000000Z-killed")
    killed.write("Account", iter(["half of a li"]))
    whole = RecordClient.bulk_query

    def breaking(self: RecordClient, *arguments: Any, **options: Any) -> Iterator[Any]:
        records = whole(self, *arguments, **options)
        yield from (next(records) for _ in range(10))
        raise ServiceUnavailableError("Account: its records by the Bulk API, after 10: the connection failed")

    with monkeypatch.context() as patch:
        patch.setattr(RecordClient, "bulk_query", breaking)
        with pytest.raises(ServiceUnavailableError, match="after 10"):
            replica.refresh(bulk_threshold=1)
    assert read_snapshot(replica.output, None) == before
    assert not (replica.folder / FOLDER).exists()

    files: dict[str, str] = {}

    def look() -> None:
        files.update({path.name: path.read_text() for path in (replica.folder / FOLDER).rglob("*.json*")})

    result = replica.refresh(bulk_threshold=1, bulk_page_records=7, before_job=look)
    assert result | {"seconds": 0} == {
        **{"mode": "full", "fetched": len(RECORDS), "deleted": 1, "seconds": 0, "still_dirty": 0, "flag": None}
    }
    replica.assert_equal()
    assert files.keys() == {"refresh.json", "part-00000.jsonl"}
    lines = [json.loads(line) for line in files["part-00000.jsonl"].splitlines()]
    assert {line["Id"] for line in lines} == set(replica.ids)
    assert not any(replica.org.client_secret in text for text in files.values())

    # Rows for two queries, one row of a record in the recycle bin, and a token that is revoked before each query.
    replica.lose(replica.ids[:5] + replica.ids[6:])
    replica.org.rest("DELETE", f"/sobjects/Account/{replica.ids[6]}")
    replica.apply()
    by_rest = RecordClient.query

    def expired(self: RecordClient, *arguments: Any) -> Iterator[Any]:
        replica.org.revoke()
        return by_rest(self, *arguments)

    monkeypatch.setattr(RecordClient, "query", expired)
    monkeypatch.setattr("airflow_provider_sfstream.salesforce.soql.ids_in_url", lambda *_: 21)
    result = replica.refresh()
    assert result | {"seconds": 0} == {
        **{"mode": "records", "fetched": len(RECORDS) - 1, "deleted": 1, "seconds": 0, "still_dirty": 0, "flag": None}
    }
    assert replica.result["snapshot"] == read_snapshot(replica.output, None).number
    replica.assert_equal()
    with pytest.raises(AirflowSkipException, match="No row of the replica is dirty"):
        replica.refresh()


@pytest.mark.extended
def test_an_added_checkbox_is_fetched_for_all_rows(replica: Replica) -> None:
    """No event reports its value false in existing records, so the refresh fetches the new columns and no others."""
    replica.apply()
    replica.refresh()
    replica.org.admin("POST", "/entities/Account/fields", {"name": "Checked__c", "type": "Boolean"})
    replica.org.admin("POST", "/entities/Account/fields", {"name": "Grade__c", "type": "Percent"})
    replica.org.rest("PATCH", f"/sobjects/Account/{replica.ids[1]}", {"Checked__c": True, "Grade__c": 7.5})
    replica.org.rest("DELETE", f"/sobjects/Account/{replica.ids[2]}")
    replica.apply()
    assert [row["Checked__c"] for row in replica.rows().values()].count(None) == len(RECORDS) - 1
    read: list[Any] = []

    def look() -> None:
        read.extend(json.loads(line) for path in (replica.folder / FOLDER).rglob("*.jsonl") for line in path.open())

    result = replica.refresh(before_job=look)
    assert result | {"seconds": 0} == {
        **{"mode": "columns", "fetched": len(RECORDS), "deleted": 0, "seconds": 0, "still_dirty": 0, "flag": None}
    }
    assert {name for line in read for name in line} == {"Id", "Checked__c", "Grade__c", "_found"}
    replica.assert_equal()
    with pytest.raises(AirflowSkipException, match="No row of the replica is dirty"):
        replica.refresh()


@pytest.mark.extended
def test_changes_during_a_refresh_are_fetched_by_the_next_refresh(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica.lose(replica.ids)
    replica.org.admin("POST", "/entities/Account/overflow", {})
    replica.apply()
    one, two = replica.ids[:2]

    def meanwhile() -> None:
        replica.org.rest("PATCH", f"/sobjects/Account/{one}", {"Phone": "+43 1"})
        replica.org.rest("DELETE", f"/sobjects/Account/{two}")
        replica.org.admin("POST", "/entities/Account/overflow", {})
        replica.apply()

    result = replica.refresh(before_job=meanwhile)
    assert (result["mode"], result["still_dirty"]) == ("full", 2)
    assert result["flag"] is not None, "the second overflow happened after the refresh began"
    left = {name: row["_dirty_reason"] for name, row in replica.rows().items() if row["_dirty"]}
    assert left == dict.fromkeys((one, two), "changed_while_refreshed")

    result = replica.refresh(scope="all")
    assert (result["mode"], result["still_dirty"], result["flag"]) == ("full", 0, None)
    replica.assert_equal()
