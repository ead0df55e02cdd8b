"""DAGs that start when streams of the many topics were landed: one of them, or any."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, AssetAlias, task

from airflow_provider_sfstream.assets.salesforce_stream import landed_stream_asset

for name, asset in (
    ("one", landed_stream_asset("salesforce_default", "/event/Many_Two__e", "many_topics")),
    ("any", AssetAlias("sfstream_landed.sfstream_many_topics.stream.drain")),
):
    with DAG(f"on_landed.{name}", schedule=[asset], start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False) as dag:

        @task
        def told(triggering_asset_events: Any = None) -> list[int]:
            """Return how many events each landed window has. What was told by an alias is there under it too."""
            told = [events for key, events in triggering_asset_events.items() if not isinstance(key, AssetAlias)]
            return sorted(event.extra["event_count"] for events in told for event in events)

        told()
    globals()[dag.dag_id] = dag
