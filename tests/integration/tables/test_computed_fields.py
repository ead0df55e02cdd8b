"""Computed fields, which no event carries: formulas and roll-up summaries of the record and of related records."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from airflow_provider_sfstream._airflow import AirflowSkipException
from airflow_provider_sfstream.actions.tables.replica import read_snapshot
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.salesforce.rest.records import RecordClient
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig
from airflow_provider_sfstream.tables.replica.job import run
from airflow_provider_sfstream.tables.replica.reader import read_replica
from airflow_provider_sfstream.tables.replica.snapshots import TableState
from airflow_provider_sfstream.tables.runner.on_spark import SparkEngine
from tests.support.change_lake import ChangeLake, change
from tests.support.computed_fields import COMPUTED, add_computed_fields
from tests.support.localorg import LocalOrg
from tests.support.org_workload import RandomWindows
from tests.support.refreshing import refresh
from tests.support.tasks import set_connection

ONE, TWO, THREE = "a0W000000000001AAA", "a0W000000000002AAA", "a0W000000000003AAA"
FIELDS = {entity: [field["name"] for field in fields] for entity, fields in COMPUTED.items()}


class Replica:
    """The replica of an org that has computed fields."""

    def __init__(self, spark: Any, org: LocalOrg, windows: RandomWindows, folder: Path) -> None:
        self._spark, self.org, self._windows = spark, org, windows
        self.arguments = {"output_url": folder.as_uri(), "salesforce_conn_id": "sf"}
        self._applied = 0

    def new(self, entity: str, **values: Any) -> str:
        return str(self.org.rest("POST", f"/sobjects/{entity}", values)["id"])

    def change(self, entity: str, record_id: str, **values: Any) -> None:
        self.org.rest("PATCH", f"/sobjects/{entity}/{record_id}", values)

    def apply(self) -> None:
        self._windows.drain_rest(1_000)
        manifests = tuple(self._windows.manifests[self._applied :])
        self._applied = len(self._windows.manifests)
        run(SparkEngine(self._spark), ReplicaConfig(output_url=self.arguments["output_url"], manifests=manifests))

    def refresh(self, **arguments: Any) -> dict[str, Any]:
        result: dict[str, Any] = refresh(self._spark, **self.arguments, **arguments)["tables"]
        return result

    def compare(self, **arguments: Any) -> dict[str, Any]:
        return self.refresh(scope="computed", **arguments)

    def state(self, table: str) -> TableState:
        return read_snapshot(self.arguments["output_url"], None).tables[table]

    def values(self, entity: str) -> dict[str, list[Any]]:
        """Return the computed columns of a table by record ID."""
        rows = read_replica(self._spark, self.arguments["output_url"], entity).select("Id", *FIELDS[entity]).collect()
        return {row["Id"]: [_utc(value) for value in row[1:]] for row in rows}

    def values_of_org(self, entity: str) -> dict[str, list[Any]]:
        """Return the current values of the same fields in the org by record ID."""
        query = quote(f"SELECT Id, {', '.join(FIELDS[entity])} FROM {entity}")
        records = self.org.rest("GET", f"/queryAll?q={query}")["records"]
        return {record["Id"]: [_moment(record[name]) for name in FIELDS[entity]] for record in records}

    def is_equal(self) -> bool:
        return all(self.values(entity) == self.values_of_org(entity) for entity in ("Account", "Contact"))


def _utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _moment(value: Any) -> Any:
    return datetime.fromisoformat(value) if isinstance(value, str) and value.endswith("+0000") else value


@pytest.fixture
def replica(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replica]:
    waits = RecordClient.__init__.__kwdefaults__ | {"job_wait": 0.01}  # jobs of the local org are short
    monkeypatch.setattr(RecordClient.__init__, "__kwdefaults__", waits)
    with LocalOrg.running(tmp_path / "org") as org, RandomWindows(org, tmp_path / "lake", 7) as windows:
        set_connection(monkeypatch, "sf", **org.airflow_connection())
        add_computed_fields(org)
        yield Replica(spark, org, windows, tmp_path / "replica")


@pytest.mark.extended
def test_computed_fields_are_fetched_with_records_and_compared_separately(replica: Replica) -> None:
    since = "2026-01-31T10:00:00Z"
    accounts = [replica.new("Account", Name=f"A{n}", Amount_Owed__c=n, Some_Date_Time__c=since) for n in range(5)]
    contact = replica.new("Contact", LastName="C", AccountId=accounts[0])
    replica.new("Contact", LastName="D")
    deal = {"StageName": "New", "CloseDate": "2026-12-31", "AccountId": accounts[0]}
    opportunity = replica.new("Opportunity", Name="O", Amount=5.5, **deal)
    replica.apply()
    replica.refresh(bulk_threshold=3)
    assert replica.is_equal()
    state = replica.state("Account")
    assert set(state.computed.columns) == set(FIELDS["Account"])
    assert state.computed.compared_at is not None
    assert {name: state.columns[name] for name in FIELDS["Account"]} == dict.fromkeys(FIELDS["Account"], "double")
    assert set(replica.state("Contact").computed.columns) == {"Name", *FIELDS["Contact"]}

    replica.change("Account", accounts[0], Industry="Media", Some_Date_Time__c="2026-02-01T10:00:00Z")
    replica.org.rest("DELETE", f"/sobjects/Opportunity/{opportunity}")
    replica.apply()
    before = replica.state("Account")
    assert replica.values("Contact")[contact] != replica.values_of_org("Contact")[contact], (
        "no event reports the change of a computed field"
    )
    compared = replica.compare(bulk_threshold=3)
    assert {name: (table["mode"], table["differed"]) for name, table in compared.items()} == {
        "Account": ("computed", 1),
        "Contact": ("computed", 1),
        "Opportunity": ("computed", 0),
    }
    assert replica.is_equal()
    after = replica.state("Account")
    assert after.version > before.version
    assert str(after.computed.compared_at) > str(before.computed.compared_at)
    assert {table["differed"] for table in replica.compare().values()} == {0}
    assert replica.state("Account").version == after.version, "nothing differed, so nothing was written"


@pytest.mark.extended
def test_computed_fields_on_change_fetches_the_records_that_an_event_changed(replica: Replica) -> None:
    shipments = [replica.new("Shipment__c", Weight__c=n) for n in range(4)]
    replica.apply()
    replica.refresh(computed_fields="never")
    assert replica.state("Shipment__c").computed.columns == ()
    with pytest.raises(AirflowSkipException):
        replica.refresh()
    assert replica.refresh(computed_fields="on_change")["Shipment__c"]["mode"] == "computed"
    assert replica.values("Shipment__c") == replica.values_of_org("Shipment__c")
    with pytest.raises(AirflowSkipException):
        replica.refresh(computed_fields="on_change")

    for shipment in shipments[:2]:
        replica.change("Shipment__c", shipment, Weight__c=70)
    replica.apply()
    assert (replica.state("Shipment__c").dirty, replica.state("Shipment__c").computed.changed) == (0, 2)

    def meanwhile() -> None:
        replica.change("Shipment__c", shipments[1], Weight__c=80)
        replica.change("Shipment__c", shipments[2], Weight__c=90)
        replica.apply()

    result = replica.refresh(computed_fields="on_change", before_job=meanwhile)["Shipment__c"]
    assert (result["mode"], result["fetched"], result["still_dirty"]) == ("records", 2, 0)
    assert [replica.values("Shipment__c")[shipment][0] for shipment in shipments] == [140.0, 140.0, 4.0, 6.0]
    assert replica.state("Shipment__c").computed.changed == 2, "records that an event changed after the fetch"
    assert replica.refresh(computed_fields="on_change")["Shipment__c"]["fetched"] == 2
    assert replica.values("Shipment__c") == replica.values_of_org("Shipment__c")
    assert (replica.state("Shipment__c").computed.changed, replica.state("Shipment__c").dirty_list) == (0, None)


def test_a_computed_refresh_changes_only_computed_columns(spark: Any, tmp_path: Path) -> None:
    lake = ChangeLake(spark, tmp_path)
    created = [change(n, "CREATE", [record], f"t{n}", Name=str(n)) for n, record in enumerate((ONE, TWO), 1)]
    lake.run(lake.land(*created))
    lake.refresh({"Id": ONE, "Name": "1"}, {"Id": TWO, "Name": "2"})
    lines = [{"Id": record, "Sum__c": text} for record, text in ((ONE, "1.5"), (TWO, "2.5"), (THREE, "3.5"))]
    with lake.refreshing(*lines, mode="computed", computed={"Sum__c": "double"}) as url:
        gap = change(3, "GAP_UPDATE", [TWO], "t3")
        lake.run(lake.land(change(4, "UPDATE", [ONE], "t4", Name="later"), gap))
        metrics = lake.run(refresh_url=url)
    assert lake.values("Sum__c") == {ONE: 1.5, TWO: 2.5}
    assert lake.values("Name") == {ONE: "later", TWO: "2"}
    assert lake.values("_dirty") == {ONE: False, TWO: True}
    assert (metrics.tables["Widget__c"].differed, metrics.tables["Widget__c"].dirty) == (2, 1)
    # The org no longer has the field.
    with lake.refreshing(*({"Id": line["Id"]} for line in lines), mode="computed", columns=["Sum__c"]) as url:
        lake.run(refresh_url=url)
    assert lake.values("Sum__c") == {ONE: None, TWO: None}
    assert lake.snapshot().tables["Widget__c"].computed.columns == ()
    with (
        lake.refreshing(mode="computed", computed={"Name": "double"}) as url,
        pytest.raises(ConfigurationError, match="type of the column Name has changed since"),
    ):
        lake.run(refresh_url=url)
