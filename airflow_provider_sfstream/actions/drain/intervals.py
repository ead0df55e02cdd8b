"""Interval mode of the drain: the interval of a run, and the windows that hold it."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.actions.arguments import landed_stream_uri
from airflow_provider_sfstream.actions.drain.results import DrainResult
from airflow_provider_sfstream.actions.drain.waiting import Defer, defer_until_confirmed
from airflow_provider_sfstream.actions.task_runs import run_identity
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.hooks.salesforce_allocations import delivery_allocation
from airflow_provider_sfstream.salesforce.streams import Span

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_sfstream.actions.drain.config import Drain
    from airflow_provider_sfstream.replay_windows.interval import IntervalOutcome, IntervalWindow
    from airflow_provider_sfstream.salesforce.streams import Stream
    from airflow_provider_sfstream.streams.drain.result import ConfirmedEnd

log = logging.getLogger(__name__)

_SCHEDULER_AHEAD = timedelta(minutes=1)
"""Tolerance for a scheduler whose clock is ahead. The drain itself waits until the interval has ended."""
_OF_MANIFEST = ("window_id", "kind", "event_count", "first_event_time", "last_event_time", "counts_from")
"""Keys of a window in the result that are those of its manifest."""
_TIMETABLES = (
    "Give the DAG a timetable with an interval: CronDataIntervalTimetable, DeltaDataIntervalTimetable, "
    "CronTriggerTimetable(..., interval=timedelta(hours=1)) or CronPartitionTimetable. Only "
    'runs with mode="incremental" that are no backfills need none. Nothing was read or moved.'
)


def is_backfill(context: Context) -> bool:
    """Return whether this run is part of a backfill."""
    return bool(context["dag_run"].run_type == "backfill")


def interval_of(context: Context, timetable: Any, now: datetime) -> Span:
    """Return the interval of a run, in UTC: its data interval, or the partition from its date to the next tick of the
    DAG's timetable.

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
            "CronPartitionTimetable, run_offset=-1 assigns the last ended partition to a run. Nothing was read or "
            "moved."
        )
    return interval


