"""Every 15 minutes: drain each topic of a list, then add the events of each topic to its own table with Spark.

The list is ``sfstream_many_topics.yaml`` beside this file. Each topic is drained and loaded separately: a failed topic
does not delay the others, and the grid view shows which one failed. Each landed window emits an event of the asset
``landed_stream_asset("salesforce_default", topic, "many_topics")``, on which other DAGs can be scheduled.

Requires the connections ``salesforce_default`` and ``spark_default``, and SFSTREAM_LAKE in the environment: the URL
below which windows and tables are written, for example s3://lake.

With SFSTREAM_REPLAY_STORE=table in the environment, positions are stored in the database of the connection
``sfstream_replay_store``; by default they are stored in Airflow Variables.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import yaml
from airflow.configuration import AIRFLOW_HOME
from airflow.sdk import DAG, Param, task_group

from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.spark_submit_event_log import SparkSubmitEventLogOperator

LAKE = os.environ.get("SFSTREAM_LAKE", f"{AIRFLOW_HOME}/sfstream")
REPLAY_STORE = os.environ.get("SFSTREAM_REPLAY_STORE", "variable")
TOPICS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())

with DAG(
    "sfstream_many_topics",
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

    @task_group
    def stream(topic: str) -> None:
        """Drain one topic, then load it."""
        drain = DrainReplayWindowOperator(
            task_id="drain",
            topic=topic,
            subscription="many_topics",  # own position, because other DAGs drain these topics too
            landing_url=f"{LAKE}/landing",
            on_invalid_replay="{{ params.on_invalid_replay }}",
            replay_store=REPLAY_STORE,
            skip_if_empty=True,
            map_index_template="{{ task.topic }}",
        )
        SparkSubmitEventLogOperator(
            task_id="event_log",
            windows=drain.output,
            output_url=f"{LAKE}/many_topics",
            max_active_tis_per_dag=1,  # one Spark job at a time on this worker
            map_index_template="{{ task.windows.stream.topic }}",
        )

    stream.expand(topic=TOPICS)
