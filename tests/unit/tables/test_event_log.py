from __future__ import annotations

from datetime import UTC, datetime

import pytest

from airflow_provider_sfstream.tables.delta.landed_windows import LandedWindow
from airflow_provider_sfstream.tables.event_log.job import EventLogMetrics, EventLogOptions
from airflow_provider_sfstream.tables.spark_apps.event_log import parse_arguments

WINDOW = LandedWindow("w1", "00D", "/event/Order__e", (), {}, 0, None, None)


def test_arguments_become_options() -> None:
    given = "--manifest a.json --manifest b.json --output s3://lake/t --job a.b"
    times = ["--event-time-from", "2026-01-10T02:00:00+02:00", "--event-time-to", "2026-01-11T00:00:00Z"]
    options = parse_arguments([*given.split(), "--metrics-file", "m.json", *times])
    assert options == EventLogOptions(
        manifests=("a.json", "b.json"),
        output="s3://lake/t",
        job="a.b",
        event_time_from=datetime(2026, 1, 10, tzinfo=UTC),
        event_time_to=datetime(2026, 1, 11, tzinfo=UTC),
        metrics_file="m.json",
    )
    assert options.partition_of(WINDOW) == "w1.20260110T000000.000000Z-20260111T000000.000000Z"
    assert EventLogOptions(("a",), "b").partition_of(WINDOW) == "w1"


def test_the_part_with_late_events_has_a_partition_of_its_own() -> None:
    """Another run of the same interval, which does not read them, must not replace it."""
    bounds = {"event_time_from": datetime(2026, 1, 10, tzinfo=UTC), "event_time_to": datetime(2026, 1, 11, tzinfo=UTC)}
    of_the_run = EventLogOptions(("a",), "b", own_windows=("w1",), **bounds).partition_of(WINDOW)
    of_another = EventLogOptions(("a",), "b", own_windows=("w2",), **bounds).partition_of(WINDOW)
    assert of_the_run == f"{of_another}.own"
    assert EventLogOptions(("a",), "b", own_windows=("w1",)).partition_of(WINDOW) == "w1"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("--output t", "at least one --manifest"),
        ("--manifest m", "--output"),
        ("--manifest m --output t --event-time-from 2026-01-10T00:00:00", "no time zone"),
        ("--manifest m --output t --event-time-from 2026-01-10T00:00:00Z", "or neither"),
        (
            "--manifest m --output t --event-time-from 2026-01-10T00:00:00Z --event-time-to 2026-01-10T00:00:00Z",
            "a later --event-time-to",
        ),
        ("--manifest m --output t --event-time-from now", "--event-time-from"),
    ],
)
def test_arguments_that_cannot_be_are_refused(given: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(given.split())
    assert message in capsys.readouterr().err


def test_rows_that_do_not_add_up_are_an_error() -> None:
    EventLogMetrics(
        ["w"], rows_in=5, rows_written=2, duplicates=1, quarantined=1, outside_interval=1, tables={"T": 2}
    ).check()
    with pytest.raises(RuntimeError, match="do not add up"):
        EventLogMetrics(["w"], rows_in=5, rows_written=4, tables={"T": 4}).check()
    with pytest.raises(RuntimeError, match="do not add up"):
        EventLogMetrics(["w"], rows_in=5, rows_written=5, tables={"T": 4}).check()
