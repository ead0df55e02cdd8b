"""Run of a task: its identity, its interval, and the other runs that may move the position of its stream."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.salesforce.streams import RunIdentity, Span

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream

log = logging.getLogger(__name__)

_SCHEDULER_AHEAD = timedelta(minutes=1)
"""Tolerance for a scheduler whose clock is ahead. The drain itself waits until the interval has ended."""
_TIMETABLES = (
    "Give the DAG a timetable with an interval: CronDataIntervalTimetable, DeltaDataIntervalTimetable, "
    "CronTriggerTimetable(..., interval=timedelta(hours=1)) or CronPartitionTimetable. Only "
    'runs with mode="incremental" that are no backfills need none. Nothing was read or moved.'
)


def run_identity(context: Context) -> RunIdentity:
    """Return who this task run is. ``run_after`` is the one date that every kind of run has."""
    task_instance: Any = context["ti"]
    return RunIdentity(
        dag_id=task_instance.dag_id,
        task_id=task_instance.task_id,
        run_id=task_instance.run_id,
        run_after=context["dag_run"].run_after,
        map_index=-1 if task_instance.map_index is None else task_instance.map_index,
        try_number=task_instance.try_number,
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


def warn_of_other_writers(landed: LandedStream, operator: BaseOperator, run: RunIdentity) -> None:
    """Warn where two runs may move one position at a time, if the store cannot see to it that they do not."""
    if landed.store.compares_and_sets:
        return
    dag, position = operator.get_dag(), landed.position()
    own, writer = str(run).partition(" run ")[0], (position.updated_by or "").partition(" run ")[0]
    if dag is not None and dag.max_active_runs != 1 and operator.max_active_tis_per_dag != 1:
        risk = f"{dag.max_active_runs} runs of {dag.dag_id} may be active at a time"
    elif position.window_id is not None and writer != own:
        risk = f"{writer} moved this one too, at {position.updated_at}"
    else:
        return
    log.warning(
        "%s: this replay store cannot detect two writers of a position, and %s. Run one drain of the stream at a time "
        "(max_active_runs=1), or use replay_store='table'.",
        landed.stream,
        risk,
    )
