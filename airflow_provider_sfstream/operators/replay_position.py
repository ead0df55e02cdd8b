"""Move the position of a stream explicitly: after a DAG's own processing, or to another replay ID."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from airflow.sdk import BaseOperator, Context

from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.actions.retries import RetriedOperator
from airflow_provider_sfstream.actions.storage import open_landing
from airflow_provider_sfstream.actions.stream_maintenance import reset_position
from airflow_provider_sfstream.actions.task_runs import run_identity
from airflow_provider_sfstream.arguments import check_choice
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.hooks.replay_store import open_replay_store
from airflow_provider_sfstream.replay_stores.kinds import (
    POSITION_STORES,
    REPLAY_STORES,
    PositionStoreKind,
    ReplayStoreKind,
)
from airflow_provider_sfstream.salesforce.replay_ids import replay_id_to_text
from airflow_provider_sfstream.salesforce.streams import Stream


class CommitReplayPositionOperator(RetriedOperator):
    """Record the window of a drain with ``advance="manual"`` and move the position over it.

    Safe to retry and to clear: a recorded window does not change. Fails without a change if another run moved the
    position since the drain, or the replay store was restored from a backup: clear the drain then. In a backfill run
    it does nothing and succeeds.

    :param window: the drain's result (its XCom, ``drain.output``). (templated)
    :param landing_conn_id: Airflow connection of the landing, as in the drain. (templated)
    :param replay_store: as in the drain.
    :param replay_store_conn_id: as in the drain. (templated)
    """

    template_fields: Sequence[str] = ("window", "landing_conn_id", "replay_store_conn_id")
    ui_color = "#d8ecf8"

    def __init__(
        self,
        *,
        window: Any,
        landing_conn_id: str | None = None,
        replay_store: ReplayStoreKind = "variable",
        replay_store_conn_id: str = "sfstream_replay_store",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.window = window
        self.landing_conn_id = landing_conn_id
        self.replay_store = replay_store
        self.replay_store_conn_id = replay_store_conn_id
        check_choice("replay_store", replay_store, REPLAY_STORES)

    def execute(self, context: Context) -> dict[str, Any]:
        """Commit the window; return its id and the stream's position. The result of a backfill moves nothing."""
        from airflow_provider_sfstream.replay_windows.incremental import commit_window

        with airflow_errors(self):
            window = self.window if isinstance(self.window, dict) else {}
            is_backfill = window.get("mode") == "interval"
            if not is_backfill and not {"manifest_url", "landing_url"} <= set(window):
                raise ConfigurationError(
                    "window is not the result of a DrainReplayWindowOperator. Pass its XCom, for example "
                    "window=drain.output. The position was not moved."
                )
            catalog = open_landing(window["landing_url"], self.landing_conn_id)
            store = open_replay_store(self.replay_store, self.replay_store_conn_id, catalog)
            if is_backfill:
                stream, window_id = Stream(**window["stream"]), None
                position = store.read(stream)
                text = (
                    "Nothing to record: the window is the result of a backfill, which does not move the position of %s."
                )
                self.log.info(text, stream)
            else:
                manifest = catalog.read_manifest_url(window["manifest_url"])
                window_id = manifest.window.window_id
                position = commit_window(manifest, store=store, catalog=catalog)
                text = "Window %s of %s is recorded; the position is %s."
                self.log.info(text, window_id, manifest.stream, replay_id_to_text(position.replay_id))
        return {"window_id": window_id, "replay_id": replay_id_to_text(position.replay_id)}


class ResetReplayPositionOperator(BaseOperator):
    """Set a stream's position to a replay ID, or remove it, with an entry in the audit record.

    A later position skips events permanently; an earlier one lands events a second time (the table jobs remove
    duplicates). Nothing is checked against Salesforce until the next drain. By default it is not retried: a retry could
    overwrite the position of a later drain.

    :param topic: the stream's topic. (templated)
    :param replay_id: the new position as hex text, or ``None`` to remove it; the next drain then begins at its
        ``start_from``. (templated)
    :param reason: reason, for the audit record. (templated)
    :param salesforce_conn_id: Airflow connection of the org. (templated)
    :param api: the stream's API, as in the drain.
    :param subscription: the stream's subscription. (templated)
    :param replay_store: as in the drain: ``"variable"`` or ``"table"``.
    :param replay_store_conn_id: as in the drain. (templated)
    """

    template_fields: Sequence[str] = (
        "topic",
        "replay_id",
        "reason",
        "salesforce_conn_id",
        "subscription",
        "replay_store_conn_id",
    )
    ui_color = "#f8e5d8"

    def __init__(
        self,
        *,
        topic: str,
        replay_id: str | None,
        reason: str,
        salesforce_conn_id: str = "salesforce_default",
        api: Literal["pubsub", "streaming"] | None = None,
        subscription: str = "airflow",
        replay_store: PositionStoreKind = "variable",
        replay_store_conn_id: str = "sfstream_replay_store",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.replay_id = replay_id
        self.reason = reason
        self.salesforce_conn_id = salesforce_conn_id
        self.api = api
        self.subscription = subscription
        self.replay_store = replay_store
        self.replay_store_conn_id = replay_store_conn_id
        check_choice("replay_store", replay_store, POSITION_STORES)

    def execute(self, context: Context) -> dict[str, Any]:
        """Reset the position; return the previous and the new one."""
        with airflow_errors(self):
            return reset_position(self, self.replay_id, reason=self.reason, reset_by=str(run_identity(context)))
