"""Interval mode of the drain: which interval a run stands for, and what it returns."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.actions.parts import run_identity, warn_of_other_writers
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.salesforce.allocations import delivery_allocation
from airflow_provider_sfstream.salesforce.streams import Span

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from airflow_provider_sfstream.actions.allocations import AllocationReserve
    from airflow_provider_sfstream.actions.drain.preparation import Prepared
    from airflow_provider_sfstream.replay_windows.interval import IntervalOutcome, IntervalWindow
    from airflow_provider_sfstream.salesforce.streams import Stream
    from airflow_provider_sfstream.streams.drain.result import SeenEnd

log = logging.getLogger(__name__)

_SCHEDULER_AHEAD = timedelta(minutes=1)
"""By which its clock may be ahead of a worker's. The drain itself stays until the interval has ended."""
_TIMETABLES = (
    "Give the DAG a timetable with an interval: CronDataIntervalTimetable, DeltaDataIntervalTimetable, "
    "CronTriggerTimetable(..., interval=timedelta(hours=1)) or CronPartitionTimetable. Only "
    'runs with mode="incremental" that are no backfills need none. Nothing was read or moved.'
)


def is_backfill(context: Context) -> bool:
    """Return whether this run is part of a backfill."""
    return bool(context["dag_run"].run_type == "backfill")


def interval_of(context: Context, timetable: Any, now: datetime) -> Span:
    """Return the interval that a run stands for, in UTC: its data interval, or the one that its partition date begins.

    A partition is from its date to the next tick of the DAG's cron expression, in the timetable's time zone.

    :param timetable: the timetable of the DAG.
    :raises ConfigurationError: if the run has no interval, or one of zero length, or one that has not ended.
    """
    run: Any = context["dag_run"]
    begin, end = run.data_interval_start, run.data_interval_end
    partition_date = getattr(run, "partition_date", None)  # newer than the other two
    if partition_date is not None:
        begin, end = partition_date, _next_tick(timetable, partition_date)
    if begin is None or end is None:
        raise ConfigurationError(f"Run {run.run_id} has no data interval. {_TIMETABLES}")
    if begin >= end:
        raise ConfigurationError(
            f"The data interval of run {run.run_id} has no length ({begin.isoformat()}), as with a bare cron "
            f"expression. {_TIMETABLES}"
        )
    interval = Span(begin.astimezone(UTC), end.astimezone(UTC))
    if interval.end > now + _SCHEDULER_AHEAD:
        raise ConfigurationError(
            f"The interval {interval} of run {run.run_id} has not ended yet. Run it after its end; with "
            "CronPartitionTimetable, run_offset=-1 gives a run the partition that has just ended. Nothing was read or "
            "moved."
        )
    return interval


def check_timetable(timetable: Any) -> None:
    """Refuse a timetable whose runs have intervals without length, when the DAG is parsed.

    :param timetable: the timetable of the DAG; ``None`` if there is no DAG yet.
    :raises ConfigurationError: if it is one of those that only say when to run, such as a bare cron expression.
    """
    timetable = next(iter(getattr(timetable, "timetables", ())), timetable)  # one of several cron expressions
    # DAGs may also use the scheduler's classes, which have other names.
    length = getattr(timetable, "interval", getattr(timetable, "_interval", None))
    has_partitions = hasattr(timetable, "run_offset") or hasattr(timetable, "_run_offset")
    if length is not None and not length and not has_partitions:
        raise ConfigurationError(
            f'mode="interval" drains the data interval of a run, and those of {type(timetable).__name__} have no '
            f"length, as with a bare cron expression. {_TIMETABLES}"
        )


def _next_tick(timetable: Any, tick: datetime) -> datetime:
    """Return the tick after ``tick`` of a cron timetable, with Airflow's rules for changes to and from daylight saving.

    An expression for every hour goes on by elapsed time; any other by the clock on the wall, where a time that comes
    twice is the second one. The scheduler's own form of the timetable does this, but not the form that DAGs have.
    """
    import pendulum
    from croniter import croniter

    # DAGs may also use the scheduler's class, which has other names for the two.
    expression = getattr(timetable, "expression", None) or getattr(timetable, "_expression", None)
    zone: Any = getattr(timetable, "timezone", None) or getattr(timetable, "_timezone", None)
    if expression is None or zone is None:
        raise ConfigurationError(
            f"The run has a partition date, but {type(timetable).__name__}, the timetable of its DAG, does not tell "
            "when the partition ends. Use CronPartitionTimetable. Nothing was read or moved."
        )
    zone = pendulum.timezone(zone) if isinstance(zone, str | int) else zone
    moment = datetime.fromtimestamp(tick.timestamp(), UTC)  # of the standard library, whatever class the tick has
    local = moment.astimezone(zone).replace(tzinfo=None)
    cron = croniter(expression, local)
    following: datetime = cron.get_next(datetime)
    if cron.expanded[1] == ["*"]:
        return moment + (following - local)
    aware: datetime = zone.convert(following.replace(fold=1))
    return aware.astimezone(UTC)


