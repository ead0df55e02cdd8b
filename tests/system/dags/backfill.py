"""Hourly DAGs that tests backfill. The tests compare the landed events and the table with the org's record."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.spark_submit_event_log import SparkSubmitEventLogOperator

LAKE = f"{os.environ['SFSTREAM_LAKE']}/backfill"


def hourly(name: str) -> DAG:
    return DAG(
        f"backfill.{name}",
        schedule=CronDataIntervalTimetable(f"{os.environ['SFSTREAM_TEST_MINUTE']} * * * *", timezone="UTC"),
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,  # limits live runs; a backfill has its own limit
    )


def drain(topic: str, subscription: str, **arguments: Any) -> DrainReplayWindowOperator:
    return DrainReplayWindowOperator(
        **{
            "task_id": "drain",
            "topic": f"/event/{topic}",
            "subscription": subscription,
            "salesforce_conn_id": "salesforce_backfill",
            "landing_url": f"{LAKE}/landing",
            "mode": "interval",
            "idle_timeout": 20,
            **arguments,
        }
    )


for name, topic, arguments in (
    ("fresh", "Fresh__e", {"start_from": "latest"}),
    ("landed", "Landed__e", {}),
    ("fail", "Expired__e", {"on_invalid_replay": "earliest"}),
    ("partial", "Expired__e", {"on_invalid_replay": "earliest", "on_expired": "partial"}),
    ("beside", "Beside__e", {"mode": "incremental", "max_seconds": 1200, "idle_timeout": 20}),
    ("again", "Again__e", {}),
):
    with hourly(name) as dag:
        drain(topic, name, **arguments)
    globals()[dag.dag_id] = dag

with hourly("table") as table:
    drained = drain("Table__e", "table", start_from="latest")
    SparkSubmitEventLogOperator(task_id="event_log", windows=drained.output, output_url=f"{LAKE}/tables")
