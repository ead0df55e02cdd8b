"""What is said of a clock and of allocations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.protocol.allocations import API_REQUESTS, DELIVERED_EVENTS, Allocation
from airflow_provider_sfstream.tasks.preflight import clock_difference, remaining_allocations

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(("seconds", "words"), [(0, "0 s behind"), (60, "60 s ahead of"), (-60, "60 s behind")])
def test_a_small_difference_is_told(seconds: int, words: str) -> None:
    assert words in clock_difference(NOON, NOON + timedelta(seconds=seconds))


@pytest.mark.parametrize(("seconds", "words"), [(61, "61 s ahead of"), (-3600, "3600 s behind")])
def test_a_clock_that_is_wrong_is_refused(seconds: int, words: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{words} Salesforce's. Set it right"):
        clock_difference(NOON, NOON + timedelta(seconds=seconds))


def allocations(**remaining: int) -> dict[str, Allocation]:
    return {name: Allocation(name, 1000, left) for name, left in remaining.items()}


def test_what_remains_is_told() -> None:
    told = remaining_allocations(allocations(**{DELIVERED_EVENTS: 1, API_REQUESTS: 999}, HourlyTimeBasedWorkflow=0))
    assert told == "DailyDeliveredPlatformEvents: 1 of 1,000 remain; DailyApiRequests: 999 of 1,000 remain"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({DELIVERED_EVENTS: 0, API_REQUESTS: 5}, "0 of 1,000 remain"),
        ({DELIVERED_EVENTS: 5, API_REQUESTS: -2}, "-2 of 1,000 remain"),
        ({API_REQUESTS: 5}, f"Salesforce tells nothing of {DELIVERED_EVENTS}"),
    ],
)
def test_none_left_and_none_told_are_no_success(told: dict[str, int], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        remaining_allocations(allocations(**told))
