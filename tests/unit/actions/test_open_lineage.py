"""Lineage datasets of each task: the streams and objects that it reads, and the stored tables that it writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow.providers.openlineage.extractors import OperatorLineage

from airflow_provider_sfstream.actions.open_lineage import (
    drain_lineage,
    event_fields,
    event_log_lineage,
    refresh_lineage,
    replica_lineage,
)
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.manifest import Manifest, WindowFile
from airflow_provider_sfstream.monitoring.datasets import type_text
from airflow_provider_sfstream.monitoring.lineage import DatasetName
from airflow_provider_sfstream.salesforce.stream_uris import StreamUri
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog, TableFile
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.replica.snapshots import AppliedWindow, Snapshot, StreamState, TableState
from tests.support.datasets import SentDataset, as_sent
from tests.support.windows import STREAM, manifest

ORG = "sfstream://salesforce_default"
LANDED = StreamUri("salesforce_default", "/event/Order__e", "airflow")
TOPIC = DatasetName(ORG, "/event/Order__e")
STORED = DatasetName(ORG, "/event/Order__e?subscription=airflow")
CHANGES = DatasetName(ORG, "/data/AccountChangeEvent?subscription=airflow")
FIELDS = {"Amount__c": "double", "Sent__c": "timestamp"}
FOLDER = "/lake/raw/00D/pubsub"


def sent(lineage: OperatorLineage) -> tuple[list[SentDataset], list[SentDataset]]:
    """Return inputs and outputs as a catalogue receives them."""
    return [*map(SentDataset, lineage.inputs)], [*map(SentDataset, lineage.outputs)]


def window_facts(lineage: OperatorLineage) -> list[dict[str, Any]]:
    facts: list[dict[str, Any]] = as_sent(lineage.run_facets["sfstream_windows"])["windows"]
    return facts


def facet(dataset: SentDataset, kind: str, name: str) -> dict[str, Any]:
    return {key: value for key, value in dataset.document[kind][name].items() if not key.startswith("_")}


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("long", "long"),
        ({"struct": {"Street": "string", "At": {"array": "double"}}}, "struct<Street:string,At:array<double>>"),
        ({"map": "long"}, "map<string,long>"),
    ],
)
def test_types_are_written_as_in_sql(type_: Any, text: str) -> None:
    assert type_text(type_) == text


class TestDrain:
    @staticmethod
    def window(tmp_path: Path, number: int, rows: int) -> Manifest:
        """Return the manifest of a window with two files."""
        files = (WindowFile("part-0.parquet", rows - 1, 100, "00"), WindowFile("part-1.parquet", 1, 11, "00"))
        empty = manifest(Landing.from_url(tmp_path.as_uri()), number=number)
        return replace(empty, files=files, payload_bytes=rows * 20, window=replace(empty.window, event_count=rows))

    def test_before_the_run_only_dataset_names_are_known(self) -> None:
        lineage = drain_lineage(LANDED, None, (), {}, has_ended=False)
        [read], [written] = sent(lineage)
        assert (read.name, written.name) == (TOPIC, STORED)
        assert (read.document["facets"], read.document["inputFacets"]) == ({}, {})
        assert (written.document["facets"], written.document["outputFacets"]) == ({}, {})
        assert lineage.run_facets == {}

    def test_a_drain_that_ended_without_a_window_has_no_output(self) -> None:
        [read], outputs = sent(drain_lineage(LANDED, None, (), {}, has_ended=True))
        assert (read.name, outputs) == (TOPIC, [])

    def test_facets_hold_all_facts_of_the_landed_windows(self, tmp_path: Path) -> None:
        two = (self.window(tmp_path, 1, 5), self.window(tmp_path, 2, 3))
        lineage = drain_lineage(LANDED, two, two, FIELDS, has_ended=True)
        [read], [written] = sent(lineage)
        assert (read.name, read.columns) == (TOPIC, FIELDS)
        assert facet(read, "inputFacets", "inputStatistics") == {"rowCount": 8, "size": 160}
        assert written.name == STORED
        assert facet(written, "outputFacets", "outputStatistics") == {"rowCount": 8, "size": 222, "fileCount": 4}
        assert list(written.columns)[:2] == ["ordinal", "replay_id"]
        assert written.columns.items() >= FIELDS.items()
        assert written.document["facets"]["schema"]["fields"][-1] == {
            "name": "Sent__c",
            "type": "timestamp",
            "fields": [],
        }
        assert facet(written, "facets", "version") == {"datasetVersion": two[1].window.window_id}
        assert written.document["facets"]["symlinks"]["identifiers"] == [
            {"namespace": "file", "name": f"{tmp_path}/{STREAM.path}", "type": "LOCATION"}
        ]
        assert [fact["window_id"] for fact in window_facts(lineage)] == [each.window.window_id for each in two]

    def test_windows_landed_by_another_task_are_not_counted_as_written(self, tmp_path: Path) -> None:
        theirs, own = self.window(tmp_path, 1, 5), self.window(tmp_path, 2, 3)
        lineage = drain_lineage(LANDED, (theirs, own), (own,), {}, has_ended=True)
        [read], [written] = sent(lineage)
        assert (read.rows, written.rows, written.files) == (3, 3, 2)
        assert len(window_facts(lineage)) == 2

    @pytest.mark.parametrize(
        ("types", "fields"),
        [
            ([("Order__e", "A__c"), ("Order__e", "A__c", "B__c")], ["A__c", "B__c"]),
            ([("Order__e", "A__c"), ("Other__e", "B__c")], []),
            ([], []),
        ],
    )
    def test_fields_are_listed_only_for_windows_of_one_event_type(
        self, tmp_path: Path, types: list[tuple[str, ...]], fields: list[str]
    ) -> None:
        texts = {f"../../../../../schemas/{n}.avsc": self.schema(*each) for n, each in enumerate(types)}
        named = {str(number): name for number, name in enumerate(texts)}
        one = replace(self.window(tmp_path, 1, 2), schemas=named)
        by_url = {one.url_of(name): text for name, text in texts.items()}
        assert list(event_fields([one], by_url.__getitem__)) == fields

    @staticmethod
    def schema(name: str, *fields: str) -> str:
        columns = [{"name": field, "type": ["null", "double"], "default": None} for field in fields]
        return json.dumps({"type": "record", "name": name, "fields": columns})


class TestEventLog:
    METRICS = {"windows": ["w1", "w2"], "tables": {"Order__e": 5}, "quarantined": 0}

    @staticmethod
    def result(topic: str, window: str, events: int) -> dict[str, Any]:
        """Return the result of a drain."""
        folder = topic.strip("/").replace("/", "~")
        return {
            "window_id": window,
            "manifest_url": f"file://{FOLDER}/{folder}/airflow/windows/2026/01/31/{window}/manifest.json",
            "asset_uri": f"{ORG}{topic}?subscription=airflow",
            "event_count": events,
            "payload_bytes": events * 10,
        }

    @staticmethod
    def delta_table(folder: Path, *columns: str, files: list[TableFile]) -> None:
        schema = pa.schema([(name, pa.float64()) for name in columns])
        log = DeltaTableLog(TableLocation(str(folder)))
        log.commit(log.version(), schema, files, [])

    @staticmethod
    def inputs(windows: Any, *, has_ended: bool = True) -> list[SentDataset]:
        return sent(event_log_lineage(windows, "/lake", None, None, has_ended=has_ended))[0]

    def outputs(self, output: Path, windows: Any, **metrics: Any) -> dict[str, SentDataset]:
        """Return each table that a job wrote, by its name."""
        lineage = event_log_lineage(windows, str(output), None, self.METRICS | metrics, has_ended=True)
        return {each.name.name.rpartition("/")[2]: each for each in sent(lineage)[1]}

    def test_windows_of_one_stream_are_one_input(self) -> None:
        windows = [self.result("/event/Order__e", "w1", 3), [self.result("/event/Order__e", "w2", 2)]]
        [stream] = self.inputs(windows)
        assert (stream.name, stream.rows, stream.size) == (STORED, 5, 50)
        assert stream.folder == DatasetName("file", f"{FOLDER}/event~Order__e/airflow")
        [begun] = self.inputs(windows, has_ended=False)
        assert (begun.name, begun.rows, begun.folder) == (STORED, None, stream.folder)

    def test_windows_of_two_streams_are_two_inputs(self) -> None:
        windows = [self.result("/event/Order__e", "w1", 3), self.result("/data/AccountChangeEvent", "w2", 2)]
        assert [(each.name, each.rows) for each in self.inputs(windows)] == [(STORED, 3), (CHANGES, 2)]

    def test_manifest_url_alone_has_the_folder_dataset_of_its_drain(self) -> None:
        result = self.result("/event/Order__e", "w1", 3)
        [by_url] = self.inputs(result["manifest_url"])
        assert by_url.name == self.inputs(result)[0].folder
        assert (by_url.rows, by_url.folder) == (None, None)

    def test_an_interval_counts_all_of_its_windows(self) -> None:
        windows = [self.result("/event/Order__e", "w1", 3), self.result("/event/Order__e", "w2", 2)]
        bounds = {"event_time_from": "a", "event_time_to": "b"}
        interval = {"mode": "interval", "windows": windows, **bounds, "event_count": 5}
        [stream] = self.inputs(interval | {"asset_uri": windows[0]["asset_uri"]})
        assert (stream.name, stream.rows, stream.size) == (STORED, 5, None)

    def test_invalid_windows_are_refused(self) -> None:
        with pytest.raises(ConfigurationError):
            self.inputs(7)

    def test_table_output_has_the_facts_of_the_stored_table(self, tmp_path: Path) -> None:
        paths = [f"event_date=2026-01-10/{window}/part-0.parquet" for window in ("w1", "w2.a-b", "w0")]
        columns = ("_replay_id", "_event_time", "Amount__c", "window_id")
        self.delta_table(tmp_path / "Order__e", *columns, files=[TableFile(path, 100, 2) for path in paths])
        table = self.outputs(tmp_path, self.result("/event/Order__e", "w1", 3))["Order__e"]
        assert table.name == DatasetName("file", f"{tmp_path}/Order__e")
        assert table.columns == dict.fromkeys(columns, "double")
        assert (table.rows, table.files, table.size, table.version) == (5, 2, 200, "0")

    def test_unreadable_table_has_only_its_name_and_rows(self, tmp_path: Path) -> None:
        table = self.outputs(tmp_path, self.result("/event/Order__e", "w1", 3))["Order__e"]
        assert (table.rows, table.columns, table.files, table.version) == (5, {}, None, None)

    def test_the_quarantine_is_an_output_where_events_were_quarantined(self, tmp_path: Path) -> None:
        windows = self.result("/event/Order__e", "w1", 3)
        assert self.outputs(tmp_path, windows).keys() == {"Order__e"}
        paths = [f"{partition}/part-0.parquet" for partition in ("w1", "w1.replica-0", "w0")]
        self.delta_table(tmp_path / "_quarantine", "ordinal", files=[TableFile(path, 100, 1) for path in paths])
        quarantine = self.outputs(tmp_path, windows, quarantined=1)["_quarantine"]
        assert (quarantine.rows, quarantine.files, quarantine.size) == (1, 1, 100), "without the rows of a replica"

    def test_no_table_is_an_output_without_metrics(self, tmp_path: Path) -> None:
        windows = self.result("/event/Order__e", "w1", 3)
        inputs, outputs = sent(event_log_lineage(windows, str(tmp_path), None, None, has_ended=True))
        assert ([each.name for each in inputs], outputs) == ([STORED], [])

    def test_the_windows_are_a_run_facet(self, tmp_path: Path) -> None:
        lineage = event_log_lineage([], str(tmp_path), None, self.METRICS, has_ended=True)
        assert window_facts(lineage) == [{"window_id": "w1"}, {"window_id": "w2"}]


class TestReplica:
    METRICS = {"windows": ["w"], "tables": {"Account": {"rows": 4}}}
    WINDOW = {
        "window_id": "w",
        "manifest_url": "s3://lake/raw/00D/pubsub/w/airflow/windows/2026/01/10/w/manifest.json",
        "asset_uri": f"{ORG}/data/AccountChangeEvent?subscription=airflow",
    }

    @staticmethod
    def snapshot() -> Snapshot:
        place = AppliedWindow("w", "file:///lake/x/windows/2026/01/10/w/manifest.json", 1, 3)
        stream = StreamState("00D", "pubsub", "/data/AccountChangeEvent", "airflow", place, None)
        columns = {"Phone": "string", "BillingCity": "string", "Score__c": "double"}
        return Snapshot(7, None, {"s": stream}, {"Account": TableState("s", columns=columns)})

    def test_replica_table_has_the_columns_and_version_of_the_snapshot(self) -> None:
        lineage = replica_lineage([self.WINDOW], "s3a://lake/replica", self.METRICS, self.snapshot(), has_ended=True)
        [read], [table] = sent(lineage)
        assert (table.name, table.rows, table.version) == (DatasetName("s3://lake", "replica/Account"), 4, "7")
        assert (table.columns["_deleted"], table.columns["Score__c"]) == ("boolean", "double")
        assert read.name == CHANGES
        assert window_facts(lineage) == [{"window_id": "w"}]

    def test_unreadable_replica_has_only_table_names_and_rows(self) -> None:
        [table] = sent(replica_lineage([self.WINDOW], "/lake", self.METRICS, None, has_ended=True))[1]
        assert (table.name.name, table.rows, table.columns) == ("/lake/Account", 4, {})

    def test_zero_rows_are_reported_as_a_row_count(self) -> None:
        metrics = {"windows": ["w"], "tables": {"Account": {"rows": 0}}}
        [table] = sent(replica_lineage([self.WINDOW], "/lake", metrics, None, has_ended=True))[1]
        assert facet(table, "outputFacets", "outputStatistics") == {"rowCount": 0}

    def test_refresh_input_is_the_salesforce_object_with_its_fields(self) -> None:
        fetched = {"Account": {"mode": "full", "fetched": 9}}
        lineage = refresh_lineage("salesforce_default", "/lake", fetched, self.METRICS, self.snapshot())
        [read], [table] = sent(lineage)
        assert (read.name, read.rows) == (DatasetName(ORG, "Account"), 9)
        assert list(read.columns) == ["Id", "Phone", "BillingCity", "Score__c"]
        assert (table.name.name, table.rows) == ("/lake/Account", 4)
        assert table.columns.items() >= read.columns.items()

    def test_refresh_without_results_has_no_datasets(self) -> None:
        assert sent(refresh_lineage("salesforce_default", "/lake", {}, None, None)) == ([], [])
