"""Accept that events of a stream are lost, so that its drains go on. Trigger it from the UI, for any stream.

For the night on which a drain fails with ReplayIdLostError: Salesforce can no longer read the position. This DAG asks
Salesforce whether that is so, and records who accepted the loss and why. Then clear the drain that failed: it goes on
with the oldest event that Salesforce still has, and its window has the gap. Nothing is recorded where the position can
still be read.

Needs the connection ``salesforce_default``, and SFSTREAM_LAKE and SFSTREAM_REPLAY_STORE in the environment as the
stream's own DAG has them.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.configuration import AIRFLOW_HOME
from airflow.sdk import DAG, Param

from airflow_provider_sfstream.operators.accept_replay_loss import AcceptReplayLossOperator

LAKE = os.environ.get("SFSTREAM_LAKE", f"{AIRFLOW_HOME}/sfstream")
REPLAY_STORE = os.environ.get("SFSTREAM_REPLAY_STORE", "variable")

with DAG(
    "sfstream_accept_loss",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    max_active_runs=1,
    params={
        "topic": Param("/event/Order__e", type="string", description="As the error says it"),
        "reason": Param(type="string", minLength=1, description="Why the loss is accepted, for the record"),
        "subscription": Param("airflow", type="string", description="As the error says it"),
        "landing_url": Param(f"{LAKE}/landing", type="string", description="As the error says it"),
        "salesforce_conn_id": Param("salesforce_default", type="string", description="As the error says it"),
        "go_on_from": Param(
            "earliest", enum=["earliest", "latest"], description="With the oldest event still there, or with new ones"
        ),
    },
    tags=["salesforce"],
    doc_md=__doc__,
):
    AcceptReplayLossOperator(
        task_id="accept_loss",
        topic="{{ params.topic }}",
        reason="{{ params.reason }}",
        subscription="{{ params.subscription }}",
        landing_url="{{ params.landing_url }}",
        salesforce_conn_id="{{ params.salesforce_conn_id }}",
        go_on_from="{{ params.go_on_from }}",
        replay_store=REPLAY_STORE,
    )
