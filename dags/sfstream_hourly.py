"""Every hour: drain the events of the hour that has just ended, then add them to a table with Spark; for backfills.

Each run processes the events of its own hour. A repeated or backfilled run writes the same events to the same place.
Select Backfill in the UI for hours that were missed up to 72 hours ago, or, at any time, for hours that are landed.

Requires the connections ``salesforce_default`` and ``spark_default``, and SFSTREAM_LAKE in the environment: the URL
below which windows and tables are written, for example s3://lake.

With SFSTREAM_REPLAY_STORE=table in the environment, positions are stored in the database of the connection
``sfstream_replay_store``; by default they are stored in Airflow Variables.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.configuration import AIRFLOW_HOME
from airflow.sdk import DAG, Param
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.spark_submit_event_log import SparkSubmitEventLogOperator

LAKE = os.environ.get("SFSTREAM_LAKE", f"{AIRFLOW_HOME}/sfstream")
REPLAY_STORE = os.environ.get("SFSTREAM_REPLAY_STORE", "variable")

with DAG(
    "sfstream_hourly",
    schedule=CronDataIntervalTimetable("0 * * * *", timezone="UTC"),  # a bare "0 * * * *" has no interval
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,  # live runs advance the position one after the other; backfills do not, and have their own limit
    params={
        "on_invalid_replay": Param(
            "fail", enum=["fail", "earliest", "latest"], description="If Salesforce can no longer read the position"
        ),
        "on_expired": Param("fail", enum=["fail", "partial"], description="If part of an hour is permanently lost"),
        "reuse": Param(True, type="boolean", description="False: drain the hour again and ignore its recorded result"),
    },
    tags=["salesforce"],
    doc_md=__doc__,
):
    drain = DrainReplayWindowOperator(
        task_id="drain",
        topic="/event/Order__e",
        subscription="hourly",  # own position, because other DAGs drain the topic too
        landing_url=f"{LAKE}/landing",
        on_invalid_replay="{{ params.on_invalid_replay }}",
        replay_store=REPLAY_STORE,
        mode="interval",
        on_expired="{{ params.on_expired }}",
        reuse="{{ params.reuse }}",
        skip_if_empty=True,
    )
    SparkSubmitEventLogOperator(
        task_id="event_log",
        windows=drain.output,
        output_url=f"{LAKE}/hourly",
        max_active_tis_per_dag=1,  # of two concurrent jobs of one stream, one fails
    )