def check_timetable(timetable: Any) -> None:
    """Refuse a timetable whose runs have intervals without length, when the DAG is parsed."""
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

    An expression for every hour advances by elapsed time; any other by local time, where a time that occurs twice is
    the second one. The scheduler's class of the timetable does this, but not the class that DAGs use.
    """
    import pendulum
    from croniter import croniter

    # DAGs may also use the scheduler's class, which has other names for the two.
    expression = getattr(timetable, "expression", None) or getattr(timetable, "_expression", None)
    zone: Any = getattr(timetable, "timezone", None) or getattr(timetable, "_timezone", None)
    if expression is None or zone is None:
        raise ConfigurationError(
            f"The run has a partition date, but {type(timetable).__name__}, the timetable of its DAG, does not define "
            "when the partition ends. Use CronPartitionTimetable. Nothing was read or moved."
        )
    zone = pendulum.timezone(zone) if isinstance(zone, str | int) else zone
    moment = datetime.fromtimestamp(tick.timestamp(), UTC)  # a datetime of the standard library
    local = moment.astimezone(zone).replace(tzinfo=None)
    cron = croniter(expression, local)
    following: datetime = cron.get_next(datetime)
    if cron.expanded[1] == ["*"]:
        return moment + (following - local)
    aware: datetime = zone.convert(following.replace(fold=1))
    return aware.astimezone(UTC)


def drain_run_interval(
    drain: Drain,
    interval: Span,
    context: Context,
    defer: Defer,
    *,
    confirmed_end: ConfirmedEnd | None,
    give_up_at: datetime | None,
) -> DrainResult:
    """Return the windows that have the interval of a run; drain missing parts, if the reserve allows it.

    :param confirmed_end: end of the stream that a trigger confirmed.
    :param give_up_at: when to stop deferring for a confirmed end of the stream; ``None``: the wait has not begun.
    :raises SalesforceStreamError: if the drain fails. Events that are landed are not lost.
    """
    from airflow_provider_sfstream.replay_windows.interval import IntervalRequest, drain_interval
    from airflow_provider_sfstream.streams.drain.limits import DrainLimits

    config, backfill = drain.config, is_backfill(context)
    may_defer = config.wait_for_confirmation and config.deferrable and config.reuses and not backfill
    # A stream without a position has no end to wait for.
    defers = may_defer and drain.landed.position().replay_id is not None
    waits = config.wait_for_confirmation and not defers
    if backfill and config.incremental_limits:
        log.info("Backfill of %s: %s are not applied.", interval, ", ".join(config.incremental_limits))

    def admit(least_events: int) -> None:
        # Without the brackets of a span, whose odd parenthesis would hide where the sentence ends.
        span = f"{interval.start.isoformat()} to {interval.end.isoformat()}"
        config.reserve.check(
            config.salesforce_conn_id,
            allocation=delivery_allocation(config.topic),
            least=least_events,
            what=f"{drain.landed.stream}: {span} is not drained",
        )

    outcome = drain_interval(
        drain.landed,
        IntervalRequest(
            run=run_identity(context),
            interval=interval,
            backfill=backfill,
            limits=DrainLimits(idle_timeout=config.longest_idle, wait_for_confirmation=waits),
            start_from=drain.start_from,
            on_invalid_replay=config.policy or "fail",
            accept_quiet_aging=config.accept_quiet_aging,
            on_expired=config.on_expired,
            reuse=config.reuses,
            confirmed_end=confirmed_end,
        ),
        open_source=drain.hook.get_conn,
        admit=admit if config.reserve else None,
    )
    _log_interval(outcome, drain.landed.stream)
    if defers and outcome.confirmed_at is None:
        defer_until_confirmed(drain, give_up_at, defer)
    return _result(outcome, drain)


def _result(outcome: IntervalOutcome, drain: Drain) -> DrainResult:
    """Return the result of an interval, for later tasks. It contains no event."""
    document = {
        "mode": "interval",
        "stream": dict(vars(drain.landed.stream)),
        "landing_url": drain.landed.catalog.landing.url,
        "asset_uri": landed_stream_uri(drain.config),
        "event_time_from": outcome.interval.start.isoformat(),
        "event_time_to": outcome.interval.end.isoformat(),
        "windows": [_window(window) for window in outcome.windows],
        "event_count": sum(window.manifest.window.event_count for window in outcome.windows),
        "event_hours": _event_hours(outcome),
        "confirmed_at": _text(outcome.confirmed_at),
        "missing": [{"from": span.start.isoformat(), "to": span.end.isoformat()} for span in outcome.missing],
        "drained": outcome.drained,
    }
    windows = [window.manifest for window in outcome.windows]
    empty = f"The windows of {drain.config.topic} for {outcome.interval} have no events."
    return DrainResult(document, windows, list(outcome.own), drain.landed.catalog, empty)


def _event_hours(outcome: IntervalOutcome) -> list[str]:
    """Return the hours of the interval's events in its windows, and of the late events that the run landed."""
    from airflow_provider_sfstream.landing.window_bounds import event_hours, hour_key

    begin = hour_key(outcome.interval.start.replace(minute=0, second=0, microsecond=0))
    end = hour_key(outcome.interval.end)
    hours: set[str] = set()
    for window in outcome.windows:
        late_before = window.manifest.late_before if _is_own(window) else None
        late = "" if late_before is None else hour_key(late_before)
        hours.update(hour for hour in event_hours(window.manifest.window) if begin <= hour < end or hour < late)
    return sorted(hours)


def _log_interval(outcome: IntervalOutcome, stream: Stream) -> None:
    """Log the windows of an interval, and the spans that are lost."""
    interval, origins = outcome.interval, [window.origin for window in outcome.windows]
    counts = len(origins), origins.count("landed"), origins.count("bus")
    log.info("Interval %s of %s is in %d windows: %d landed before, %d drained for it.", interval, stream, *counts)
    if outcome.confirmed_at is None:
        log.info(
            "Salesforce has not confirmed that these are all events of %s, so the interval is not recorded. The run "
            "that lands a later event of it returns that event. On the Pub/Sub API, wait_for_confirmation=True waits "
            "for the confirmation.",
            interval,
        )
    if outcome.missing:
        missing = ", ".join(map(str, outcome.missing))
        log.warning("Missing spans of interval %s, which can no longer be read: %s", interval, missing)


def _window(window: IntervalWindow) -> dict[str, Any]:
    document = json.loads(window.manifest.to_json())
    return {
        "manifest_url": window.manifest.window.manifest_url,
        "origin": window.origin,
        **{key: document[key] for key in _OF_MANIFEST},
        "late_before": document["late_before"] if _is_own(window) else None,
    }


def _is_own(window: IntervalWindow) -> bool:
    """Return whether this run landed the window with the events after the position."""
    return (window.manifest.window.kind, window.origin) == ("live", "bus")


def _text(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
