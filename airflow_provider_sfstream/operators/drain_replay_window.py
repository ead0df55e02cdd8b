"""Drain what is new on a Salesforce topic into a landing, as one replay window."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import Asset, BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider_sfstream.assets.salesforce_stream import landed_stream_asset
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.hooks.replay_store import ReplayStoreKind, open_replay_store
from airflow_provider_sfstream.operators._parts import (
    airflow_errors,
    check_choice,
    check_replay_store_kind,
    open_landing,
    run_identity,
)
from airflow_provider_sfstream.protocol.streams import Stream
from airflow_provider_sfstream.protocol.topics import Topic

if TYPE_CHECKING:
    from datetime import datetime

    from airflow.sdk import Context

    from airflow_provider_sfstream.drain.limits import DrainLimits
    from airflow_provider_sfstream.drain.source import StartFrom
    from airflow_provider_sfstream.windows.incremental import WindowOutcome

ON_INVALID_REPLAY = ("fail", "earliest", "latest")


class DrainReplayWindowOperator(BaseOperator):
    """Land every event after the stream's recorded position as one replay window, then move the position.

    Guarantees: the position never covers an event that is not stored; a try killed at any line is made good by
    the next; a clear or re-run of the same DAG run returns the window it made before; an expired replay ID stops
    the task unless ``on_invalid_replay`` accepts the loss, which is then recorded as a gap.

    The XCom result is a small dict: ``window_id``, ``manifest_url``, ``landing_url``, ``stream``, ``kind``,
    ``after``, ``through``, ``event_count``, ``payload_bytes``, ``first_event_time``, ``last_event_time``,
    ``stop_reason``, ``gap``, ``drained`` (false when an earlier try's window was returned) and ``committed``.
    Replay IDs are hex text, times ISO 8601 in UTC.

    :param topic: ``/event/Order__e``, ``/data/AccountChangeEvent``, ``/data/ChangeEvents`` or a channel. (templated)
    :param landing_url: where windows are written, any URL that Airflow's object storage takes. (templated)
    :param salesforce_conn_id: Airflow connection of the org. (templated)
    :param subscription: name under which this consumer keeps its place on the topic. Two DAGs that both want every
        event use two names. (templated)
    :param landing_conn_id: Airflow connection for ``landing_url``, where it needs one. (templated)
    :param replay_store: ``"variable"`` keeps the position in an Airflow Variable (one writer at a time);
        ``"table"`` in a database table that concurrent runs cannot corrupt.
    :param replay_store_conn_id: Airflow connection of that database (``sqlite``, ``postgres``, ``mysql``). (templated)
    :param start_from: where a stream without a recorded position begins: ``"earliest"`` (all that Salesforce
        still has), ``"latest"`` (only what is published from now on) or a replay ID as hex text. (templated)
    :param max_events: stop after this many events.
    :param max_bytes: stop once this many payload bytes were received; at least one event is always taken.
    :param max_seconds: stop after this many seconds. ``None``: drain until caught up.
    :param idle_timeout: the stream counts as caught up after this many seconds without an event.
    :param until: stop before the first event whose event time is at or past this (ISO 8601 text or a datetime with
        time zone). (templated)
    :param grace: go on this long past ``until``, for events that arrive out of event-time order.
    :param on_invalid_replay: when Salesforce can no longer read the position: ``"fail"`` leaves everything
        as it is; ``"earliest"`` and ``"latest"`` continue there and record a gap. (templated)
    :param advance: ``"automatic"`` moves the position once the manifest is written; ``"manual"`` leaves that to
        :class:`~airflow_provider_sfstream.operators.replay_position.CommitReplayPositionOperator`.
    :param skip_if_empty: mark the task skipped when the window has no events, so that downstream tasks are too.
    """

    template_fields: Sequence[str] = (
        "topic",
        "landing_url",
        "salesforce_conn_id",
        "subscription",
        "landing_conn_id",
        "replay_store_conn_id",
        "start_from",
        "until",
        "on_invalid_replay",
    )
    ui_color = "#d8ecf8"

    def __init__(
        self,
        *,
        topic: str,
        landing_url: str,
        salesforce_conn_id: str = "salesforce_default",
        subscription: str = "airflow",
        landing_conn_id: str | None = None,
        replay_store: ReplayStoreKind = "variable",
        replay_store_conn_id: str = "sfstream_replay_store",
        start_from: str = "earliest",
        max_events: int | None = None,
        max_bytes: int | None = None,
        max_seconds: float | None = None,
        idle_timeout: float = 10.0,
        until: str | datetime | None = None,
        grace: timedelta = timedelta(0),
        on_invalid_replay: Literal["fail", "earliest", "latest"] = "fail",
        advance: Literal["automatic", "manual"] = "automatic",
        skip_if_empty: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.landing_url = landing_url
        self.salesforce_conn_id = salesforce_conn_id
        self.subscription = subscription
        self.landing_conn_id = landing_conn_id
        self.replay_store = replay_store
        self.replay_store_conn_id = replay_store_conn_id
        self.start_from = start_from
        self.max_events = max_events
        self.max_bytes = max_bytes
        self.max_seconds = max_seconds
        self.idle_timeout = idle_timeout
        self.until = until
        self.grace = grace
        self.on_invalid_replay = on_invalid_replay
        self.advance = advance
        self.skip_if_empty = skip_if_empty
        check_replay_store_kind(replay_store)
        check_choice("advance", advance, ("automatic", "manual"))
        if "{{" not in on_invalid_replay:
            check_choice("on_invalid_replay", on_invalid_replay, ON_INVALID_REPLAY)
        self._landed_asset = self._add_outlet()

    def _add_outlet(self) -> Asset | None:
        """Declare the landed stream as an outlet, unless its name is only known when the task runs."""
        if any("{{" in str(value) for value in (self.topic, self.salesforce_conn_id, self.subscription)):
            return None
        asset = landed_stream_asset(self.salesforce_conn_id, self.topic, self.subscription)
        if asset not in self.outlets:
            self.outlets = [*self.outlets, asset]
        return asset

    def execute(self, context: Context) -> dict[str, Any]:
        """Drain, land and record one window; return its summary."""
        from airflow_provider_sfstream.hooks.salesforce_pubsub import SalesforcePubSubHook
        from airflow_provider_sfstream.windows.incremental import WindowRequest, drain_window

        with airflow_errors():
            topic = Topic.parse(self.topic)
            check_choice("on_invalid_replay", self.on_invalid_replay, ON_INVALID_REPLAY)
            if topic.api != "pubsub":
                raise ConfigurationError(f"{topic.name} is on the Streaming API; this version drains the Pub/Sub API.")
            limits, start_from = self._limits(), self._start_from()
            catalog = open_landing(self.landing_url, self.landing_conn_id)
            catalog.landing.check_writable()
            store = open_replay_store(self.replay_store, self.replay_store_conn_id, catalog)
            if not store.compares_and_sets:
                self.log.warning(
                    "Positions are kept in an Airflow Variable, which cannot tell two writers apart: let one run at "
                    "a time drain this stream (max_active_runs=1), or use replay_store='table'."
                )
            hook = SalesforcePubSubHook(self.salesforce_conn_id)
            stream = Stream(hook.org_id, topic.api, topic.name, self.subscription)
            with hook.get_conn() as client:
                outcome = drain_window(
                    WindowRequest(
                        stream=stream,
                        run=run_identity(context),
                        limits=limits,
                        start_from=start_from,
                        on_invalid_replay=self.on_invalid_replay,
                        advance=self.advance == "automatic",
                    ),
                    source=client,
                    store=store,
                    catalog=catalog,
                )
        return self._report(outcome, catalog.landing.url, context)

    def _limits(self) -> DrainLimits:
        from datetime import datetime

        from airflow_provider_sfstream.drain.limits import DrainLimits

        until = self.until or None
        if isinstance(until, str):
            try:
                until = datetime.fromisoformat(until)
            except ValueError:
                raise ConfigurationError(f"until={until!r} is not an ISO 8601 time; nothing was read.") from None
        return DrainLimits(
            max_events=self.max_events,
            max_bytes=self.max_bytes,
            max_seconds=self.max_seconds,
            idle_timeout=self.idle_timeout,
            until=until,
            grace=self.grace,
        )

    def _start_from(self) -> StartFrom | bytes:
        from airflow_provider_sfstream.drain.source import StartFrom
        from airflow_provider_sfstream.protocol.replay_ids import replay_id_from_text

        if self.start_from in ("earliest", "latest"):
            return StartFrom(self.start_from)
        return replay_id_from_text(self.start_from)

    def _report(self, outcome: WindowOutcome, landing_url: str, context: Context) -> dict[str, Any]:
        result = summary(outcome, landing_url)
        self.log.info(
            "Window %s of %s: %d events, %d payload bytes, stopped because %s, position %s -> %s (%s). Manifest: %s",
            result["window_id"],
            outcome.manifest.stream,
            result["event_count"],
            result["payload_bytes"],
            result["stop_reason"],
            result["after"],
            result["through"],
            "recorded" if outcome.committed else "not recorded yet",
            result["manifest_url"],
        )
        if result["gap"]:
            self.log.warning("Events were lost before this window: %s", result["gap"])
        if self._landed_asset is not None:
            keys = ("window_id", "manifest_url", "event_count", "payload_bytes", "first_event_time", "last_event_time")
            context["outlet_events"][self._landed_asset].extra.update({key: result[key] for key in keys})
        if self.skip_if_empty and not result["event_count"]:
            raise AirflowSkipException(f"No new events on {self.topic}; window {result['window_id']} is empty.")
        return result


def summary(outcome: WindowOutcome, landing_url: str) -> dict[str, Any]:
    """Return the JSON-able result of a drain: what a later task needs, never an event."""
    import json

    document = json.loads(outcome.manifest.to_json())
    keys = (
        "window_id",
        "stream",
        "kind",
        "after",
        "through",
        "event_count",
        "payload_bytes",
        "first_event_time",
        "last_event_time",
        "stop_reason",
        "gap",
    )
    return {
        "manifest_url": outcome.manifest.window.manifest_url,
        "landing_url": landing_url,
        **{key: document[key] for key in keys},
        "drained": outcome.drained,
        "committed": outcome.committed,
    }
