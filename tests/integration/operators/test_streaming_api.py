"""Drain, sensor and trigger on the Streaming API, against a local org: the same guarantees for every kind of topic."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.exceptions import InvalidTopicError
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.replay_position import ResetReplayPositionOperator
from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.sensors.salesforce_event import SalesforceEventSensor
from airflow_provider_sfstream.streams.watch.poll import poll
from airflow_provider_sfstream.triggers.salesforce_event import SalesforceEventTrigger
from tests.support.localorg import LocalOrg
from tests.support.tasks import context_for, set_connection

PLATFORM, CHANGE, PUSH, GENERIC = "/event/Order__e", "/data/AccountChangeEvent", "/topic/Accounts", "/u/notes/Orders"
TOPICS = (PLATFORM, CHANGE, PUSH, GENERIC)


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as local_org:
        local_org.define("Order__e", Number__c="double")
        local_org.push_topic("Accounts", "SELECT Id, Name FROM Account", NotifyForFields="All")
        local_org.generic_channel(GENERIC)
        yield local_org


def publish(org: LocalOrg, topic: str, count: int) -> None:
    """Publish ``count`` events as a user of the org does: change events and PushTopic events by writing records."""
    if topic == PLATFORM:
        org.publish(topic, [{"Number__c": float(n)} for n in range(count)])
    elif topic == GENERIC:
        org.publish(topic, [{"payload": f"note {n}"} for n in range(count)])
    else:
        for first in range(0, count, 200):
            names = [f"Account {n}" for n in range(first, min(count, first + 200))]
            records = [{"attributes": {"type": "Account"}, "Name": name} for name in names]
            org.rest("POST", "/composite/sobjects", {"allOrNone": True, "records": records})


def stream(org: LocalOrg, topic: str, subscription: str = "airflow") -> Stream:
    return Stream(org.org_id, "streaming", topic, subscription)


@pytest.fixture
def store(org: LocalOrg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableReplayStore]:
    database = tmp_path / "replay.db"
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
    set_connection(monkeypatch, "sfstream_replay_store", conn_type="sqlite", host=str(database))
    table = TableReplayStore(f"sqlite:///{database}")
    yield table
    table.close()


@pytest.fixture
def drain(store: TableReplayStore, tmp_path: Path) -> Callable[..., DrainReplayWindowOperator]:
    def make(topic: str, **arguments: Any) -> DrainReplayWindowOperator:
        landing = {"landing_url": str(tmp_path / "landing"), "replay_store": "table", "idle_timeout": 2.0}
        return DrainReplayWindowOperator(
            task_id="drain", topic=topic, **{"api": "streaming", "max_seconds": 60, **landing, **arguments}
        )

    return make


def landed(result: dict[str, Any]) -> tuple[Manifest, list[dict[str, Any]]]:
    path = Path(result["manifest_url"].removeprefix("file://"))
    manifest = Manifest.from_json(path.read_text(), str(path))
    rows = [row for file in manifest.files for row in pq.read_table(path.parent / file.name).to_pylist()]
    return manifest, rows


@pytest.mark.parametrize("topic", TOPICS)
def test_windows_contain_the_events_of_the_org_byte_for_byte(
    topic: str, org: LocalOrg, drain: Any, store: TableReplayStore
) -> None:
    publish(org, topic, 450)
    first = drain(topic, max_events=300).execute(context_for("drain"))
    rest = drain(topic).execute(context_for("drain", run_id="run-2", hour=2))
    record = org.record(topic, api="streaming")
    assert (first["event_count"], first["stop_reason"]) == (300, "max_events")
    assert (rest["event_count"], rest["stop_reason"]) == (len(record) - 300, "idle")
    assert rest["after"] == first["through"]
    rows = [row for result in (first, rest) for row in landed(result)[1]]
    columns = ("replay_id", "event_id", "schema_id", "payload")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        tuple(event[name] for name in columns) for event in record
    ]
    manifest = landed(rest)[0]
    assert (manifest.payload_encoding, manifest.stream) == ("json", stream(org, topic))
    assert set(manifest.schemas) == {event["schema_id"] for event in record if event["schema_id"] != topic}
    assert manifest.window.last_event_time is not None
    assert store.read(stream(org, topic)).replay_id == record[-1]["replay_id"]
    empty = drain(topic).execute(context_for("drain", run_id="run-3", hour=3))
    assert (empty["event_count"], empty["through"]) == (0, rest["through"])


def test_limits_until_and_start_of_a_streaming_api_drain_are_exact(org: LocalOrg, drain: Any) -> None:
    publish(org, GENERIC, 50)
    record = org.record(GENERIC)
    by_bytes = drain(GENERIC, subscription="bytes", max_bytes=1_000).execute(context_for("drain"))
    assert (by_bytes["stop_reason"], 0 < by_bytes["payload_bytes"] <= 1_000) == ("max_bytes", True)
    early = drain(GENERIC, subscription="early", until="2000-01-01T00:00:00+00:00").execute(context_for("drain"))
    assert (early["event_count"], early["stop_reason"]) == (0, "until")
    start = record[9]["replay_id"].hex()
    later = drain(GENERIC, subscription="later", start_from=start, max_events=5).execute(context_for("drain"))
    assert (later["after"], later["through"]) == (start, record[14]["replay_id"].hex())


def test_a_filtered_topic_is_a_separate_stream(org: LocalOrg, drain: Any) -> None:
    publish(org, PUSH, 20)
    org.publish(PUSH, [{"sobject": {"Id": "001", "Name": "Seven"}}, {"sobject": {"Id": "002", "Name": "Eight"}}])
    result = drain(PUSH + "?Name='Seven'").execute(context_for("drain"))
    manifest, rows = landed(result)
    assert [json.loads(row["payload"])["sobject"]["Name"] for row in rows] == ["Seven"]
    assert [row["schema_id"] for row in rows] == [PUSH]
    assert manifest.stream.topic == PUSH + "?Name='Seven'"


def test_an_expired_replay_id_stops_the_task_or_is_a_gap(org: LocalOrg, drain: Any, store: TableReplayStore) -> None:
    name = "/u/notes/Expired"
    org.generic_channel(name)
    publish_notes = [{"payload": str(n)} for n in range(10)]
    ids = org.publish(name, publish_notes)
    drain(name, max_events=3).execute(context_for("drain"))
    org.fault("expire_before", topic=name, replay_id=ids[6].hex())
    with pytest.raises(AirflowFailException, match="on_invalid_replay"):
        drain(name).execute(context_for("drain", run_id="run-2", hour=2))
    assert store.read(stream(org, name)).replay_id == ids[2]
    operator = drain(name, on_invalid_replay="earliest")
    result = operator.execute(context_for("drain", run_id="run-2", hour=2))
    assert result["event_count"] == 4
    (gap,) = store.gaps(stream(org, name))
    assert (gap.after, gap.resumed_at) == (ids[2], ids[6])


def test_a_replay_id_of_the_other_api_is_refused_without_effect(org: LocalOrg, drain: Any, store: Any) -> None:
    with pytest.raises(AirflowFailException, match="eight bytes"):
        drain(GENERIC, start_from="00" * 10).execute(context_for("drain"))
    reset = ResetReplayPositionOperator(
        task_id="reset", topic=GENERIC, replay_id="00" * 10, reason="test", replay_store="table"
    )
    with pytest.raises(AirflowFailException, match="eight bytes"):
        reset.execute(context_for("reset"))
    assert store.resets(stream(org, GENERIC)) == []
    with pytest.raises(InvalidTopicError, match="Streaming API only"):
        drain(GENERIC, api="pubsub")


@pytest.mark.parametrize("topic", [PUSH, GENERIC])
def test_sensor_and_trigger_of_the_streaming_api_wait_for_min_events(
    topic: str, org: LocalOrg, store: TableReplayStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(org, topic, 5)
    record = org.record(topic)
    after = record[-4]["replay_id"].hex()
    sensor = SalesforceEventSensor(task_id="wait", topic=topic, after=after, min_events=3)
    seen = sensor.poke(context_for("wait"))
    assert seen
    assert seen.xcom_value["event_count"] == 3
    monkeypatch.setitem(poll.__kwdefaults__, "idle_timeout", 1.0)
    patient = SalesforceEventSensor(task_id="wait", topic=topic, after=after, min_events=4)
    assert not patient.poke(context_for("wait"))

    async def fired(**arguments: Any) -> dict[str, Any]:
        async with asyncio.timeout(60):
            trigger = SalesforceEventTrigger(topic=topic, **arguments)
            (event,) = [event.payload async for event in trigger.run()]
            return dict(event)

    event = asyncio.run(fired(after=after, min_events=3, max_wait=timedelta(hours=1)))
    assert event == {
        "reason": "events",
        "stream": {"org_id": org.org_id, "api": "streaming", "topic": topic, "subscription": "airflow"},
        "first_replay_id": record[-3]["replay_id"].hex(),
        "through": record[-1]["replay_id"].hex(),
        "event_count": 3,
    }
