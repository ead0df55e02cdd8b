"""DAG whose task uses the Variable store as an operator does; run as a script, it runs twice."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from airflow.sdk import DAG, get_current_context, task

from airflow_provider_sfstream.salesforce.streams import ReplayWindow, RunIdentity, Stream, window_id_for

STREAM = Stream("00D000000000001EAA", "pubsub", "/event/Order__e", "airflow")

with DAG("variable_store", schedule=None) as dag:

    @task
    def drain() -> None:
        """Advance the position by one empty window."""
        from airflow_provider_sfstream.replay_stores.document.store import DocumentReplayStore

        store = DocumentReplayStore()
        instance = get_current_context()["ti"]
        run = RunIdentity(instance.dag_id, instance.task_id, instance.run_id, datetime(2026, 11, 20, tzinfo=UTC))
        position = store.read(STREAM)
        window = ReplayWindow(
            window_id=window_id_for(run, "live", position.replay_id, position.fence),
            kind="live",
            after=position.replay_id,
            through=bytes([0, position.fence + 1]),
            event_count=0,
            first_event_time=None,
            last_event_time=None,
            manifest_url="file:///landing/manifest.json",
            run=run,
            previous_window_id=position.window_id,
        )
        assert store.advance(STREAM, position, window) == store.read(STREAM)

    drain()

if __name__ == "__main__":
    states = [dag.test().state for _ in range(2)]
    sys.exit(states != ["success", "success"])
