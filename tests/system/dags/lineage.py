"""Pipelines for events and for records, from the topic to a table, whose tasks emit lineage."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG

from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.spark_submit_event_log import SparkSubmitEventLogOperator
from airflow_provider_sfstream.operators.spark_submit_refresh_replica import SparkSubmitRefreshReplicaOperator
from airflow_provider_sfstream.operators.spark_submit_replica import SparkSubmitReplicaOperator
from airflow_provider_sfstream.sensors.salesforce_event import SalesforceEventSensor

LAKE = Path(os.environ["SFSTREAM_LAKE"]) / "lineage"
START = datetime(2026, 1, 1, tzinfo=UTC)

with DAG("lineage.events", schedule=None, max_active_runs=1, start_date=START):
    wait = SalesforceEventSensor(task_id="wait", topic="/event/Told__e", deferrable=False, poke_interval=1)
    drain = DrainReplayWindowOperator(
        task_id="drain", topic="/event/Told__e", landing_url=str(LAKE / "landing"), max_seconds=30, idle_timeout=2
    )
    wait >> drain
    SparkSubmitEventLogOperator(task_id="event_log", windows=drain.output, output_url=str(LAKE / "tables"))

with DAG("lineage.failing", schedule=None, max_active_runs=1, start_date=START):
    DrainReplayWindowOperator(
        task_id="drain",
        topic="/event/Failing__e",
        landing_url=str(LAKE / "landing"),
        max_seconds=30,
        idle_timeout=2,
        fail_on=["schema_change"],
    )

with DAG("lineage.records", schedule=None, max_active_runs=1, start_date=START):
    drain = DrainReplayWindowOperator(
        task_id="drain",
        topic="/data/ContactChangeEvent",
        landing_url=str(LAKE / "landing"),
        max_seconds=30,
        idle_timeout=2,
    )
    replica = SparkSubmitReplicaOperator(task_id="replica", windows=drain.output, output_url=str(LAKE / "replica"))
    replica >> SparkSubmitRefreshReplicaOperator(task_id="refresh", output_url=str(LAKE / "replica"))
