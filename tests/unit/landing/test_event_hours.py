"""Hours of a window's events, as partition keys for Airflow."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta, timezone

import pytest

from airflow_provider_sfstream.landing.window_bounds import event_hours
from tests.support.recorded_windows import HOUR, recorded_window

DAY = 24 * 60


@pytest.mark.parametrize(
    ("events", "contact", "counts", "hours"),
    [
        ((0, 59), 70, 0, ["10"]),
        ((59, 60), 70, 0, ["10", "11"]),
        ((-1, 200), 200, 60, ["09", "10", "11", "12", "13"]),
        ((60, 3 * DAY), 70, 0, ["11"]),  # dated in the future
        ((-8 * DAY, 65), 70, 0, ["10", "11"]),  # dated before the retention
        ((-8 * DAY, -8 * DAY), 70, 0, ["10"]),
        (None, 70, 0, ["10", "11"]),  # no known times
    ],
)
def test_hours_reach_from_the_first_to_the_last_event_without_wrong_dates(
    events: tuple[int, int] | None, contact: int, counts: int, hours: list[str]
) -> None:
    window = recorded_window("w", events=events, event_count=2, contact=contact, counts=counts)
    assert event_hours(window) == [f"2026-11-20T{hour}:00:00" for hour in hours]


def test_hours_are_those_of_utc() -> None:
    zone = timezone(timedelta(hours=5, minutes=30))
    window = replace(recorded_window("w", events=(0, 0), contact=1), first_event_time=HOUR.astimezone(zone))
    assert event_hours(window) == ["2026-11-20T10:00:00"]


def test_unbounded_window_has_the_hours_of_a_week() -> None:
    """The first window of a stream, with an event dated in 1970, or without a known time."""
    for events in (None, (-56 * 365 * DAY, 0)):
        hours = event_hours(recorded_window("w", events=events, event_count=2, contact=0))
        assert (hours[0], hours[-1], len(hours)) == ("2026-11-13T10:00:00", "2026-11-20T10:00:00", 7 * 24 + 1)


def test_hours_without_a_contact_end_at_the_last_event() -> None:
    assert event_hours(recorded_window("w", events=(0, 70))) == ["2026-11-20T10:00:00", "2026-11-20T11:00:00"]
    assert event_hours(recorded_window("w", event_count=2)) == []


def test_empty_window_has_no_hours() -> None:
    assert event_hours(recorded_window("w", covered=(0, 90))) == []
