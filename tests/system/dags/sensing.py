"""DAGs that wait with a sensor or in the worker. Tests compare the landing with the org's record."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG

from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.sensors.salesforce_event import SalesforceEventSensor

SETTINGS: dict[str, Any] = {
    "schedule": None,
    "start_date": datetime(2026, 1, 1, tzinfo=UTC),
    "max_active_runs": 1,
    "default_args": {"retries": 1, "retry_delay": timedelta(seconds=1)},
}
TOPIC = "/event/Sensed__e"


def drain(subscription: str, **arguments: Any) -> DrainReplayWindowOperator:
    return DrainReplayWindowOperator(
        task_id="drain",
        topic=TOPIC,
        subscription=subscription,
        landing_url=os.environ["SFSTREAM_LAKE"],
        idle_timeout=1,
        **arguments,
    )


def sensor(subscription: str, **arguments: Any) -> SalesforceEventSensor:
    return SalesforceEventSensor(
        **{"task_id": "wait", "topic": TOPIC, "subscription": subscription, "min_events": 3, **arguments}
    )


with DAG("sensing.deferred", **SETTINGS) as deferred:
    sensor("deferred", deferrable=True) >> drain("deferred")

with DAG("sensing.rescheduled", **SETTINGS) as rescheduled:
    sensor("rescheduled", deferrable=False, mode="reschedule", poke_interval=10) >> drain("rescheduled")

with DAG("sensing.worker", **SETTINGS) as worker:
    drain("worker", deferrable=False, min_events=3)

with DAG("sensing.timed_out", **SETTINGS) as timed_out:
    for task_id, soft_fail in (("skipped", True), ("failed", False)):
        sensor("timed_out", task_id=task_id, min_events=1_000, deferrable=True, timeout=20, soft_fail=soft_fail)
