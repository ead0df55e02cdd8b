"""What a drain tells of a topic and of its landed stream."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.protocol.dataset_names import DatasetName
from airflow_provider_sfstream.protocol.manifest import Manifest, WindowFile
from airflow_provider_sfstream.protocol.stream_uris import StreamUri
from airflow_provider_sfstream.tasks.lineage.drains import DrainedWindows, drain_lineage, event_fields
from airflow_provider_sfstream.tasks.lineage.told import Column, type_text
from tests.support.windows import STREAM, manifest

LANDED = StreamUri("salesforce_default", "/event/Order__e", "airflow")
TOPIC = DatasetName("sfstream://salesforce_default", "/event/Order__e")
STORED = DatasetName("sfstream://salesforce_default", "/event/Order__e?subscription=airflow")
FIELDS = {"Amount__c": "double", "Sent__c": "timestamp"}


def window(tmp_path: Path, number: int, rows: int) -> Manifest:
    """Return the manifest of a window with two files."""
    files = (WindowFile("part-0.parquet", rows - 1, 100, "00"), WindowFile("part-1.parquet", 1, 11, "00"))
    empty = manifest(Landing.from_url(tmp_path.as_uri()), number=number)
    return replace(empty, files=files, payload_bytes=rows * 20, window=replace(empty.window, event_count=rows))


def test_beforehand_only_the_names_are_known() -> None:
    lineage = drain_lineage(LANDED, None, {}, has_ended=False)
    assert [(told.name, told.rows, told.columns) for told in (*lineage.inputs, *lineage.outputs)] == [
        (TOPIC, None, {}),
        (STORED, None, {}),
    ]


def test_windows_are_counted_and_their_fields_lead_back_to_the_topic(tmp_path: Path) -> None:
    two = (window(tmp_path, 1, 5), window(tmp_path, 2, 3))
    lineage = drain_lineage(LANDED, DrainedWindows(two, two), FIELDS, has_ended=True)
    [read], [written] = lineage.inputs, lineage.outputs
    assert (read.name, read.rows, read.size, read.columns) == (TOPIC, 8, 160, FIELDS)
    assert (written.name, written.rows, written.size, written.files) == (STORED, 8, 222, 4)
    assert written.version == two[1].window.window_id
    assert written.also == DatasetName("file", f"{tmp_path}/{STREAM.path}")
    assert list(written.columns)[:2] == ["ordinal", "replay_id"]
    assert written.origins == {name: [Column(TOPIC, name)] for name in FIELDS}
    assert [fact["window_id"] for fact in lineage.windows] == [each.window.window_id for each in two]
    json.dumps(lineage.windows)


def test_windows_that_others_landed_were_not_written_by_this_task(tmp_path: Path) -> None:
    theirs, own = window(tmp_path, 1, 5), window(tmp_path, 2, 3)
    lineage = drain_lineage(LANDED, DrainedWindows((theirs, own), (own,)), {}, has_ended=True)
    assert (lineage.inputs[0].rows, lineage.outputs[0].rows, lineage.outputs[0].files) == (3, 3, 2)
    assert len(lineage.windows) == 2


def schema(name: str, *fields: str) -> str:
    columns = [{"name": field, "type": ["null", "double"], "default": None} for field in fields]
    return json.dumps({"type": "record", "name": name, "fields": columns})


@pytest.mark.parametrize(
    ("schemas", "fields"),
    [
        ([schema("Order__e", "A__c"), schema("Order__e", "A__c", "B__c")], ["A__c", "B__c"]),
        ([schema("Order__e", "A__c"), schema("Other__e", "B__c")], []),
        ([], []),
    ],
)
def test_fields_are_those_of_one_event_type(tmp_path: Path, schemas: list[str], fields: list[str]) -> None:
    texts = {f"../../../../../schemas/{number}.avsc": text for number, text in enumerate(schemas)}
    named = {str(number): name for number, name in enumerate(texts)}
    one = replace(window(tmp_path, 1, 2), schemas=named)
    by_url = {one.url_of(name): text for name, text in texts.items()}
    assert list(event_fields([one], by_url.__getitem__)) == fields


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
