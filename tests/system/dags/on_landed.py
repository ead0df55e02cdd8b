"""DAGs scheduled on landed streams of the many-topics example: on one stream, or on any of them."""

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
        def event_counts(triggering_asset_events: Any = None) -> list[int]:
            """Return the number of events of each landed window.

            Airflow lists an event of an alias under the asset and under the alias; the alias is ignored here.
            """
            of_assets = [events for key, events in triggering_asset_events.items() if not isinstance(key, AssetAlias)]
            return sorted(event.extra["event_count"] for events in of_assets for event in events)

        event_counts()
    globals()[dag.dag_id] = dag
