"""Check all requirements of drains and Spark jobs, before the first run or after a change. Trigger it manually.

The task log has a line for each check: login, topics with their schemas, clock, allocations, landing, replay store,
Spark. The DAG reads no event and changes no position.

It uses SFSTREAM_LAKE and SFSTREAM_REPLAY_STORE from the environment, like the other examples.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.configuration import AIRFLOW_HOME
from airflow.sdk import DAG, Param

from airflow_provider_sfstream.operators.salesforce_preflight import SalesforcePreflightOperator

LAKE = os.environ.get("SFSTREAM_LAKE", f"{AIRFLOW_HOME}/sfstream")
REPLAY_STORE = os.environ.get("SFSTREAM_REPLAY_STORE", "variable")

with DAG(
    "sfstream_preflight",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    render_template_as_native_obj=True,
    params={
        "topics": Param(["/event/Order__e"], type="array", items={"type": "string"}, minItems=1),
        "salesforce_conn_id": Param("salesforce_default", type="string"),
        "landing_url": Param(f"{LAKE}/landing", type="string"),
    },
    tags=["salesforce"],
    doc_md=__doc__,
):
    SalesforcePreflightOperator(
        task_id="preflight",
        topics="{{ params.topics }}",
        salesforce_conn_id="{{ params.salesforce_conn_id }}",
        landing_url="{{ params.landing_url }}",
        replay_store=REPLAY_STORE,
    )
