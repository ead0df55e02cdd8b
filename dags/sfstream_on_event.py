"""On new events of a platform event topic: drain them and add them to a table, in one task.

No task runs while there are no new events: one watcher on the triggerer waits for all DAGs on the topic. Many events
start few runs. Events published during a run are drained by the next run.

Requires the extra ``tables``, a triggerer, the connection ``salesforce_default``, and SFSTREAM_LAKE in the environment:
the URL below which windows and tables are written, for example s3://lake.

With SFSTREAM_REPLAY_STORE=table in the environment, positions are stored in the database of the connection
``sfstream_replay_store``; by default they are stored in Airflow Variables.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.configuration import AIRFLOW_HOME
from airflow.sdk import DAG, Param

from airflow_provider_sfstream.assets.salesforce_stream import salesforce_topic_asset
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator

LAKE = os.environ.get("SFSTREAM_LAKE", f"{AIRFLOW_HOME}/sfstream")
REPLAY_STORE = os.environ.get("SFSTREAM_REPLAY_STORE", "variable")
TOPIC = "/event/Order__e"

with DAG(
    "sfstream_on_event",
    schedule=[salesforce_topic_asset(TOPIC)],
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,  # a position in an Airflow Variable has one writer, and a table one job
    params={
        "on_invalid_replay": Param(
            "fail", enum=["fail", "earliest", "latest"], description="If Salesforce can no longer read the position"
        ),
    },
    tags=["salesforce"],
    doc_md=__doc__,
):
    DrainReplayWindowOperator(
        task_id="drain",
        topic=TOPIC,
        subscription="on_event",  # own position, because scheduled DAGs drain the topic too
        landing_url=f"{LAKE}/on_event/landing",
        on_invalid_replay="{{ params.on_invalid_replay }}",
        replay_store=REPLAY_STORE,
        max_events=1_000_000,  # limit of event_log for a run; the next run drains the rest immediately
        max_seconds=600,  # limit for a topic that is never idle; the next run follows immediately
        skip_if_empty=True,  # a watcher may start two runs for the same events; the second finds none
        event_log={"output_url": f"{LAKE}/on_event/tables"},
    )
