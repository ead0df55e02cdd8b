"""Every 15 minutes: bring a table that equals the Salesforce object Account up to date with its change events.

The first run makes the table and fetches the records that were there before; later ones apply what changed, and fetch
again what an event could not tell.

Needs Change Data Capture for Account, the connections ``salesforce_default`` and ``spark_default``, and SFSTREAM_LAKE
in the environment: the URL below which windows and tables are written, for example s3://lake.

SFSTREAM_REPLAY_STORE=table in the environment keeps positions in the database of the connection
``sfstream_replay_store``; else they are Airflow Variables.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.configuration import AIRFLOW_HOME
from airflow.sdk import DAG, Param

from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.spark_submit_refresh_replica import SparkSubmitRefreshReplicaOperator
from airflow_provider_sfstream.operators.spark_submit_replica import SparkSubmitReplicaOperator

LAKE = os.environ.get("SFSTREAM_LAKE", f"{AIRFLOW_HOME}/sfstream")
REPLAY_STORE = os.environ.get("SFSTREAM_REPLAY_STORE", "variable")

with DAG(
    "sfstream_account_replica",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,  # a position in an Airflow Variable has one writer, and a replica one job
    default_args={"retries": 3, "retry_delay": timedelta(seconds=30)},
    params={
        "on_invalid_replay": Param(
            "fail", enum=["fail", "earliest", "latest"], description="If Salesforce can no longer read the position"
        ),
    },
    tags=["salesforce"],
    doc_md=__doc__,
):
    # An empty window may complete a transaction, so it is the next task that skips where there is nothing to do.
    drain = DrainReplayWindowOperator(
        task_id="drain",
        topic="/data/AccountChangeEvent",
        landing_url=f"{LAKE}/landing",
        on_invalid_replay="{{ params.on_invalid_replay }}",
        replay_store=REPLAY_STORE,
    )
    replica = SparkSubmitReplicaOperator(task_id="replica", windows=drain.output, output_url=f"{LAKE}/replica")
    refresh = SparkSubmitRefreshReplicaOperator(
        task_id="refresh", output_url=f"{LAKE}/replica", trigger_rule="none_failed"
    )
    replica >> refresh
