"""Accept the loss of events of a stream, so that its drains continue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import AssetAlias, Context

from airflow_provider_sfstream.actions.arguments import is_template
from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.actions.landed_stream import LandedStreamOperator, open_landed_stream
from airflow_provider_sfstream.actions.task_runs import run_identity
from airflow_provider_sfstream.arguments import check_choice
from airflow_provider_sfstream.assets.salesforce_stream import landed_stream_asset
from airflow_provider_sfstream.hooks.event_topics import event_hook
from airflow_provider_sfstream.monitoring.pages import task_url

if TYPE_CHECKING:
    from pydantic import JsonValue

    from airflow_provider_sfstream.replay_windows.lost_positions import RestartFrom

_CHOICES = ("earliest", "latest")


class AcceptReplayLossOperator(LandedStreamOperator):
    """Accept the loss at a position that Salesforce can no longer read; the stream's next drain continues after it.

    The task first tries to read the position from Salesforce. If that succeeds, no event is lost, nothing is recorded,
    and the task fails. Otherwise a gap with the reason and the run is recorded in the replay store. The next drain of
    the stream, by its own DAG, advances the position; its window has the gap, and tables receive its events as usual.
    The acceptance is valid only for this position.

    An asset event on the landed stream reports the gap. Safe to retry; a second acceptance of a loss changes nothing.

    :param reason: reason, for the record. (templated)
    :param start_from: ``"earliest"``: the oldest retained event; ``"latest"``: only new events.
        (templated)
    :raises ConfigurationError: at construction, if ``start_from`` or ``replay_store`` is none of these.
    """

    template_fields: Sequence[str] = (*LandedStreamOperator.template_fields, "reason", "start_from")

    def __init__(
        self, *, topic: str, landing_url: str, reason: str, start_from: RestartFrom = "earliest", **kwargs: Any
    ) -> None:
        super().__init__(topic=topic, landing_url=landing_url, **kwargs)
        self.reason = reason
        self.start_from = start_from
        if not is_template(start_from):
            check_choice("start_from", start_from, _CHOICES)
        self._alias = AssetAlias(f"sfstream_landed.{self.dag_id}.{self.task_id}")
        self.outlets = [*self.outlets, self._alias]

    def execute(self, context: Context) -> dict[str, Any]:
        """Ask Salesforce, and record the gap; return it, with replay IDs as hex text and times in ISO 8601."""
        from airflow_provider_sfstream.landing.documents import to_document
        from airflow_provider_sfstream.replay_windows.lost_positions import accept_loss

        run = run_identity(context)
        with airflow_errors(self):
            check_choice("start_from", self.start_from, _CHOICES)
            landed = open_landed_stream(self)
            with event_hook(landed.stream.api, self.salesforce_conn_id).get_conn() as client:
                gap = accept_loss(
                    landed,
                    client,
                    start_from=self.start_from,
                    reason=self.reason,
                    accepted_by=str(run),
                    now=datetime.now(UTC),
                )
        accepted: dict[str, JsonValue] = to_document(gap)
        del accepted["resumed_at"]  # not known before the next drain
        loss = "possible loss, nothing is known to be lost," if gap.uncertain else "loss"
        self.log.warning(
            "%s: the %s of events after %s (%s) is accepted.", landed.stream, loss, accepted["after"], accepted
        )
        asset = landed_stream_asset(self.salesforce_conn_id, self.topic, self.subscription, self.api)
        extra: dict[str, JsonValue] = {
            "asset_uri": asset.uri,
            "window_id": None,
            "event_count": 0,
            "gap": accepted,
            "task_url": task_url(run),
        }
        context["outlet_events"][self._alias].add(asset, extra)
        return accepted
