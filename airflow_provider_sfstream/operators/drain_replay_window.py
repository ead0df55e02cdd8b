"""Drain what is new on a Salesforce topic into a landing, as one replay window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_sfstream._airflow import TaskDeferralTimeout, conf
from airflow_provider_sfstream.actions.arguments import DEFAULT_SUBSCRIPTION, consumer_name
from airflow_provider_sfstream.actions.drain.config import Drain, DrainConfig, open_drain
from airflow_provider_sfstream.actions.drain.incremental import drain_new_events
from airflow_provider_sfstream.actions.drain.intervals import (
    check_timetable,
    drain_run_interval,
    interval_of,
    is_backfill,
)
from airflow_provider_sfstream.actions.drain.outlets import DrainOutlets
from airflow_provider_sfstream.actions.drain.results import DrainOperator
from airflow_provider_sfstream.actions.drain.waiting import end_seen, log_wake_up, wait_for_events, waited_long_enough
from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.actions.status import tell
from airflow_provider_sfstream.actions.task_runs import run_identity, warn_of_other_writers
from airflow_provider_sfstream.hooks.replay_store import ReplayStoreKind
from airflow_provider_sfstream.hooks.salesforce_allocations import AllocationReserve
from airflow_provider_sfstream.monitoring.links import ManifestLink, PreviousWindowLink, StreamLink

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_sfstream.streams.drain.result import SeenEnd


class DrainReplayWindowOperator(DrainOperator):
    """Land every event after the stream's recorded position as one replay window, then move the position.

    With ``mode="interval"``, and in every run of a backfill, it gives the events of the run's interval instead: from
    windows that were landed before, without a call to Salesforce; what no window has is drained, as long as Salesforce
    keeps it. A backfill never moves the position. docs/backfill.md has the whole of it.

    Guarantees: the position never covers an event that is not stored; a try killed at any line is made good by
    the next; a clear or re-run of the same DAG run returns the window it made before; an expired replay ID stops
    the task unless ``on_invalid_replay`` accepts the loss, which is then recorded as a gap.

    The Streaming API never confirms the end of a stream (Salesforce Knowledge 005321562): a drain over it ends ``idle``
    or by a limit, ``confirmed_at`` is null, and no interval of it is recorded as complete. Prefer the Pub/Sub API where
    it carries the topic.

    With ``min_events`` it waits for events first: on the triggerer, without a worker, if ``deferrable``. It does not
    wait when an earlier try of the run already made its window, nor when a stream without a position starts from
    ``"latest"``: the drain itself finds where that is, and events that end a wait would lie before it. A replay
    ID that can no longer be read ends the wait, so that ``on_invalid_replay`` applies. Salesforce forgets
    a replay ID after 72 hours (24 for PushTopics and generic events) even if nothing was published since, and only a
    drain records how far the stream was seen: therefore a wait ends after 12 hours by draining what is there, few
    events or none, and does not begin when the position was last recorded more than 30 hours (8 hours) ago.

    The XCom result is a small dict: ``window_id``, ``manifest_url``, ``landing_url``, ``asset_uri`` (of the landed
    stream's asset), ``stream``, ``kind``,
    ``after``, ``through``, ``event_count``, ``payload_bytes``, ``first_event_time``, ``last_event_time``,
    ``stop_reason``, ``contact_at`` (when Salesforce last answered), ``confirmed_at`` (a moment for which it said that
    the position is the end of the stream, of this drain or the last one to which it did), ``gap``, ``drained`` (false
    when an earlier try's window was returned), ``committed`` and ``schema_changes``.
    Replay IDs are hex text, times ISO 8601 in UTC. In interval mode: ``mode``, ``stream``, ``landing_url``,
    ``asset_uri``, ``event_time_from`` and ``event_time_to`` (the interval), ``windows`` (those that hold its events,
    among others: ``window_id``, ``manifest_url``, ``kind``, ``origin`` ``"landed"`` or ``"bus"``, ``event_count``,
    ``first_event_time``, ``last_event_time``), ``event_count`` (of these windows together), ``confirmed_at`` (null:
    Salesforce has not said yet that these are all), ``missing`` (spans that can no longer be had), ``drained`` and
    ``schema_changes``: for each schema that is new with what was drained the ``event``, its ``schema_id``, the one
    ``before``, and which fields were ``added``, ``removed``, ``retyped`` (``name``, ``from``, ``to``) and
    ``became_nullable`` (as the others, ``name`` and ``type``); null where that could not be seen.

    :param topic: ``/event/Order__e``, ``/data/AccountChangeEvent``, ``/data/ChangeEvents`` or a channel;
        ``/topic/MyPushTopic``, or ``/u/MyChannel``. (templated)
    :param landing_url: where windows are written, any URL that Airflow's object storage takes. (templated)
    :param salesforce_conn_id: Airflow connection of the org. (templated)
    :param api: ``"pubsub"`` or ``"streaming"``, the API to read the topic with. ``None``: the Pub/Sub API wherever it
        carries the topic; PushTopics and generic events are on the Streaming API only. The stream, and so its
        position, is one of that API.
    :param subscription: name under which this consumer keeps its place on the topic. Two DAGs that both want every
        event use two names. (templated)
    :param managed_subscription: developer name or ID of a managed event subscription, whose position Salesforce keeps:
        it is committed there once the window is durable. Takes the place of ``subscription``. (templated)
    :param landing_conn_id: Airflow connection for ``landing_url``, where it needs one. (templated)
    :param replay_store: ``"variable"`` keeps the position in an Airflow Variable (one writer at a time);
        ``"table"`` in a database table that concurrent runs cannot corrupt; ``"landing"`` in a file of the landing (one
        writer at a time). ``None``: ``"landing"`` with a managed subscription, else ``"variable"``.
    :param replay_store_conn_id: Airflow connection of that database (``sqlite``, ``postgres``, ``mysql``). (templated)
    :param start_from: where a stream without a recorded position begins: ``"earliest"`` (all that Salesforce
        still has), ``"latest"`` (only what is published from now on) or a replay ID as hex text. Where the landing has
        windows of such a stream, the replay store was lost, or is another one, and the task fails. (templated)
    :param max_events: stop after this many events.
    :param max_bytes: stop once this many payload bytes were received; at least one event is always taken.
    :param max_seconds: stop after this many seconds. ``None``: drain until caught up or idle.
    :param idle_timeout: end as idle after this many seconds without an event, if Salesforce then answers. That does not
        confirm the end of the stream.
    :param wait_for_confirmation: wait up to 300 seconds until Salesforce confirms the end of the stream, which takes up
        to 270 on a quiet one. An interval is complete only then. If ``deferrable``, a live run in interval mode waits
        on the triggerer. Refused on the Streaming API, which confirms nothing.
    :param until: stop before the first event whose event time is at or past this (ISO 8601 text or a datetime with
        time zone). An event dated more than a day ahead of the present is landed all the same, with a warning: its
        publisher's clock is wrong. (templated)
    :param grace: go on this long past ``until``, for events that arrive out of event-time order.
    :param on_invalid_replay: when Salesforce can no longer read the position: ``"fail"`` leaves everything
        as it is; ``"earliest"`` and ``"latest"`` continue there and record a gap. ``None``: ``"fail"``; with a managed
        subscription its ``errorRecoveryReplay``. (templated)
    :param accept_quiet_aging: ``True``: when the position aged out on a quiet stream of the Streaming API, continue
        from the earliest event, and record an uncertain gap (nothing is known to be lost). ``False``: fail with
        ``PositionAgedOutError``. Only on the Streaming API. docs/streaming-api.md#when-a-position-ages-out
    :param fail_on: for what a task fails once its window is stored and recorded: ``"gap"`` where events were lost
        (``EventsLostError``), ``"schema_change"`` where events have another schema than before
        (``SchemaChangedError``). Cleared, the task gives its window and succeeds. Without it, the log, the result and
        the asset event tell of both.
    :param mode: ``"incremental"``: what is new since the last run. ``"interval"``: the events of the run's data
        interval or partition, which needs a timetable that gives one. Backfill runs are always in interval mode, unless
        the run drained incrementally before: then it gives the same window again. What bounds an incremental drain,
        ``min_events`` and ``advance`` do not count in a backfill.
    :param on_expired: when part of an interval was never landed and Salesforce no longer has it: ``"fail"`` leaves
        everything as it is; ``"partial"`` gives what there is and records a gap. (templated)
    :param reuse: ``False``: nothing that was recorded or landed before answers for an interval; it is drained anew, as
        long as Salesforce has it, and the answer recorded in the place of the one before. (templated)
    :param advance: ``"automatic"`` moves the position once the manifest is written; ``"manual"`` leaves that to
        :class:`~airflow_provider_sfstream.operators.replay_position.CommitReplayPositionOperator`.
    :param skip_if_empty: mark the task skipped when its windows have no events, so that downstream tasks are too;
        not where events were lost.
    :param allocation_reserve: before a part of an interval is drained beside the live windows, in a backfill or with
        ``reuse=False``: fail (``AllocationReserveError``, not tried again) if less than this of the org's delivered
        events would remain. A number of events (``int``), a share (``float`` from 0.0 to 1.0), or a dict of these by
        the names of allocations. What such a drain is given at least is counted as far as it is landed. A live drain is
        never refused: its events are lost if nobody reads them. docs/sizing.md#allocations
    :param min_events: wait until this many events follow the position before draining. 0: drain at once what is
        there. ``None``: 1 if ``deferrable=True`` is given here and the drain is incremental, else 0.
    :param max_wait: with fewer than ``min_events``, drain once the oldest of them is this old (seconds or timedelta).
    :param deferrable: wait on the triggerer instead of in a worker. ``None``: as ``[operators] default_deferrable``
        says, which thus decides where a drain waits, never whether. Either way the task fails once a wait has lasted
        for ``execution_timeout``.
    :raises ConfigurationError: at construction, if an argument cannot be used.
    """

    template_fields: Sequence[str] = (
        *DrainOperator.template_fields,
        "managed_subscription",
        "start_from",
        "until",
        "on_invalid_replay",
        "on_expired",
        "reuse",
    )
    ui_color = "#d8ecf8"
    operator_extra_links = (StreamLink(), ManifestLink(), PreviousWindowLink())

    def __init__(
        self,
        *,
        topic: str,
        landing_url: str,
        salesforce_conn_id: str = "salesforce_default",
        api: Literal["pubsub", "streaming"] | None = None,
        subscription: str = DEFAULT_SUBSCRIPTION,
        managed_subscription: str | None = None,
        landing_conn_id: str | None = None,
        replay_store: ReplayStoreKind | None = None,
        replay_store_conn_id: str = "sfstream_replay_store",
        start_from: str = "earliest",
        max_events: int | None = None,
        max_bytes: int | None = None,
        max_seconds: float | None = None,
        idle_timeout: float = 10.0,
        wait_for_confirmation: bool = False,
        until: str | datetime | None = None,
        grace: timedelta | None = None,
        on_invalid_replay: Literal["fail", "earliest", "latest"] | None = None,
        accept_quiet_aging: bool = False,
        fail_on: Sequence[Literal["gap", "schema_change"]] = (),
        mode: Literal["incremental", "interval"] = "incremental",
        on_expired: Literal["fail", "partial"] = "fail",
        reuse: bool | str = True,
        advance: Literal["automatic", "manual"] = "automatic",
        skip_if_empty: bool = False,
        allocation_reserve: float | Mapping[str, float] | None = None,
        min_events: int | None = None,
        max_wait: float | timedelta | None = None,
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            topic=topic,
            landing_url=landing_url,
            salesforce_conn_id=salesforce_conn_id,
            api=api,
            subscription=consumer_name(subscription, managed_subscription),
            landing_conn_id=landing_conn_id,
            replay_store=replay_store or ("variable" if managed_subscription is None else "landing"),
            replay_store_conn_id=replay_store_conn_id,
            **kwargs,
        )
        self.managed_subscription = managed_subscription
        self.start_from = start_from
        self.max_events, self.max_bytes, self.max_seconds = max_events, max_bytes, max_seconds
        self.idle_timeout, self.wait_for_confirmation = idle_timeout, wait_for_confirmation
        self.until, self.grace = until, grace
        if on_invalid_replay is None and managed_subscription is None:
            on_invalid_replay = "fail"
        self.on_invalid_replay = on_invalid_replay
        self.accept_quiet_aging, self.fail_on, self.skip_if_empty = accept_quiet_aging, fail_on, skip_if_empty
        self.mode, self.on_expired, self.reuse, self.advance = mode, on_expired, reuse, advance
        self.allocation_reserve = allocation_reserve
        self.min_events = int(deferrable is True and mode == "incremental") if min_events is None else min_events
        self.max_wait = max_wait
        if deferrable is None:
            deferrable = conf.getboolean("operators", "default_deferrable", fallback=False)
        self.deferrable = deferrable
        config = self._config(rendered=False)
        if mode == "interval":
            check_timetable(getattr(self.get_dag(), "timetable", None))
        self._assets = DrainOutlets.of(config, self)
        self.outlets = [*self.outlets, *(each for each in self._assets.declared() if each not in self.outlets)]

    def execute(self, context: Context) -> dict[str, Any]:
        """Wait for events if asked to, then drain, land and record one window, or an interval; return its summary."""
        with airflow_errors(self):
            run, backfill = run_identity(context), is_backfill(context)
            if backfill and self.mode == "incremental":
                drain = open_drain(self._config(), may_be_landed=True, writes=False)
                # A run that drained before a backfill took it over returns the same window again.
                if drain.landed.recorded_window(run) is not None:
                    return self._drain(drain, context)
            if backfill or self.mode == "interval":
                return self._drain_interval(context)
            drain = open_drain(self._config())
            if (conditions := drain.config.conditions) is not None:
                tell(self.stream_uri, "wait", context, {"reason": "waiting"})
                wait_for_events(drain, conditions, run, self.defer)
            return self._drain(drain, context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Drain after a wait on the triggerer, or raise the error that ended it."""
        with airflow_errors(self):
            log_wake_up(event)
            tell(self.stream_uri, "wait", context, event)
            return self._drain(open_drain(self._config()), context)

    def execute_interval(self, context: Context, event: dict[str, Any], after: str, give_up_at: str) -> dict[str, Any]:
        """Drain the interval after a wait on the triggerer for the end of the stream."""
        with airflow_errors(self):
            log_wake_up(event)
            give_up = datetime.fromisoformat(give_up_at)
            return self._drain_interval(context, seen=end_seen(event, after), give_up_at=give_up)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume after a deferral; after the longest possible wait, drain the events that there are."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            if self.mode == "incremental" and not waited_long_enough(self.topic, self.execution_timeout):
                raise
        with airflow_errors(self):
            if self.mode == "interval":
                return self._drain_interval(context, give_up_at=datetime.now(UTC))
            return self._drain(open_drain(self._config()), context)

    def _config(self, *, rendered: bool = True) -> DrainConfig:
        """Return the checked arguments; with ``rendered=False`` before Airflow has rendered the templates."""
        return DrainConfig(
            topic=self.topic,
            landing_url=self.landing_url,
            salesforce_conn_id=self.salesforce_conn_id,
            api=self.api,
            subscription=self.subscription,
            managed_subscription=self.managed_subscription,
            landing_conn_id=self.landing_conn_id,
            replay_store=self.replay_store,
            replay_store_conn_id=self.replay_store_conn_id,
            start_from=self.start_from,
            max_events=self.max_events,
            max_bytes=self.max_bytes,
            max_seconds=self.max_seconds,
            idle_timeout=self.idle_timeout,
            wait_for_confirmation=self.wait_for_confirmation,
            until=self.until,
            grace=self.grace,
            on_invalid_replay=self.on_invalid_replay,
            accept_quiet_aging=self.accept_quiet_aging,
            fail_on=self.fail_on,
            mode=self.mode,
            on_expired=self.on_expired,
            reuse=self.reuse,
            advance=self.advance,
            skip_if_empty=self.skip_if_empty,
            reserve=AllocationReserve(self.allocation_reserve),
            min_events=self.min_events,
            max_wait=self.max_wait,
            deferrable=self.deferrable,
            execution_timeout=self.execution_timeout,
            rendered=rendered,
        )

    def _drain(self, drain: Drain, context: Context) -> dict[str, Any]:
        """Drain the new events, and return the result of the window."""
        run = run_identity(context)
        if drain.config.managed_subscription is None:
            warn_of_other_writers(drain.landed, self, run)
        return self.report(drain_new_events(drain, run), drain, self._assets, context)

    def _drain_interval(
        self, context: Context, *, seen: SeenEnd | None = None, give_up_at: datetime | None = None
    ) -> dict[str, Any]:
        """Drain the run's interval, and return its result."""
        interval = interval_of(context, getattr(self.get_dag(), "timetable", None), datetime.now(UTC))
        drain = open_drain(self._config(), may_be_landed=True)
        if not is_backfill(context):
            warn_of_other_writers(drain.landed, self, run_identity(context))
        result = drain_run_interval(drain, interval, context, self.defer, end_seen=seen, give_up_at=give_up_at)
        return self.report(result, drain, self._assets, context)
