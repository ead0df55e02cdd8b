"""DAGs that a topic starts or that wait for a topic, without Spark. Tests compare the landing with the org's record."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
from airflow.sdk import DAG, Asset, AssetWatcher

from airflow_provider_sfstream.assets.salesforce_stream import salesforce_topic_asset
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator

SETTINGS = {"start_date": datetime(2026, 1, 1, tzinfo=UTC), "max_active_runs": 1, "catchup": False}


def drain(topic: str, subscription: str, **arguments: object) -> DrainReplayWindowOperator:
    """Return a drain with a short idle timeout, so that it soon detects that it has caught up."""
    return DrainReplayWindowOperator(
        task_id="drain",
        topic=topic,
        landing_url=os.environ["SFSTREAM_LAKE"],
        subscription=subscription,
        idle_timeout=1,
        max_seconds=4,  # with a steady flow of events a drain never catches up
        retries=2,
        retry_delay=timedelta(seconds=1),
        **arguments,
    )


for name, topic, limits in (
    ("first", "/event/Flow__e", {}),
    ("second", "/event/Flow__e", {}),
    ("alone", "/event/Alone__e", {}),
    ("limited", "/event/Alone__e", {"max_events": 2000}),
):
    with DAG(f"on_event.{name}", schedule=[salesforce_topic_asset(topic, min_interval=2)], **SETTINGS) as dag:
        drain(topic, name, **limits)
    globals()[dag.dag_id] = dag

STORED = Asset(
    "sfstream://salesforce_default/event/Stored__e",
    watchers=[
        AssetWatcher(
            name="stored",
            trigger=MessageQueueTrigger(
                scheme="sfstream", topic="/event/Stored__e", subscription="stored", replay_store="variable"
            ),
        )
    ],
)
with DAG("on_event.stored", schedule=[STORED], **SETTINGS) as stored:
    drain("/event/Stored__e", "stored")

with DAG("waiting.drain", schedule=None, **SETTINGS) as waiting:
    drain("/event/Waited__e", "waiting", deferrable=True)

with DAG("waiting.revoked", schedule=None, **SETTINGS) as revoked:
    drain("/event/Waited__e", "revoked", deferrable=True, salesforce_conn_id="salesforce_revoked")
