"""Tasks with common failures. A test reads their logs in a browser."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG

from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.spark_submit_event_log import SparkSubmitEventLogOperator

LAKE = Path(os.environ["SFSTREAM_LAKE"]).as_uri()
SETTINGS = {"schedule": None, "start_date": datetime(2026, 1, 1, tzinfo=UTC), "max_active_runs": 1}
DRAIN = {"topic": "/event/Faulty__e", "subscription": "faults", "landing_url": f"{LAKE}/landing", "retries": 0}

for name, arguments in (
    ("good", {}),
    ("wrong_secret", {"salesforce_conn_id": "salesforce_wrong_secret"}),
    ("wrong_host", {"salesforce_conn_id": "salesforce_wrong_host"}),
    ("ask", {"topic": "/event/Asked__e", "on_invalid_replay": "ask"}),
    ("storage_gone", {"landing_url": "s3://storage_gone@lake/landing"}),
):
    with DAG(f"faults.{name}", **SETTINGS) as dag:
        drain = DrainReplayWindowOperator(task_id="drain", **{**DRAIN, **arguments})
        if name == "good":
            SparkSubmitEventLogOperator(
                task_id="event_log",
                windows=drain.output,
                output_url=f"{LAKE}/faults",
                conn_id="spark_gone",
                retries=0,
            )
    globals()[dag.dag_id] = dag
