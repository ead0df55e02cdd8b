"""Asset events of a drain: its landed stream, and the watched topic if events remain unread."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, AssetAlias, AssetOrTimeSchedule, CronTriggerTimetable, task_group

from airflow_provider_sfstream.actions.drain.outlets import DrainOutlets
from airflow_provider_sfstream.actions.windows_argument import WindowsArgument
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
        "event_hours",
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


def emitted(each: DrainOutlets, alias: AssetAlias, **result: Any) -> list[tuple[str, Any]]:
    """Return the URI of each asset event of an alias, with its reason or gap."""
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
def test_drain_emits_events_for_the_watches_of_its_topic_in_the_schedule(
    schedule: Any, watches: tuple[Asset, ...]
) -> None:
    found = outlets(schedule)
    assert found.declared() == ([LANDED, UNFINISHED] if watches else [LANDED])
    assert emitted(found, UNFINISHED) == [(watch.uri, "unfinished") for watch in watches]


@pytest.mark.parametrize(
    ("stop_reason", "again"),
    [("max_events", True), ("max_bytes", True), ("max_seconds", True), ("caught_up", False), ("until", False)],
)
def test_watch_gets_an_event_when_the_drain_left_events_unread(stop_reason: str, again: bool) -> None:
    expected = [(WATCHED.uri, "unfinished")] if again else []
    assert emitted(outlets([WATCHED]), UNFINISHED, stop_reason=stop_reason) == expected


@pytest.mark.parametrize(
    "other",
    [salesforce_topic_asset("/event/Other__e"), salesforce_topic_asset(TOPIC, salesforce_conn_id="other")],
)
def test_watch_of_another_topic_gets_no_event(other: Asset) -> None:
    assert emitted(outlets([other]), UNFINISHED) == []


@pytest.mark.parametrize("name", ["topic", "subscription", "salesforce_conn_id"])
def test_templated_stream_emits_its_events_through_an_alias(name: str) -> None:
    found = outlets([WATCHED], **{name: "{{ params.name }}"})
    assert found.declared() == [BY_ALIAS, UNFINISHED]
    assert emitted(found, BY_ALIAS, gap="a gap") == [(LANDED.uri, "a gap")]
    assert emitted(found, UNFINISHED) == [(WATCHED.uri, "unfinished")]


def test_mapped_task_emits_its_events_through_an_alias() -> None:
    with DAG("orders", schedule=None):
        mapped = DrainReplayWindowOperator.partial(task_id="drain", landing_url="/lake").expand(topic=[TOPIC])
    drain: Any = mapped.unmap({"topic": TOPIC})
    assert drain.outlets == [BY_ALIAS]
    assert emitted(drain._assets, BY_ALIAS, gap="a gap") == [(LANDED.uri, "a gap")]


def test_mapped_task_group_emits_its_events_through_an_alias() -> None:
    with DAG("orders", schedule=None) as dag:

        @task_group
        def stream(topic: str) -> None:
            DrainReplayWindowOperator(task_id="drain", topic=topic, landing_url="/lake")

        stream.expand(topic=[TOPIC])
    assert dag.get_task("stream.drain").outlets == [AssetAlias("sfstream_landed.orders.stream.drain")]


def test_asset_event_of_an_interval_is_accepted_by_a_spark_task() -> None:
    interval = {"mode": "interval", "event_time_from": "2026-11-20T10:00:00+00:00", "landing_url": "/lake"} | {
        "asset_uri": LANDED.uri,
        "event_time_to": "2026-11-20T11:00:00+00:00",
        "windows": [{"manifest_url": "file:///lake/manifest.json", "event_count": 3}],
        "event_count": 3,
        "event_hours": ["2026-11-20T10:00:00"],
        "confirmed_at": None,
        "missing": [],
        "schema_changes": [],
    }
    each, context = outlets([WATCHED]), context_for("drain")
    each.emit(NAMES, interval, context)
    extra = context["outlet_events"][LANDED].extra
    page = "http://localhost:8080/dags/orders/runs/run-1/tasks/drain"
    facts = {key: value for key, value in interval.items() if key != "landing_url"}
    assert extra == {**facts, "task_url": page}
    assert WindowsArgument.from_argument(extra, None, None).manifests == ("file:///lake/manifest.json",)
    assert context["outlet_events"][each.unfinished].asset_alias_events == []
