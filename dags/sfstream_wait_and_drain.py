"""Again and again: wait for events without a worker, drain them, then let Spark add them to a table.

Each run waits on the triggerer until an event is there. What comes while one run loads is drained by the next, so a
busy hour makes few large loads and a quiet night none. min_events and max_wait of the drain make them fewer still.

Needs a triggerer, the connections ``salesforce_default`` and ``spark_default``, and SFSTREAM_LAKE in the environment:
the URL below which windows and tables are written, for example s3://lake.

SFSTREAM_REPLAY_STORE=table in the environment keeps positions in the database of the connection
``sfstream_replay_store``; else they are Airflow Variables.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.configuration import AIRFLOW_HOME
from airflow.sdk import DAG, Param

from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.spark_submit_event_log import SparkSubmitEventLogOperator

LAKE = os.environ.get("SFSTREAM_LAKE", f"{AIRFLOW_HOME}/sfstream")
REPLAY_STORE = os.environ.get("SFSTREAM_REPLAY_STORE", "variable")

with DAG(
    "sfstream_wait_and_drain",
    schedule="@continuous",  # a run begins when the one before has ended
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    max_consecutive_failed_dag_runs=3,  # then Airflow pauses it: nobody needs a loop of failing logins
    default_args={"retries": 3, "retry_delay": timedelta(seconds=30)},
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
        topic="/event/Order__e",
        subscription="wait_and_drain",  # its own place on the topic, beside the DAGs that drain it otherwise
        landing_url=f"{LAKE}/landing",
        on_invalid_replay="{{ params.on_invalid_replay }}",
        replay_store=REPLAY_STORE,
        deferrable=True,
        max_seconds=900,  # a topic that never falls silent is loaded every quarter of an hour
        skip_if_empty=True,
    )
    SparkSubmitEventLogOperator(task_id="event_log", windows=drain.output, output_url=f"{LAKE}/wait_and_drain")
