"""What a drain tells: its landed stream, and the topic that woke it when it leaves events behind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, AssetAlias, AssetOrTimeSchedule, CronTriggerTimetable, task_group

from airflow_provider_sfstream.actions.drain.outlets import DrainOutlets
from airflow_provider_sfstream.actions.landed import Landed
from airflow_provider_sfstream.assets.salesforce_stream import landed_stream_asset, salesforce_topic_asset
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from tests.support.tasks import context_for

TOPIC = "/event/Order__e"
WATCHED = salesforce_topic_asset(TOPIC)
RARELY = salesforce_topic_asset(TOPIC, min_events=100)
LANDED = landed_stream_asset("salesforce_default", TOPIC, "airflow")
NAMES: Any = SimpleNamespace(salesforce_conn_id="salesforce_default", topic=TOPIC, subscription="airflow", api=None)
BY_ALIAS, UNFINISHED = AssetAlias("sfstream_landed.orders.drain"), AssetAlias("sfstream_unfinished.orders.drain")
RESULT = dict.fromkeys(
    (
        "window_id",
        "manifest_url",
        "asset_uri",
        "event_count",
        "payload_bytes",
        "first_event_time",
        "last_event_time",
        "gap",
        "stream",
        "schema_changes",
    )
) | {"through": "01", "stop_reason": "max_events"}


def outlets(schedule: Any, **arguments: Any) -> DrainOutlets:
    with DAG("orders", schedule=schedule):
        drain = DrainReplayWindowOperator(
            **{"task_id": "drain", "topic": TOPIC, "landing_url": "/lake", "outlets": [Asset("own")], **arguments}
        )
    assert drain.outlets == [Asset("own"), *drain._assets.declared()]
    return drain._assets


def told(each: DrainOutlets, alias: AssetAlias, **result: Any) -> list[tuple[str, Any]]:
    """Return the URIs of the assets that were told by an alias, and what else."""
    context = context_for("drain")
    each.emit(NAMES, {**RESULT, **result}, context)
    events = context["outlet_events"][alias].asset_alias_events
    return [(event.dest_asset_key.uri, event.extra.get("reason", event.extra.get("gap"))) for event in events]


@pytest.mark.parametrize(
    ("schedule", "watches"),
    [
        ([WATCHED], (WATCHED,)),
        (WATCHED | Asset("x"), (WATCHED,)),
        ((WATCHED & Asset("x")) | RARELY, (WATCHED, RARELY)),
        (AssetOrTimeSchedule(timetable=CronTriggerTimetable("0 * * * *", timezone="UTC"), assets=[RARELY]), (RARELY,)),
        ([LANDED, Asset("s3://lake/orders"), Asset("sfstream")], ()),
        (None, ()),
        ("@hourly", ()),
    ],
)
def test_it_tells_the_watches_of_its_own_topic_that_its_dag_is_scheduled_on(
    schedule: Any, watches: tuple[Asset, ...]
) -> None:
    found = outlets(schedule)
    assert found.declared() == ([LANDED, UNFINISHED] if watches else [LANDED])
    assert told(found, UNFINISHED) == [(watch.uri, "unfinished") for watch in watches]


@pytest.mark.parametrize(
    ("stop_reason", "again"),
    [("max_events", True), ("max_bytes", True), ("max_seconds", True), ("caught_up", False), ("until", False)],
)
def test_the_watch_is_told_of_a_drain_that_left_events_behind(stop_reason: str, again: bool) -> None:
    expected = [(WATCHED.uri, "unfinished")] if again else []
    assert told(outlets([WATCHED]), UNFINISHED, stop_reason=stop_reason) == expected


@pytest.mark.parametrize(
    "other",
    [salesforce_topic_asset("/event/Other__e"), salesforce_topic_asset(TOPIC, salesforce_conn_id="other")],
)
def test_a_watch_of_another_topic_is_not_told(other: Asset) -> None:
    assert told(outlets([other]), UNFINISHED) == []


@pytest.mark.parametrize("name", ["topic", "subscription", "salesforce_conn_id"])
def test_a_stream_that_only_the_run_knows_is_told_by_an_alias(name: str) -> None:
    found = outlets([WATCHED], **{name: "{{ params.name }}"})
    assert found.declared() == [BY_ALIAS, UNFINISHED]
    assert told(found, BY_ALIAS, gap="a gap") == [(LANDED.uri, "a gap")]
    assert told(found, UNFINISHED) == [(WATCHED.uri, "unfinished")]


def test_so_is_the_stream_of_a_mapped_task_whose_outlets_the_file_cannot_list() -> None:
    with DAG("orders", schedule=None):
        mapped = DrainReplayWindowOperator.partial(task_id="drain", landing_url="/lake").expand(topic=[TOPIC])
    drain: Any = mapped.unmap({"topic": TOPIC})
    assert drain.outlets == [BY_ALIAS]
    assert told(drain._assets, BY_ALIAS, gap="a gap") == [(LANDED.uri, "a gap")]


def test_so_is_the_stream_of_a_mapped_task_group() -> None:
    with DAG("orders", schedule=None) as dag:

        @task_group
        def stream(topic: str) -> None:
            DrainReplayWindowOperator(task_id="drain", topic=topic, landing_url="/lake")

        stream.expand(topic=[TOPIC])
    assert dag.get_task("stream.drain").outlets == [AssetAlias("sfstream_landed.orders.stream.drain")]


def test_the_landed_stream_is_told_of_an_interval_as_a_spark_task_takes_it() -> None:
    interval = {"mode": "interval", "event_time_from": "2026-11-20T10:00:00+00:00", "landing_url": "/lake"} | {
        "asset_uri": LANDED.uri,
        "event_time_to": "2026-11-20T11:00:00+00:00",
        "windows": [{"manifest_url": "file:///lake/manifest.json", "event_count": 3}],
        "event_count": 3,
        "confirmed_at": None,
        "missing": [],
        "schema_changes": [],
    }
    each, context = outlets([WATCHED]), context_for("drain")
    each.emit(NAMES, interval, context)
    extra = context["outlet_events"][LANDED].extra
    page = "http://localhost:8080/dags/orders/runs/run-1/tasks/drain"
    told_of_it = {key: value for key, value in interval.items() if key != "landing_url"}
    assert extra == {**told_of_it, "task_url": page}
    assert Landed.of(extra, None, None).manifests == ("file:///lake/manifest.json",)
    assert context["outlet_events"][each.unfinished].asset_alias_events == []
