"""Every 15 minutes: drain the uncommitted events of a managed event subscription, then add them to a table with Spark.

Salesforce stores the replay ID. The drain commits it after a window is durably stored, so no replay store is needed:
neither an Airflow Variable nor a database. The landing itself records the landed windows.

The first task creates the subscription if it does not exist. A subscription supports one consumer at a time.

Requires the connections ``salesforce_default`` and ``spark_default``, and SFSTREAM_LAKE in the environment: the URL
below which windows and tables are written, for example s3://lake.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.configuration import AIRFLOW_HOME
from airflow.sdk import DAG

from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.managed_event_subscription import ManagedEventSubscriptionOperator
from airflow_provider_sfstream.operators.spark_submit_event_log import SparkSubmitEventLogOperator

LAKE = os.environ.get("SFSTREAM_LAKE", f"{AIRFLOW_HOME}/sfstream")

with DAG(
    "sfstream_managed",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,  # a managed subscription has one consumer, and a table one job
    tags=["salesforce"],
    doc_md=__doc__,
):
    create = ManagedEventSubscriptionOperator(
        task_id="create", managed_subscription="Airflow_Orders", topic="/event/Order__e"
    )
    drain = DrainReplayWindowOperator(
        task_id="drain",
        topic="/event/Order__e",
        managed_subscription="Airflow_Orders",
        landing_url=f"{LAKE}/landing",
        skip_if_empty=True,
    )
    event_log = SparkSubmitEventLogOperator(task_id="event_log", windows=drain.output, output_url=f"{LAKE}/managed")
    create >> drain >> event_log
