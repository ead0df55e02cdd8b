"""Interval mode: the interval of a run, and the arguments that the mode refuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from airflow.sdk import (
    DAG,
    Asset,
    CronDataIntervalTimetable,
    CronPartitionTimetable,
    CronTriggerTimetable,
    MultipleCronTriggerTimetable,
)
from airflow.timetables.trigger import CronPartitionTimetable as SchedulerCronPartitionTimetable

from airflow_provider_sfstream.actions.drain.intervals import _event_hours
from airflow_provider_sfstream.actions.task_runs import interval_of, is_backfill
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.salesforce.streams import Span
from tests.support.recorded_windows import at, recorded_window, span
from tests.support.tasks import context_for

TEN, ELEVEN = (datetime(2026, 11, 20, hour, tzinfo=UTC) for hour in (10, 11))
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
BERLIN = "Europe/Berlin"


def interval(now: datetime = NOON, timetable: Any = None, **dag_run: Any) -> Span:
    return interval_of(context_for("drain", **dag_run), timetable, now)


def drain(**arguments: Any) -> DrainReplayWindowOperator:
    named = {"task_id": "drain", "topic": "/event/Order__e", "landing_url": "/lake"}
    return DrainReplayWindowOperator(**{**named, **arguments})


@pytest.mark.parametrize("run_type", ["scheduled", "manual", "backfill"])
def test_interval_of_a_run_is_its_data_interval(run_type: str) -> None:
    got = interval(run_type=run_type, data_interval_start=TEN, data_interval_end=ELEVEN)
    assert got == Span(TEN, ELEVEN)
    assert got.start.tzinfo is UTC


@pytest.mark.parametrize(
    ("bounds", "what"), [((None, None), "has no data interval"), ((TEN, TEN), "has no length"), ((TEN, None), "has no")]
)
def test_without_an_interval_the_remedy_names_the_timetables(bounds: tuple[Any, Any], what: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{what}.*CronDataIntervalTimetable.*incremental"):
        interval(run_type="asset_triggered", data_interval_start=bounds[0], data_interval_end=bounds[1])


def test_interval_must_have_ended_by_the_scheduler_clock_within_one_minute() -> None:
    bounds = {"data_interval_start": TEN, "data_interval_end": ELEVEN}
    assert interval(ELEVEN - timedelta(minutes=1), **bounds) == Span(TEN, ELEVEN)
    with pytest.raises(ConfigurationError, match=r"has not ended yet.*run_offset=-1"):
        interval(ELEVEN - timedelta(minutes=1, seconds=1), **bounds)


def test_a_partition_ends_at_the_next_tick() -> None:
    timetable = DAG("orders", schedule=CronPartitionTimetable("@daily", timezone=BERLIN)).timetable
    got = interval(timetable=timetable, partition_date=datetime(2026, 11, 18, 23, tzinfo=UTC))
    assert got == Span(datetime(2026, 11, 18, 23, tzinfo=UTC), datetime(2026, 11, 19, 23, tzinfo=UTC))


@pytest.mark.parametrize(
    ("date", "hours"),
    [(datetime(2026, 3, 28, 23, tzinfo=UTC), 23), (datetime(2026, 10, 24, 22, tzinfo=UTC), 25)],
    ids=["spring", "autumn"],
)
def test_partition_of_a_clock_change_day_has_23_or_25_hours(date: datetime, hours: int) -> None:
    got = interval(timetable=CronPartitionTimetable("0 0 * * *", timezone=BERLIN), partition_date=date)
    assert got.end - got.start == timedelta(hours=hours)


DAY = timedelta(days=1)
WHOLE = [(start, start + 32 * DAY) for start in (datetime(2026, 3, 6, tzinfo=UTC), datetime(2026, 10, 3, tzinfo=UTC))]
"""The weeks in which some time zone changes its clocks."""


def around_changes(zone: str) -> list[tuple[datetime, datetime]]:
    """Return the days around each change of the clocks of ``zone``, and two days without a change."""

    def changes(day: datetime) -> bool:
        before, after = (time.astimezone(ZoneInfo(zone)).utcoffset() for time in (day, day + DAY))
        return before != after

    days = [first + number * DAY for first, _ in WHOLE for number in range(32)]
    return [(days[0], days[2]), *((day - DAY, day + 2 * DAY) for day in days if changes(day))]


SOME_OR_EACH = [
    *((cron, "some") for cron in ("@hourly", "*/20 * * * *", "0 */2 * * *")),
    *((cron, "each") for cron in ("30 2 * * *", "@daily", "0 1 * * 0")),
]


@pytest.mark.parametrize("zone", ["UTC", BERLIN, "America/St_Johns", "Australia/Lord_Howe", "America/Sao_Paulo"])
@pytest.mark.parametrize(("cron", "which"), SOME_OR_EACH)
def test_partitions_equal_those_of_the_scheduler_throughout_the_year(cron: str, which: str, zone: str) -> None:
    """The scheduler's class computes the ticks. Each partition must end where the next one begins."""
    scheduler = SchedulerCronPartitionTimetable(cron, timezone=zone)
    for start, end in WHOLE if which == "each" else around_changes(zone):
        infos = scheduler.iter_partition_dagrun_infos(earliest=start, latest=end)
        ticks = [info.partition_date for info in infos]
        assert len(ticks) > 1
        for timetable in (CronPartitionTimetable(cron, timezone=zone), scheduler):
            for tick, following in pairwise(ticks):
                assert interval(timetable=timetable, partition_date=tick) == Span(
                    tick.astimezone(UTC), following.astimezone(UTC)
                )


