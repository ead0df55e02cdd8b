"""What the event log's job tells: the streams it was given, and the tables as they are in storage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.protocol.dataset_names import DatasetName
from airflow_provider_sfstream.spark.storage.delta_table import DeltaTableLog, TableFile
from airflow_provider_sfstream.spark.storage.table_location import TableLocation
from airflow_provider_sfstream.tasks.lineage.event_tables import event_columns
from airflow_provider_sfstream.tasks.lineage.given import given_streams
from airflow_provider_sfstream.tasks.lineage.jobs import EventLog, event_log_lineage
from airflow_provider_sfstream.tasks.lineage.told import Column, Told

ORG = "sfstream://salesforce_default"
FOLDER = "/lake/raw/00D/pubsub"
ORDERS = DatasetName(ORG, "/event/Order__e?subscription=airflow")
METRICS = {"windows": ["w1", "w2"], "tables": {"Order__e": 5}, "quarantined": 0}


def result(topic: str, window: str, events: int, **more: Any) -> dict[str, Any]:
    """Return the result of a drain."""
    folder = topic.strip("/").replace("/", "~")
    return {
        "window_id": window,
        "manifest_url": f"file://{FOLDER}/{folder}/airflow/windows/2026/01/31/{window}/manifest.json",
        "asset_uri": f"{ORG}{topic}?subscription=airflow",
        "event_count": events,
        "payload_bytes": events * 10,
        **more,
    }


def delta_table(folder: Path, *columns: str, files: list[TableFile]) -> None:
    schema = pa.schema([(name, pa.float64()) for name in columns])
    location = TableLocation(str(folder))
    log = DeltaTableLog(location)
    log.commit(log.version(), schema, files, [])


def lineage(output: Path, windows: Any, **metrics: Any) -> dict[str, Told]:
    """Return what is told of each table that a job wrote, by its name."""
    event_log = EventLog(str(output), None)
    told = event_log_lineage(windows, event_log, METRICS | metrics, has_ended=True)
    return {each.name.name.rpartition("/")[2]: each for each in told.outputs}


def test_windows_of_one_stream_are_one_input() -> None:
    [stream] = given_streams([result("/event/Order__e", "w1", 3), [result("/event/Order__e", "w2", 2)]])
    told = stream.told(has_ended=True)
    assert (told.name, told.rows, told.size) == (ORDERS, 5, 50)
    assert told.also == DatasetName("file", f"{FOLDER}/event~Order__e/airflow")
    assert (stream.told(has_ended=False).rows, len(stream.manifests)) == (None, 2)


def test_a_manifest_alone_is_the_folder_that_the_drain_names_too() -> None:
    given = result("/event/Order__e", "w1", 3)
    [by_url] = given_streams(given["manifest_url"])
    assert by_url.told(has_ended=True).name == given_streams(given)[0].told(has_ended=True).also
    assert (by_url.rows, by_url.uri) == (None, None)


def test_an_interval_counts_all_of_its_windows() -> None:
    windows = [result("/event/Order__e", "w1", 3), result("/event/Order__e", "w2", 2)]
    interval = {"mode": "interval", "windows": windows, "event_time_from": "a", "event_time_to": "b", "event_count": 5}
    [stream] = given_streams(interval | {"asset_uri": windows[0]["asset_uri"]})
    assert (stream.name, stream.rows, stream.size, len(stream.manifests)) == (ORDERS, 5, None, 2)


def test_what_is_no_window_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        given_streams(7)


def test_a_table_is_told_as_it_is_in_storage(tmp_path: Path) -> None:
    written = [TableFile(f"event_date=2026-01-10/{window}/part-0.parquet", 100, 2) for window in ("w1", "w2.a-b", "w0")]
    columns = ("_replay_id", "_event_time", "Amount__c", "Amount__c__double", "window_id")
    delta_table(tmp_path / "Order__e", *columns, files=written)
    told = lineage(tmp_path, result("/event/Order__e", "w1", 3))["Order__e"]
    assert told.name == DatasetName("file", f"{tmp_path}/Order__e")
    assert list(told.columns) == list(columns)
    assert (told.rows, told.files, told.size, told.version) == (5, 2, 200, "0")
    assert {column: origin[0] for column, origin in told.origins.items()} == {
        "_replay_id": Column(ORDERS, "replay_id"),
        "Amount__c": Column(ORDERS, "Amount__c"),
        "Amount__c__double": Column(ORDERS, "Amount__c"),
    }


def test_a_table_that_the_worker_cannot_read_is_told_by_name_and_rows(tmp_path: Path) -> None:
    told = lineage(tmp_path, result("/event/Order__e", "w1", 3))["Order__e"]
    assert (told.rows, told.columns, told.origins, told.files) == (5, {}, {}, None)


def test_of_several_streams_the_one_of_the_event_type_is_the_origin(tmp_path: Path) -> None:
    for name in ("Order__e", "Other__e"):
        delta_table(tmp_path / name, "Amount__c", files=[])
    windows = [result("/event/Order__e", "w1", 3), result("/data/ChangeEvents", "w2", 2)]
    told = lineage(tmp_path, windows, tables={"Order__e": 3, "Other__e": 2}, quarantined=1)
    assert told["Order__e"].origins["Amount__c"] == [Column(ORDERS, "Amount__c")]
    assert told["Other__e"].origins == {}
    assert told["_quarantine"].rows == 1


def test_without_metrics_no_table_is_known(tmp_path: Path) -> None:
    told = event_log_lineage(result("/event/Order__e", "w1", 3), EventLog(str(tmp_path), None), None, has_ended=True)
    assert ([each.name for each in told.inputs], list(told.outputs)) == ([ORDERS], [])


def test_columns_of_this_package_are_of_the_landing_or_of_none() -> None:
    columns = {"_event_id": "string", "_topic": "string", "event_date": "date", "Name": "string"}
    assert event_columns(columns) == {"_event_id": "event_id", "Name": "Name"}


def test_the_facts_are_plain_json(tmp_path: Path) -> None:
    told = event_log_lineage([], EventLog(str(tmp_path), None), METRICS, has_ended=True)
    assert json.loads(json.dumps(told.windows)) == [{"window_id": "w1"}, {"window_id": "w2"}]
