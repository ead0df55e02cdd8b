"""Every 15 minutes: update a replica table of the Salesforce object Account from its change events.

The first run creates the table and fetches the existing records. Later runs apply the changes, and fetch the records
whose events did not contain all values.

Requires Change Data Capture for Account, the connections ``salesforce_default`` and ``spark_default``, and
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
    params={
        "on_invalid_replay": Param(
            "fail", enum=["fail", "earliest", "latest"], description="If Salesforce can no longer read the position"
        ),
    },
    tags=["salesforce"],
    doc_md=__doc__,
):
    # An empty window may complete a transaction, so the next task decides whether there is work to do.
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
