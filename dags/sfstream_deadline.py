"""Every 15 minutes: drain a topic. Alert if no drain has succeeded for six hours.

Airflow's scheduler checks the deadline of each run, and its triggerer sends the alert: also while a task is queued or
hangs, and while no worker runs. Each late run is reported once, and not if a later drain has succeeded. A paused DAG, a
stopped scheduler or triggerer, and a run that Airflow does not create are not noticed.

Deadline alerts are experimental in Airflow, from 3.2 on. Requires a triggerer, the connections ``salesforce_default``
and ``webhook`` (type ``http``), and SFSTREAM_LAKE in the environment: the URL below which windows are written, for
example s3://lake.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.configuration import AIRFLOW_HOME
from airflow.sdk import DAG

from airflow_provider_sfstream.notifications.salesforce_stream import SalesforceStreamNotifier
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator

STREAM = "sfstream://salesforce_default/event/Order__e?subscription=deadline"
LAKE = os.environ.get("SFSTREAM_LAKE", f"{AIRFLOW_HOME}/sfstream")

try:
    from airflow.sdk import AsyncCallback, DeadlineAlert, DeadlineReference
except ImportError:  # Airflow 3.1: this DAG drains, and never alerts
    deadline = None
else:
    deadline = DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(hours=6),  # a run that fails within this time is not reported if a later one succeeds
        callback=AsyncCallback(SalesforceStreamNotifier, kwargs={"http_conn_id": "webhook", "streams": [STREAM]}),
    )

with DAG(
    "sfstream_deadline",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,  # a position in an Airflow Variable has one writer
    deadline=deadline,
    tags=["salesforce"],
    doc_md=__doc__,
):
    DrainReplayWindowOperator(
        task_id="drain",
        topic="/event/Order__e",
        subscription="deadline",  # own position, because other DAGs drain the topic too
        landing_url=f"{LAKE}/deadline/landing",
        skip_if_empty=True,
    )
