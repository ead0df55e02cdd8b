"""Events without their schema: quarantine of the event log and its replay, and quarantine of the replica."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.operators.spark_submit_event_log import SparkSubmitEventLogOperator
from airflow_provider_sfstream.replay_windows.landing import NewWindow, land_window
from airflow_provider_sfstream.salesforce.streams import RunIdentity, Stream, window_id_for
from airflow_provider_sfstream.salesforce.topics import LONG_RETENTION
from airflow_provider_sfstream.streams.drain.limits import DrainLimits
from airflow_provider_sfstream.streams.source import StartFrom
from airflow_provider_sfstream.tables.event_log.job import run
from airflow_provider_sfstream.tables.event_log.reader import read_event_log
from airflow_provider_sfstream.tables.quarantine import QUARANTINE_TABLE
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig
from airflow_provider_sfstream.tables.replica.job import run as run_replica
from airflow_provider_sfstream.tables.runner.on_spark import SparkEngine
from tests.support.clients import pubsub_client
from tests.support.event_log import Lake
from tests.support.json_windows import JsonEvent
from tests.support.localorg import LocalOrg
from tests.support.tasks import context_for, set_connection

EVERYTHING = "/data/ChangeEvents"


@pytest.fixture
def org(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path / "org") as org:
        org.define("Order__e", Number__c="double")
        org.knobs(keepalive_seconds=0.1)
        set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
        yield org


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path)


def land(org: LocalOrg, lake: Lake, topic: str) -> str:
    """Drain a topic from the earliest event; return the URL of the window's manifest."""
    identity = RunIdentity("dag", "task", "run", datetime(2026, 1, 10, tzinfo=UTC))
    new = NewWindow(
        stream=Stream(org.org_id, "pubsub", topic),
        run=identity,
        window_id=window_id_for(identity, "live", None),
        kind="live",
        after=StartFrom.EARLIEST,
        limits=DrainLimits(),
        on_invalid_replay="fail",
        retention=LONG_RETENTION,
    )
    with pubsub_client(org) as client:
        catalog = LandingCatalog(Landing.from_url(str(lake.landing)))
        return land_window(new, source=client, catalog=catalog, now=lambda: datetime.now(UTC)).window.manifest_url


class SessionEventLogOperator(SparkSubmitEventLogOperator):
    """Event log operator that runs the job in the tests' Spark session."""

    spark: Any = None

    def run_job(self, context: Any, config: Any) -> dict[str, Any]:
        return vars(run(SparkEngine(self.spark), replace(config, output_url=self.output_url)))


def submit(lake: Lake, manifest: str, **arguments: Any) -> dict[str, Any]:
    operator = SessionEventLogOperator(
        task_id="event_log", windows=manifest, output_url=lake.output.as_uri(), **arguments
    )
    operator.spark = lake.spark
    result = operator.execute(context_for("event_log"))
    assert result is not None
    return result


def test_events_without_a_schema_are_quarantined_and_replayed(org: LocalOrg, lake: Lake) -> None:
    org.publish("/event/Order__e", [{"Number__c": float(n)} for n in range(6)])
    record = org.record("/event/Order__e")
    schema_id = record[0]["schema_id"]
    org.fault("answer_schema", code="schema.meta.permission", status="PERMISSION_DENIED")
    manifest = land(org, lake, "/event/Order__e")

    metrics = submit(lake, manifest, replay_quarantine=True)
    assert (metrics["rows_in"], metrics["rows_written"], metrics["quarantined"]) == (6, 0, 6)
    quarantine = lake.rows("_quarantine")
    assert [row["payload"] for row in quarantine] == [event["payload"] for event in record]
    assert {row["schema_id"] for row in quarantine} == {schema_id}
    assert all(schema_id in row["reason"] and "hidden from this user" in row["reason"] for row in quarantine)

    org.clear_faults()
    metrics = submit(lake, manifest, replay_quarantine=True)
    assert (metrics["rows_written"], metrics["quarantined"], metrics["tables"]) == (6, 0, {"Order__e": 6})
    assert [row["Number__c"] for row in lake.rows()] == [float(n) for n in range(6)]
    assert not lake.files("_quarantine")


def test_json_events_without_a_schema_are_quarantined_and_replayed(lake: Lake) -> None:
    schema = {
        "type": "record",
        "name": "Order__e",
        "fields": [{"name": "CreatedDate", "type": "long", "doc": "CreatedDate:DateTime"}],
    }
    data = {"schema": "one", "payload": {"CreatedDate": "2026-01-10T00:00:00Z"}, "event": {"replayId": 1}}
    url = lake.land_json("20260110T000000Z-a", "/event/Order__e", [JsonEvent(1, data, "one")], {"one": schema})
    path = Path(url.removeprefix("file://"))
    document = json.loads(path.read_text())
    document["missing_schemas"] = {"one": {"file": document["schemas"].pop("one"), "reason": "down"}}
    path.write_text(json.dumps(document))
    file = next(lake.landing.rglob("one.avsc"))
    text = file.read_text()
    file.unlink()
    assert lake.run(url).quarantined == 1
    assert "'one' was not available when the window landed" in lake.rows("_quarantine")[0]["reason"]
    file.write_text(text)
    assert lake.run(url).tables == {"Order__e": 1}


def test_a_replica_quarantines_events_without_a_schema_id(org: LocalOrg, lake: Lake, tmp_path: Path) -> None:
    """A replica flags existing tables for undecodable events; here it has no table yet."""
    org.rest("POST", "/sobjects/Account", {"Name": "Acme"})
    org.fault("omit_schema_id", topic=EVERYTHING)
    manifest = land(org, lake, EVERYTHING)
    options = ReplicaConfig(manifests=(manifest,), output_url=(tmp_path / "replica").as_uri())
    metrics = run_replica(SparkEngine(lake.spark), options)
    assert (metrics.events, metrics.quarantined, metrics.tables) == (1, 1, {})
    rows = read_event_log(lake.spark, options.output_url, QUARANTINE_TABLE).collect()
    assert [(row["schema_id"], "name no schema" in row["reason"]) for row in rows] == [("", True)]
