"""Drains whose windows the streams page shows: one plain task and one mapped task."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow.sdk import DAG, AssetAlias

from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator

LANDING = f"{Path(os.environ['SFSTREAM_LAKE']).as_uri()}/landing"
SETTINGS = {"schedule": None, "start_date": datetime(2026, 1, 1, tzinfo=UTC), "max_active_runs": 1}
DRAIN = {"landing_url": LANDING, "idle_timeout": 3.0, "retries": 1, "retry_delay": timedelta(seconds=1)}

with DAG("page.one", **SETTINGS):
    DrainReplayWindowOperator(task_id="drain", topic="/event/Shown__e", subscription="one", **DRAIN)

with DAG("page.mapped", **SETTINGS):
    DrainReplayWindowOperator.partial(
        task_id="drain", topic="/event/Shown__e", outlets=[AssetAlias("sfstream_landed.page.mapped.drain")], **DRAIN
    ).expand(subscription=["left", "right"])

with DAG("page.refused", **SETTINGS):
    DrainReplayWindowOperator(
        task_id="drain", topic="/event/Shown__e", salesforce_conn_id="salesforce_page_refused", **DRAIN
    )
