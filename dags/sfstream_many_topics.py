"""Every 15 minutes: drain each topic of a list, then let Spark add what came to a table of each topic.

The list is ``sfstream_many_topics.yaml`` beside this file. Each topic is drained and loaded on its own: one that fails
does not hold up the others, and the grid shows which one it is. Each landed window is told to the asset of its stream,
``landed_stream_asset("salesforce_default", topic, "many_topics")``, which other DAGs can be scheduled on.

Needs the connections ``salesforce_default`` and ``spark_default``, and SFSTREAM_LAKE in the environment: the URL
below which windows and tables are written, for example s3://lake.

SFSTREAM_REPLAY_STORE=table in the environment keeps positions in the database of the connection
``sfstream_replay_store``; else they are Airflow Variables.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
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
    default_args={"retries": 3, "retry_delay": timedelta(seconds=30)},
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
            subscription="many_topics",  # its own place on each topic, beside the DAGs that drain it otherwise
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