def give_interval(
    operator: BaseOperator,
    drain: Prepared,
    interval: Span,
    context: Context,
    *,
    wait_for_confirmation: bool,
    end_seen: SeenEnd | None,
    reserve: AllocationReserve,
) -> IntervalOutcome:
    """Return what gives the interval of a run, draining what is not landed yet, if that leaves ``reserve``."""
    from airflow_provider_sfstream.replay_windows.interval import IntervalRequest, drain_interval
    from airflow_provider_sfstream.streams.drain.limits import DrainLimits

    backfill = is_backfill(context)
    arguments = drain.arguments
    left_out = arguments.given_limits
    if not backfill:
        warn_of_other_writers(drain.landed, operator, run_identity(context))
    elif left_out:
        log.info("This is a backfill of %s: %s do not count.", interval, ", ".join(left_out))

    def admit(least_events: int) -> None:
        # Without the brackets of a span, whose odd parenthesis would hide where the sentence ends.
        span = f"{interval.start.isoformat()} to {interval.end.isoformat()}"
        reserve.check(
            arguments.salesforce_conn_id,
            allocation=delivery_allocation(arguments.topic),
            least=least_events,
            what=f"{drain.landed.stream}: {span} is not drained",
        )

    outcome = drain_interval(
        drain.landed,
        IntervalRequest(
            run=run_identity(context),
            interval=interval,
            backfill=backfill,
            limits=DrainLimits(idle_timeout=arguments.idle_timeout, wait_for_confirmation=wait_for_confirmation),
            start_from=drain.start_from,
            on_invalid_replay=arguments.on_invalid_replay or "fail",
            accept_quiet_aging=arguments.accept_quiet_aging,
            on_expired=arguments.on_expired,
            reuse=arguments.reuses,
            end_seen=end_seen,
        ),
        open_source=drain.hook.get_conn,
        admit=admit if reserve else None,
    )
    log_interval(outcome, drain.landed.stream)
    return outcome


def interval_summary(outcome: IntervalOutcome, stream: Stream, landing_url: str, asset_uri: str) -> dict[str, Any]:
    """Return the JSON-able result of a drain in interval mode: what a later task needs, never an event."""
    return {
        "mode": "interval",
        "stream": dict(vars(stream)),
        "landing_url": landing_url,
        "asset_uri": asset_uri,
        "event_time_from": outcome.interval.start.isoformat(),
        "event_time_to": outcome.interval.end.isoformat(),
        "windows": [_window(window) for window in outcome.windows],
        "event_count": sum(window.manifest.window.event_count for window in outcome.windows),
        "confirmed_at": outcome.confirmed_at and outcome.confirmed_at.isoformat(),
        "missing": [{"from": span.start.isoformat(), "to": span.end.isoformat()} for span in outcome.missing],
        "drained": outcome.drained,
    }


def log_interval(outcome: IntervalOutcome, stream: Stream) -> None:
    """Log what a drain in interval mode gave, and what is lost."""
    origins = [window.origin for window in outcome.windows]
    log.info(
        "Interval %s of %s is in %d windows: %d landed before, %d drained for it.",
        outcome.interval,
        stream,
        len(origins),
        origins.count("landed"),
        origins.count("bus"),
    )
    if outcome.confirmed_at is None:
        log.info(
            "There is no evidence yet that these are all events of %s: nothing is recorded for it. An event that "
            "Salesforce delivers later is returned by the run that lands it. With wait_for_confirmation=True a run "
            "waits for that evidence, on the Pub/Sub API.",
            outcome.interval,
        )
    if outcome.missing:
        log.warning("Lost of interval %s: %s", outcome.interval, ", ".join(map(str, outcome.missing)))


def _window(window: IntervalWindow) -> dict[str, Any]:
    facts = window.manifest.window
    is_own = (facts.kind, window.origin) == ("live", "bus")
    late_before = window.manifest.late_before if is_own else None
    return {
        "window_id": facts.window_id,
        "manifest_url": facts.manifest_url,
        "kind": facts.kind,
        "origin": window.origin,
        "event_count": facts.event_count,
        "first_event_time": facts.first_event_time and facts.first_event_time.isoformat(),
        "last_event_time": facts.last_event_time and facts.last_event_time.isoformat(),
        "counts_from": facts.counts_from and facts.counts_from.isoformat(),
        "late_before": late_before and late_before.isoformat(),
    }
