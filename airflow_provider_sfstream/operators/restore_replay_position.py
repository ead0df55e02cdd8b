"""Restore a stream's record in the replay store from its landing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Context

from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.actions.landed_stream import LandedStreamOperator, open_landed_stream
from airflow_provider_sfstream.actions.stream_maintenance import restore_position
from airflow_provider_sfstream.actions.task_runs import run_identity


class RestoreReplayPositionOperator(LandedStreamOperator):
    """Record the landed windows that a replay store lost, and move the position to the end of the last one.

    For a store that was lost, came back from an old backup, or is to be another one from now on. Reads manifests and
    nothing else; if the connection sets ``organization_id``, no login is needed. Safe to retry. Pause the
    DAGs that drain the stream meanwhile.

    With ``advance="manual"`` a landed window may be one that was never committed: name the last committed one.

    :param last_window_id: the window to end with; by default the last one of the landing. (templated)
    :param replay_store: the store to fill, as in the drain.
    :raises ConfigurationError: at construction, if ``replay_store`` is none of these.
    """

    template_fields: Sequence[str] = (*LandedStreamOperator.template_fields, "last_window_id")

    def __init__(self, *, topic: str, landing_url: str, last_window_id: str | None = None, **kwargs: Any) -> None:
        super().__init__(topic=topic, landing_url=landing_url, **kwargs)
        self.last_window_id = last_window_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Restore; return the position before and after (hex), its window, and the number of recorded windows."""
        with airflow_errors(self):
            landed, run = open_landed_stream(self), run_identity(context)
            return restore_position(landed, self.last_window_id, restored_by=str(run))
