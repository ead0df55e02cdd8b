"""Lineage of a drain, compared with the org's log and with the landed files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.monitoring.lineage import DatasetName
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from tests.support.airflow_names import lineage as airflow_lineage
from tests.support.datasets import SentDataset, as_sent
from tests.support.localorg import LocalOrg
from tests.support.tasks import context_for, set_connection

TOPIC = "/event/Order__e"
SOURCE = DatasetName("sfstream://salesforce_default", TOPIC)
TARGET = DatasetName("sfstream://salesforce_default", f"{TOPIC}?subscription=airflow")


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as local_org:
        local_org.define("Order__e", Number__c="double", Note__c="string")
        local_org.publish(TOPIC, [{"Number__c": float(n), "Note__c": "n" * n} for n in range(60)])
        yield local_org


@pytest.fixture
def drain(org: LocalOrg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., DrainReplayWindowOperator]:
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())

    def make(**arguments: Any) -> DrainReplayWindowOperator:
        landing, ends = str(tmp_path / "landing"), {"replay_store": "landing", "idle_timeout": 1.0}
        return DrainReplayWindowOperator(
            **{"task_id": "drain", "topic": TOPIC, "landing_url": landing, **ends, **arguments}
        )

    return make


def files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "landing").rglob("part-*.parquet"))


def test_lineage_of_a_window_matches_the_record_of_the_org(org: LocalOrg, drain: Any, tmp_path: Path) -> None:
    operator = drain()
    assert [SentDataset(each).name for each in operator.lineage(has_ended=False).inputs] == [SOURCE]
    window = operator.execute(context_for("drain"))
    lineage = operator.lineage(has_ended=True)
    [read], [written] = map(SentDataset, lineage.inputs), map(SentDataset, lineage.outputs)
    record = org.record(TOPIC)
    assert (read.name, read.rows, read.size) == (SOURCE, len(record), window["payload_bytes"])
    assert (written.name, written.rows) == (TARGET, len(record))
    assert written.size == sum(file.stat().st_size for file in files(tmp_path))
    assert written.files == len(files(tmp_path))
    assert written.version == window["window_id"]
    fields = {"CreatedDate": "timestamp", "CreatedById": "string", "Number__c": "double", "Note__c": "string"}
    assert read.columns == fields
    assert written.columns.items() >= fields.items()
    [fact] = as_sent(lineage.run_facets["sfstream_windows"])["windows"]
    assert (fact["manifest_url"], fact["through"]) == (window["manifest_url"], record[-1]["replay_id"].hex())
    assert written.folder is not None
    assert window["manifest_url"].startswith(f"file://{written.folder.name}/windows/")


def test_lineage_of_a_failed_drain_has_its_input_and_no_output(drain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = drain(topic="/event/Missing__e")
    with pytest.raises(AirflowFailException):
        operator.execute(context_for("drain"))
    lineage = operator.lineage(has_ended=True)
    assert [(each.name.name, each.rows) for each in map(SentDataset, lineage.inputs)] == [("/event/Missing__e", None)]
    assert lineage.outputs == [], "a failed drain has no output"


def test_lineage_without_readable_schemas_has_no_columns(drain: Any, tmp_path: Path) -> None:
    operator = drain()
    window = operator.execute(context_for("drain"))
    for schema in (tmp_path / "landing").rglob("*.avsc"):
        schema.unlink()
    [read] = map(SentDataset, operator.lineage(has_ended=True).inputs)
    assert (read.rows, read.columns) == (window["event_count"], {})


def test_the_hook_lineage_collector_of_airflow_receives_the_assets(drain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = airflow_lineage.HookLineageCollector()
    monkeypatch.setattr(airflow_lineage, "get_hook_lineage_collector", lambda: collector)
    window = drain().execute(context_for("drain"))
    collected = collector.collected_assets
    assert [each.asset.uri for each in collected.inputs] == ["sfstream://salesforce_default/event/Order__e"]
    [written] = [each.asset.uri for each in collected.outputs]
    assert window["manifest_url"].startswith(f"{written}/windows/")


def test_a_failing_lineage_collector_does_not_fail_the_drain(drain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(airflow_lineage.HookLineageCollector):
        def add_output_asset(self, *_: Any, **__: Any) -> None:
            raise RuntimeError("no catalogue")

    monkeypatch.setattr(airflow_lineage, "get_hook_lineage_collector", Broken)
    assert drain().execute(context_for("drain"))["committed"]


def test_the_previous_window_link_opens_the_run_that_landed_it(drain: Any) -> None:
    links = {}
    for number in (1, 2):
        operator = drain(max_events=10)
        operator.execute(context_for("drain", run_id=f"manual__{number}+00:00", hour=number))
        links[number] = {link.name: link.get_link(operator, ti_key=None) for link in operator.operator_extra_links}
    assert links[1]["Previous window"] == ""
    assert links[2]["Previous window"] == "http://localhost:8080/dags/orders/runs/manual__1%2B00%3A00/tasks/drain"
    assert links[2]["Manifest"] == "", "a browser cannot open a file of the worker"
