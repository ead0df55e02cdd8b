"""Accept the loss of events of a stream, so that its drains can continue. Trigger it manually, for any stream.

Use this DAG if a drain fails with ReplayIdLostError, because Salesforce can no longer read the position. The DAG checks
that with Salesforce, and records who accepted the loss and why. It records nothing if the position can still be read.
Then clear the failed drain: it continues with the oldest event that Salesforce still has, and its window records the
gap.

Requires the connection ``salesforce_default``, and SFSTREAM_LAKE and SFSTREAM_REPLAY_STORE in the environment with the
same values as for the stream's own DAG.
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
        "topic": Param("/event/Order__e", type="string", description="Topic from the error message"),
        "reason": Param(type="string", minLength=1, description="Reason for accepting the loss; it is recorded"),
        "subscription": Param("airflow", type="string", description="Subscription from the error message"),
        "landing_url": Param(f"{LAKE}/landing", type="string", description="Landing URL from the error message"),
        "salesforce_conn_id": Param("salesforce_default", type="string", description="Connection ID of the stream"),
        "start_from": Param(
            "earliest",
            enum=["earliest", "latest"],
            description="Continue with the oldest available event, or with new events only",
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
        start_from="{{ params.start_from }}",
        replay_store=REPLAY_STORE,
    )
