"""Hourly partitions: a DAG whose runs have a partition date and no data interval, one that emits the hours of its
events, and the partitioned DAGs that follow both.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, Asset, CronPartitionTimetable, PartitionedAssetTimetable, StartOfHourMapper, task

from airflow_provider_sfstream.assets.salesforce_stream import landed_stream_asset
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator

SETTINGS = {"start_date": datetime(2026, 1, 1, tzinfo=UTC), "catchup": False}
STREAM = {"topic": "/event/Hourly__e", "landing_url": os.environ["SFSTREAM_LAKE"], "idle_timeout": 1}
EVENT_HOURS = Asset("hourly.event_hours")

with DAG(
    "hourly.partition",
    schedule=CronPartitionTimetable(f"{os.environ['SFSTREAM_TEST_MINUTE']} * * * *", timezone="UTC", run_offset=-1),
    **SETTINGS,
):
    DrainReplayWindowOperator(task_id="drain", subscription="partition", mode="interval", **STREAM)

with DAG("hourly.events", schedule=None, **SETTINGS):
    drain = DrainReplayWindowOperator(task_id="drain", subscription="events", **STREAM)

    @task(outlets=[EVENT_HOURS])
    def emit_hours(window: dict, *, outlet_events: dict) -> None:
        outlet_events[EVENT_HOURS].add_partitions(window["event_hours"])

    emit_hours(drain.output)

for name, asset in (
    ("of_partition", landed_stream_asset("salesforce_default", STREAM["topic"], "partition")),
    ("of_events", EVENT_HOURS),
):
    timetable = PartitionedAssetTimetable(assets=asset, default_partition_mapper=StartOfHourMapper())
    with DAG(f"hourly.{name}", schedule=timetable, **SETTINGS) as follower:

        @task
        def partition(dag_run: Any = None) -> list[str]:
            """Return the partition of the run."""
            return [dag_run.partition_key, dag_run.partition_date.isoformat()]

        partition()
    globals()[follower.dag_id] = follower
