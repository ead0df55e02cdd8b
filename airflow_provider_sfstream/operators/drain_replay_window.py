"""Drain the new events of a Salesforce topic into a landing, as one replay window."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream._airflow import TaskDeferralTimeout
from airflow_provider_sfstream.actions.drain.arguments import Drain, open_drain
from airflow_provider_sfstream.actions.drain.incremental import drain_new_events
from airflow_provider_sfstream.actions.drain.intervals import drain_run_interval
from airflow_provider_sfstream.actions.drain.loss_question import accept_answer, asking_about_loss
from airflow_provider_sfstream.actions.drain.results import DrainOperator
from airflow_provider_sfstream.actions.drain.waiting import (
    confirmed_end_from,
    log_wake_up,
    wait_for_events,
    waited_long_enough,
)
from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.actions.status import report_section
from airflow_provider_sfstream.actions.task_runs import interval_of, is_backfill, run_identity, warn_of_other_writers
from airflow_provider_sfstream.monitoring.links import ManifestLink, PreviousWindowLink, StreamLink

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_sfstream.actions.tables.embedded_job import EmbeddedWindowsOperator
    from airflow_provider_sfstream.streams.drain.result import ConfirmedEnd


class DrainReplayWindowOperator(DrainOperator):
    """Land all events after the recorded position of a stream as one replay window, then advance the position.

    With ``mode="interval"``, and in every run of a backfill, the operator returns the events of the run's interval:
    from landed windows, without a call to Salesforce, and for spans without a window from Salesforce, within its
    retention. A backfill never moves the position. See docs/backfill.md.

    Guarantees: the position never covers an event that is not stored. A try that was killed at any line is completed by
    the next one. A cleared or repeated DAG run returns its earlier window. An expired replay ID fails the task, unless
    ``on_invalid_replay`` accepts the loss, which is then recorded as a gap.

    The Streaming API never confirms the end of a stream (Salesforce Knowledge 005321562): a drain over it ends ``idle``
    or by a limit, ``confirmed_at`` is null, and no interval of it is recorded as complete. Prefer the Pub/Sub API if it
    has the topic.

    With ``min_events`` the task first waits for events, if it is ``deferrable`` without a worker slot. A wait ends
    after 12 hours with a drain, which renews the position. See docs/when-to-run.md.

    With ``event_log`` or ``replica`` the task also writes tables from its windows once they are landed, earlier than a
    second task would. If such a job fails, the task fails, and a retry or the cleared task runs the jobs on the same
    windows. The asset events are emitted once the jobs have succeeded.

    The XCom result is a :class:`~airflow_provider_sfstream.actions.drain.results.DrainedWindow`, in interval mode a
    :class:`~airflow_provider_sfstream.actions.drain.results.DrainedInterval`.

    :param topic: ``/event/Order__e``, ``/data/AccountChangeEvent``, ``/data/ChangeEvents`` or a channel;
        ``/topic/MyPushTopic``, or ``/u/MyChannel``. (templated)
    :param landing_url: folder of the windows, a URL of Airflow's object storage. (templated)
    :param salesforce_conn_id: Airflow connection of the org. (templated)
    :param api: API of the stream: ``"pubsub"`` or ``"streaming"``. ``None``: the Pub/Sub API if it has the topic;
        PushTopics and generic events are only on the Streaming API, which needs the extra ``streaming``. Each API
        has a stream and position of its own.
    :param subscription: name of this consumer of the topic. Two DAGs that each need every event use two names.
        (templated)
    :param managed_subscription: developer name or ID of a managed event subscription, whose position Salesforce stores:
        the replay ID is committed there once the window is durable. Replaces ``subscription``. (templated)
    :param landing_conn_id: Airflow connection for ``landing_url``, if it needs one. (templated)
    :param replay_store: where the position is stored: ``"variable"``, an Airflow Variable (one writer at a time);
        ``"table"``, a database table that is safe with concurrent runs; ``"landing"``, a file of the landing (one
        writer at a time), lost together with it: the stream then looks new. ``None``: ``"landing"`` with a managed
        subscription, else ``"variable"``.
    :param replay_store_conn_id: Airflow connection of that database (``sqlite``, ``postgres``, ``mysql``). (templated)
    :param start_from: begin of a stream without a recorded position: ``"earliest"`` (the oldest retained event),
        ``"latest"`` (only new events) or a replay ID as hex text. If the landing has windows of the stream, its replay
        store was lost or replaced, and the task fails. (templated)
    :param max_events: stop after this many events.
    :param max_bytes: stop after this many bytes of payloads, and at least one event.
    :param max_seconds: stop after this many seconds. ``None``: drain until caught up or idle.
    :param idle_timeout: end as idle after this many seconds without an event, if Salesforce then responds. That does
        not confirm the end of the stream. ``None``: 10; after an event of the last minute, three times the seconds in
        which the first event was delivered, at least 0.5 and at most 10.
    :param wait_for_confirmation: wait up to 300 seconds until Salesforce confirms the end of the stream, which takes up
        to 270 on a quiet one. An interval is complete only then. If ``deferrable``, a live run in interval mode waits
        on the triggerer. Refused on the Streaming API, which confirms nothing.
    :param until: stop before the first event with this event time or a later one (ISO 8601 text, or a datetime with
        time zone). An event dated more than a day in the future is landed with a warning, because its publisher's clock
        is wrong. (templated)
    :param grace: continue this long past ``until``, for events that arrive out of event-time order.
    :param on_invalid_replay: if Salesforce can no longer read the position: ``"fail"`` changes nothing;
        ``"earliest"`` and ``"latest"`` continue there and record a gap; ``"ask"`` waits, without a worker slot, until a
        user chooses one of the two in Airflow's *Required actions*, and records the user and the reason in the gap. The
        task fails once nobody has answered for ``execution_timeout``. Not with a managed subscription. ``None``:
        ``"fail"``; with a managed subscription its ``errorRecoveryReplay``. (templated)
    :param accept_quiet_aging: ``True``: if the position aged out on a quiet stream of the Streaming API, continue
        from the earliest event, and record an uncertain gap (nothing is known to be lost). ``False``: fail with
        ``PositionAgedOutError``. Only on the Streaming API. docs/streaming-api.md#when-a-position-ages-out
    :param fail_on: conditions that fail the task after its window is stored and recorded: ``"gap"``, lost events
        (``EventsLostError``); ``"schema_change"``, events with another schema than before (``SchemaChangedError``). A
        cleared task returns its window and succeeds. Without it, log, result and asset event report both.
    :param mode: ``"incremental"``: the events since the last run. ``"interval"``: the events of the run's data interval
        or partition, which needs a timetable with intervals. Backfill runs are always in interval mode, unless
        the run drained incrementally before: then it returns the same window. A backfill ignores the limits of an
        incremental drain, ``min_events`` and ``advance``.
    :param on_expired: if a part of an interval was never landed and Salesforce no longer has it: ``"fail"`` changes
        nothing; ``"partial"`` returns the other events and records a gap. (templated)
    :param reuse: ``False``: drain an interval again from Salesforce, within its retention, without recorded results and
        landed windows, and replace the recorded result. (templated)
    :param advance: ``"automatic"`` advances the position once the manifest is written; ``"manual"`` leaves it to
        :class:`~airflow_provider_sfstream.operators.replay_position.CommitReplayPositionOperator`.
    :param skip_if_empty: mark the task skipped if its windows have no events, so that downstream tasks are skipped too;
        not if events were lost.
    :param allocation_reserve: before a part of an interval is drained in addition to the live windows, in a backfill or
        with ``reuse=False``: fail (``AllocationReserveError``, without retry) if fewer of the org's delivered
        events would remain. A number of events (``int``), a share (``float`` from 0.0 to 1.0), or a dict of these by
        the names of allocations. The estimate counts the events of landed windows. A live drain is never refused,
        because its unread events would be lost. docs/sizing.md#allocations
    :param min_events: wait until this many events follow the position before draining. 0: drain without a wait.
        ``None``: 1 if ``deferrable=True`` is given here and the drain is incremental, else 0.
    :param max_wait: with fewer than ``min_events``, drain once the oldest of them is this old (seconds or timedelta).
    :param deferrable: wait on the triggerer instead of in a worker. ``None``: the setting ``[operators]
        default_deferrable``, which decides where a drain waits, never whether. In both cases the task fails once a wait
        has lasted for ``execution_timeout``.
    :param event_log: arguments of :class:`~airflow_provider_sfstream.operators.event_log.EventLogOperator`, for example
        ``{"output_url": "s3://lake/tables"}``, to run its job in this task. The windows and the connections of org and
        landing are those of the drain. Arguments of tasks are refused, and ``default_args`` do not apply. ``None``: no
        job. (templated)
    :param replica: the same for :class:`~airflow_provider_sfstream.operators.replica.ReplicaOperator`, whose job runs
        after that of ``event_log``. (templated)
    :raises ConfigurationError: at construction, if an argument cannot be used.
    """

    ui_color = "#d8ecf8"
    operator_extra_links = (StreamLink(), ManifestLink(), PreviousWindowLink())

    def execute(self, context: Context) -> dict[str, Any]:
        """Wait for events if asked to, then drain, land and record one window, or an interval; return its summary."""
        with airflow_errors(self):
            self.check_table_jobs()
            run, backfill = run_identity(context), is_backfill(context)
            if backfill and self.mode == "incremental":
                drain = open_drain(self, may_be_landed=True, writes=False)
                # A run that drained before a backfill took it over returns the same window again.
                if drain.landed.recorded_window(run) is not None:
                    return self._drain(drain, context)
            if backfill or self.mode == "interval":
                return self._drain_interval(context)
            drain = open_drain(self)
            if (conditions := self.conditions) is not None:
                report_section(self.stream_uri, "wait", context, {"reason": "waiting"})
                wait_for_events(drain, conditions, run)
            return self._drain(drain, context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Drain after a wait on the triggerer, or raise the error that ended it."""
        with airflow_errors(self):
            log_wake_up(event)
            report_section(self.stream_uri, "wait", context, event)
            return self._drain(open_drain(self), context)

    def execute_interval(self, context: Context, event: dict[str, Any], after: str, give_up_at: str) -> dict[str, Any]:
        """Drain the interval after a wait on the triggerer for the end of the stream."""
        with airflow_errors(self):
            log_wake_up(event)
            give_up = datetime.fromisoformat(give_up_at)
            return self._drain_interval(context, confirmed_end=confirmed_end_from(event, after), give_up_at=give_up)

    def execute_answer(self, context: Context, event: dict[str, Any], after: str) -> dict[str, Any]:
        """Accept the loss at position ``after`` (hex text) as a user answered, then drain; without an answer, fail."""
        with airflow_errors(self):
            drain = open_drain(self)
            accept_answer(drain, event, after, run_identity(context))
            if self.mode == "interval":
                return self._drain_interval(context, asks=False)
            return self._drain(drain, context, asks=False)

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
            return self._drain(open_drain(self), context)

    def table_job(self, name: str) -> Callable[..., EmbeddedWindowsOperator]:
        """Return the constructor of the operator of a table job, by its argument."""
        if name == "event_log":
            from airflow_provider_sfstream.operators.event_log import EventLogOperator

            return partial(EventLogOperator, salesforce_conn_id=self.salesforce_conn_id)
        from airflow_provider_sfstream.operators.replica import ReplicaOperator

        return ReplicaOperator

    def _drain(self, drain: Drain, context: Context, *, asks: bool = True) -> dict[str, Any]:
        run = run_identity(context)
        if self.managed_subscription is None:
            warn_of_other_writers(drain.landed, self, run)
        with asking_about_loss(drain, context) if asks else nullcontext():
            result = drain_new_events(drain, run)
        return self.report(result, drain, context)

    def _drain_interval(
        self,
        context: Context,
        *,
        confirmed_end: ConfirmedEnd | None = None,
        give_up_at: datetime | None = None,
        asks: bool = True,
    ) -> dict[str, Any]:
        interval = interval_of(context, getattr(self.get_dag(), "timetable", None), datetime.now(UTC))
        drain = open_drain(self, may_be_landed=True)
        if is_backfill(context):
            asks = False
        else:
            warn_of_other_writers(drain.landed, self, run_identity(context))
        with asking_about_loss(drain, context) if asks else nullcontext():
            result = drain_run_interval(drain, interval, context, confirmed_end=confirmed_end, give_up_at=give_up_at)
        return self.report(result, drain, context)
