"""Fail, and so alert, before a stream loses events, and where something else needs attention.

Looks at what the tasks of other DAGs have left: headroom until Salesforce forgets what was not read, contact, losses,
quarantine, dirty rows, allocations. It asks neither Salesforce nor a storage. Give it the alert that your DAGs have.
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
