"""What the jobs tell that write replica tables: of which stream or object a table is, and which columns pass."""

from __future__ import annotations

from typing import Any

from airflow_provider_sfstream.protocol.dataset_names import DatasetName
from airflow_provider_sfstream.spark.replica.snapshots import AppliedWindow, Snapshot, StreamState, TableState
from airflow_provider_sfstream.spark.storage.column_registry import ColumnRegistry
from airflow_provider_sfstream.tasks.lineage.replicas import refresh_lineage, replica_lineage
from airflow_provider_sfstream.tasks.lineage.told import Column

ORG = "sfstream://salesforce_default"
CHANGES = DatasetName(ORG, "/data/AccountChangeEvent?subscription=airflow")
OBJECT = DatasetName(ORG, "Account")
PLACE = AppliedWindow("w", "file:///lake/x/windows/2026/01/10/w/manifest.json", 1, 3)
COLUMNS = ColumnRegistry({"Phone": "string", "BillingCity": "string", "Score__c": "double"})
FIELDS = {"Phone": "Data:Phone", "BillingCity": "Data:Address", "CreatedDate": "CreatedDate:DateTime"}


def snapshot() -> Snapshot:
    stream = StreamState("00D", "pubsub", "/data/AccountChangeEvent", "airflow", PLACE, None)
    return Snapshot(7, None, {"s": stream}, {"Account": TableState("s", columns=COLUMNS, fields=FIELDS)})


def given(topic: str = "/data/AccountChangeEvent", window: str = "w") -> dict[str, Any]:
    url = f"s3://lake/raw/00D/pubsub/{window}/airflow/windows/2026/01/10/{window}/manifest.json"
    return {"window_id": window, "manifest_url": url, "asset_uri": f"{ORG}{topic}?subscription=airflow"}


METRICS = {"windows": ["w"], "tables": {"Account": {"rows": 4}}}


def test_columns_that_are_a_field_of_the_event_go_through() -> None:
    lineage = replica_lineage([given()], "s3a://lake/replica", METRICS, snapshot(), has_ended=True)
    [told] = lineage.outputs
    assert (told.name, told.rows, told.version) == (DatasetName("s3://lake", "replica/Account"), 4, "7")
    assert told.columns["_deleted"] == "boolean"
    assert told.columns["Score__c"] == "double"
    assert told.origins == {"Phone": [Column(CHANGES, "Phone")]}
    assert [each.name for each in lineage.inputs] == [CHANGES]
    assert lineage.windows == [{"window_id": "w"}]


def test_of_two_streams_the_one_that_feeds_the_table_is_the_origin() -> None:
    both = [given(), given("/data/ContactChangeEvent", "v")]
    [told] = replica_lineage(both, "/lake", METRICS, snapshot(), has_ended=True).outputs
    assert told.origins == {"Phone": [Column(CHANGES, "Phone")]}


def test_a_replica_that_the_worker_cannot_read_is_told_by_names() -> None:
    [told] = replica_lineage([given()], "/lake", METRICS, None, has_ended=True).outputs
    assert (told.name.name, told.rows, told.columns, told.origins) == ("/lake/Account", 4, {}, {})


def test_a_refresh_reads_the_object_whose_fields_the_columns_are() -> None:
    fetched = {"Account": {"mode": "full", "fetched": 9}}
    lineage = refresh_lineage("salesforce_default", "/lake", fetched, METRICS, snapshot())
    [read], [written] = lineage.inputs, lineage.outputs
    assert (read.name, read.rows, list(read.columns)) == (OBJECT, 9, ["Id", "Phone", "BillingCity", "Score__c"])
    assert (written.name.name, written.rows) == ("/lake/Account", 4)
    assert written.origins == {name: [Column(OBJECT, name)] for name in read.columns}


def test_before_a_refresh_nothing_is_known() -> None:
    lineage = refresh_lineage("salesforce_default", "/lake", {}, None, None)
    assert (list(lineage.inputs), list(lineage.outputs)) == ([], [])
