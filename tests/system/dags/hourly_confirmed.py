"""An hourly run that waits on the triggerer until Salesforce confirms the end of the stream."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator

STREAM = {
    "topic": "/event/Hourly__e",
    "subscription": "confirmed",
    "landing_url": os.environ["SFSTREAM_LAKE"],
    "idle_timeout": 0.5,
}

with DAG(
    "hourly.confirmed",
    schedule=CronDataIntervalTimetable(f"{os.environ['SFSTREAM_TEST_MINUTE']} * * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
):
    position = DrainReplayWindowOperator(task_id="position", **STREAM)
    drain = DrainReplayWindowOperator(
        task_id="drain", mode="interval", wait_for_confirmation=True, deferrable=True, **STREAM
    )
    position >> drain
