"""DAGs on PushTopics and generic channels, without Spark. Tests compare the landing with the org's record."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_provider_sfstream.assets.salesforce_stream import salesforce_topic_asset
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator

SETTINGS: dict[str, Any] = {"start_date": datetime(2026, 1, 1, tzinfo=UTC), "max_active_runs": 1, "catchup": False}
HOURLY = CronDataIntervalTimetable(f"{os.environ['SFSTREAM_TEST_MINUTE']} * * * *", timezone="UTC")


def drain(topic: str, subscription: str, **arguments: Any) -> DrainReplayWindowOperator:
    return DrainReplayWindowOperator(
        task_id="drain",
        topic=topic,
        subscription=subscription,
        landing_url=os.environ["SFSTREAM_LAKE"],
        idle_timeout=1,
        retries=2,
        retry_delay=timedelta(seconds=1),
        **arguments,
    )


with DAG("push_topic.waiting", schedule=None, **SETTINGS) as waiting:
    drain("/topic/Waited", "waiting", deferrable=True, min_events=3)

with DAG("push_topic.watched", schedule=[salesforce_topic_asset("/u/Watched", min_interval=2)], **SETTINGS) as watched:
    drain("/u/Watched", "watched")

with DAG("push_topic.hourly", schedule=HOURLY, **SETTINGS) as hourly:
    drain(
        "/topic/Past",
        "hourly",
        salesforce_conn_id="salesforce_backfill",
        mode="interval",
    )