@pytest.mark.parametrize(
    "schedule",
    [
        "0 * * * *",
        "@daily",
        timedelta(hours=1),
        CronTriggerTimetable("@daily", timezone=BERLIN),
        MultipleCronTriggerTimetable("0 9 * * *", "0 17 * * *", timezone="UTC"),
    ],
)
def test_a_timetable_without_intervals_is_refused_when_the_dag_is_parsed(schedule: Any) -> None:
    with DAG("orders", schedule=schedule):
        with pytest.raises(ConfigurationError, match="interval=timedelta"):
            drain(mode="interval")
        drain(task_id="incremental")


@pytest.mark.parametrize(
    "schedule",
    [
        CronDataIntervalTimetable("@daily", timezone=BERLIN),
        CronTriggerTimetable("@daily", timezone=BERLIN, interval=timedelta(days=1)),
        CronPartitionTimetable("@daily", timezone=BERLIN),
        SchedulerCronPartitionTimetable("@daily", timezone=BERLIN),
        MultipleCronTriggerTimetable("0 9 * * *", "0 17 * * *", timezone="UTC", interval=timedelta(hours=8)),
        None,
    ],
)
def test_a_timetable_with_intervals_is_accepted(schedule: Any) -> None:
    with DAG("orders", schedule=schedule):
        drain(mode="interval")


def test_a_partition_without_a_cron_expression_is_refused() -> None:
    timetable = DAG("orders", schedule=[Asset("x")]).timetable
    with pytest.raises(ConfigurationError, match="CronPartitionTimetable"):
        interval(timetable=timetable, partition_date=TEN)


def test_backfills_are_recognized_by_their_run_type() -> None:
    from airflow.sdk.api.datamodels._generated import DagRunType

    assert is_backfill(context_for("drain", run_type=DagRunType.BACKFILL))
    assert not is_backfill(context_for("drain", run_type=DagRunType.SCHEDULED))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"until": "{{ data_interval_end }}"}, "until"),
        ({"max_events": 5}, "max_events"),
        ({"max_bytes": 5}, "max_bytes"),
        ({"max_seconds": 5}, "max_seconds"),
        ({"min_events": 5, "max_wait": 60}, "max_wait, min_events"),
        ({"advance": "manual"}, 'advance="manual"'),
    ],
)
def test_incremental_arguments_are_refused_in_interval_mode_when_the_dag_is_parsed(
    arguments: dict[str, Any], named: str
) -> None:
    drain(**arguments)
    with pytest.raises(ConfigurationError, match=f"Remove: .*{named}"):
        drain(mode="interval", **arguments)


@pytest.mark.parametrize("arguments", [{"mode": "hourly"}, {"on_expired": "ignore"}])
def test_unknown_mode_or_policy_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(arguments))):
        drain(**arguments)
    assert drain(mode="interval", on_expired="{{ params.on_expired }}").min_events == 0


@pytest.mark.parametrize("configured", ["True", "False"])
def test_interval_mode_works_with_either_default_of_deferrable(
    configured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", configured)
    for arguments in ({}, {"deferrable": True}):  # interval mode waits only for its confirmation
        operator = drain(mode="interval", **arguments)
        assert operator.conditions is None


@pytest.mark.parametrize(
    ("kind", "origin", "hours"),
    [
        ("live", "bus", ["08", "10", "11"]),  # the event before 09:00 is late: this run landed and returns it
        ("live", "landed", ["10", "11"]),
        ("backfill", "bus", ["10", "11"]),
    ],
)
def test_hours_of_an_interval_are_its_own_and_those_of_its_late_events(
    kind: Any, origin: str, hours: list[str]
) -> None:
    window = recorded_window("w", events=(-120, 150), contact=200, kind=kind)
    late = recorded_window("late", events=(-120, -70), contact=200, kind=kind)
    windows = [
        SimpleNamespace(manifest=SimpleNamespace(window=each, late_before=late_before), origin=origin)
        for each, late_before in ((window, None), (late, at(-60)))
    ]
    outcome: Any = SimpleNamespace(windows=windows, interval=span(30, 120))
    assert _event_hours(outcome) == [f"2026-11-20T{hour}:00:00" for hour in hours]
