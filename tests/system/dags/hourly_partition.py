"""Hourly partitions: a DAG whose runs have a partition date and no data interval."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG, CronPartitionTimetable

from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator

with DAG(
    "hourly.partition",
    schedule=CronPartitionTimetable(f"{os.environ['SFSTREAM_TEST_MINUTE']} * * * *", timezone="UTC", run_offset=-1),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
):
    DrainReplayWindowOperator(
        task_id="drain",
        topic="/event/Hourly__e",
        subscription="partition",
        landing_url=os.environ["SFSTREAM_LAKE"],
        mode="interval",
        idle_timeout=1,
    )
