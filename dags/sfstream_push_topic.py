"""Every 15 minutes: drain the new events of a PushTopic over the Streaming API, then add them to a table with Spark.

Salesforce retains the events of PushTopics and generic channels for 24 hours, not 72. If the DAG does not run for a
day, events are lost, so set an alert well before that. After a day without events the position ages out and the drain
fails, because on this API nothing proves that no event was stored and left undelivered. ``accept_quiet_aging=True``
continues from the earliest event and records an uncertain gap (docs/streaming-api.md).

Requires the PushTopic ``OrderUpdates`` in the org, the connections ``salesforce_default`` and ``spark_default``, and
SFSTREAM_LAKE in the environment: the URL below which windows and tables are written, for example s3://lake.

With SFSTREAM_REPLAY_STORE=table in the environment, positions are stored in the database of the connection
``sfstream_replay_store``; by default they are stored in Airflow Variables.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.configuration import AIRFLOW_HOME
from airflow.sdk import DAG, Param

from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.spark_submit_event_log import SparkSubmitEventLogOperator

LAKE = os.environ.get("SFSTREAM_LAKE", f"{AIRFLOW_HOME}/sfstream")
REPLAY_STORE = os.environ.get("SFSTREAM_REPLAY_STORE", "variable")

with DAG(
    "sfstream_push_topic",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,  # a position in an Airflow Variable has one writer, and a table one job
    params={
        "on_invalid_replay": Param(
            "fail", enum=["fail", "earliest", "latest"], description="If Salesforce can no longer read the position"
        ),
    },
    tags=["salesforce"],
    doc_md=__doc__,
):
    drain = DrainReplayWindowOperator(
        task_id="drain",
        topic="/topic/OrderUpdates",  # PushTopics and generic channels (/u/...) use the Streaming API
        landing_url=f"{LAKE}/landing",
        on_invalid_replay="{{ params.on_invalid_replay }}",
        replay_store=REPLAY_STORE,
        skip_if_empty=True,
    )
    SparkSubmitEventLogOperator(task_id="event_log", windows=drain.output, output_url=f"{LAKE}/push_topics")
