"""What a drain tells: its landed stream, and the topic that woke it when it leaves events behind."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import DAG, Asset, AssetAlias, AssetOrTimeSchedule, CronTriggerTimetable

from airflow_provider_sfstream.assets.salesforce_stream import landed_stream_asset, salesforce_topic_asset
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.tasks.landed import Landed
from airflow_provider_sfstream.tasks.outlets import DrainOutlets
from tests.support.tasks import context_for

TOPIC = "/event/Order__e"
WATCHED = salesforce_topic_asset(TOPIC)
RARELY = salesforce_topic_asset(TOPIC, min_events=100)
LANDED = landed_stream_asset("salesforce_default", TOPIC, "airflow")
RESULT = dict.fromkeys(
    (
        "window_id",
        "manifest_url",
        "event_count",
        "payload_bytes",
        "first_event_time",
        "last_event_time",
        "gap",
        "stream",
    )
) | {"through": "01", "stop_reason": "max_events"}


def outlets(schedule: Any, **arguments: Any) -> DrainOutlets:
    with DAG("orders", schedule=schedule):
        drain = DrainReplayWindowOperator(
            **{"task_id": "drain", "topic": TOPIC, "landing_url": "/lake", "outlets": [Asset("own")], **arguments}
        )
    assert drain.outlets == [Asset("own"), *drain._assets.declared()]
    return drain._assets


def told(each: DrainOutlets, **result: Any) -> list[tuple[str, Any]]:
    """Return the URIs of the watched assets that were told, and why."""
    context = context_for("drain")
    each.tell({**RESULT, **result}, context)
    events = context["outlet_events"][each.unfinished].asset_alias_events
    return [(event.dest_asset_key.uri, event.extra["reason"]) for event in events]


@pytest.mark.parametrize(
    ("schedule", "watched"),
    [
        ([WATCHED], (WATCHED,)),
        (WATCHED | Asset("x"), (WATCHED,)),
        ((WATCHED & Asset("x")) | RARELY, (WATCHED, RARELY)),
        (AssetOrTimeSchedule(timetable=CronTriggerTimetable("0 * * * *", timezone="UTC"), assets=[RARELY]), (RARELY,)),
        ([salesforce_topic_asset("/event/Other__e")], ()),
        ([salesforce_topic_asset(TOPIC, salesforce_conn_id="other")], ()),
        ([LANDED, Asset("s3://lake/orders"), Asset("sfstream")], ()),
        (None, ()),
        ("@hourly", ()),
    ],
)
def test_it_knows_the_watches_of_its_own_topic_that_its_dag_is_scheduled_on(
    schedule: Any, watched: tuple[Asset, ...]
) -> None:
    found = outlets(schedule)
    assert found.watched == watched
    assert found.declared() == ([LANDED, AssetAlias("sfstream_unfinished.orders.drain")] if watched else [LANDED])


@pytest.mark.parametrize(
    ("stop_reason", "again"),
    [("max_events", True), ("max_bytes", True), ("max_seconds", True), ("caught_up", False), ("until", False)],
)
def test_the_watch_is_told_of_a_drain_that_left_events_behind(stop_reason: str, again: bool) -> None:
    assert told(outlets([WATCHED]), stop_reason=stop_reason) == ([(WATCHED.uri, "unfinished")] if again else [])


def test_nothing_is_told_to_a_topic_that_no_watch_wakes_the_dag_for() -> None:
    assert told(outlets("@hourly")) == []


def test_names_that_only_the_run_knows_have_no_assets() -> None:
    found = outlets([WATCHED], subscription="{{ params.name }}")
    assert found.declared() == []
    assert told(found) == []


def test_the_landed_stream_is_told_of_an_interval_as_a_spark_task_takes_it() -> None:
    interval = {"mode": "interval", "event_time_from": "2026-11-20T10:00:00+00:00", "landing_url": "/lake"} | {
        "event_time_to": "2026-11-20T11:00:00+00:00",
        "windows": [{"manifest_url": "file:///lake/manifest.json", "event_count": 3}],
        "event_count": 3,
        "confirmed_at": None,
        "missing": [],
    }
    each, context = outlets([WATCHED]), context_for("drain")
    each.tell(interval, context)
    extra = context["outlet_events"][LANDED].extra
    assert extra == {key: value for key, value in interval.items() if key != "landing_url"}
    assert Landed.of(extra, None, None).manifests == ("file:///lake/manifest.json",)
    assert context["outlet_events"][each.unfinished].asset_alias_events == []
