"""DAG whose tasks send notifications of their results; run as a script, it calls ``dag.test()``.

Environment variables set its arguments: ``TOPIC``, ``LANDING``, ``ON_INVALID_REPLAY``.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.providers.http.notifications.http import HttpNotifier
from airflow.sdk import DAG

from airflow_provider_sfstream.notifications.salesforce_stream import SalesforceStreamNotifier
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator

POSTED = SalesforceStreamNotifier(http_conn_id="webhook", endpoint="hook/{{ ti.task_id }}")
THROUGH = SalesforceStreamNotifier(
    through=HttpNotifier(
        http_conn_id="webhook",
        endpoint="through",
        json={"said": "{{ sfstream.text }}", "do": '{{ sfstream.parts["Action"] }}'},
    ),
    only_on_loss=False,
)
DRAIN = {
    "topic": os.environ.get("TOPIC", "/event/Order__e"),
    "landing_url": os.environ.get("LANDING", "/lake"),
    "idle_timeout": 1.0,
    "replay_store": "landing",
    "on_invalid_replay": os.environ.get("ON_INVALID_REPLAY", "fail"),
    "on_failure_callback": [POSTED, THROUGH],
    "on_success_callback": POSTED,
}

with DAG("notifying", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
    first = DrainReplayWindowOperator(task_id="first", **{**DRAIN, "on_success_callback": [POSTED, THROUGH]})
    refused = DrainReplayWindowOperator(
        task_id="refused", **{**DRAIN, "salesforce_conn_id": "no_such_org", "subscription": "other"}
    )

if __name__ == "__main__":
    dag.test()
