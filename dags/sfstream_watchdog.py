"""Fail, and so trigger an alert, before a stream loses events, or if a stream has another problem.

It reads the status documents that tasks of other DAGs write, and checks the hours until unread events expire, the last
contact with Salesforce, losses, quarantined rows, dirty rows and allocations. It calls neither Salesforce nor a
storage. Configure the same alert as for your other DAGs.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from airflow_provider_sfstream.operators.check_streams import CheckSalesforceStreamsOperator

with DAG(
    "sfstream_watchdog",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["salesforce"],
    doc_md=__doc__,
):
    CheckSalesforceStreamsOperator(task_id="check", min_headroom=timedelta(hours=24))
