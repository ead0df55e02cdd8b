"""Preflight checks of the clock, the API and the allocations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_sfstream.actions.preflight import api_advice, clock_difference, remaining_allocations
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.hooks.salesforce_allocations import API_REQUESTS, DELIVERED_EVENTS, Allocation
from airflow_provider_sfstream.salesforce.topics import Topic

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def difference(asked: int, answered: int) -> str:
    """Return the clock check's text. Arguments: our clock at request and response, in seconds after the server's."""
    return clock_difference(NOON, NOON + timedelta(seconds=asked), NOON + timedelta(seconds=answered))


@pytest.mark.parametrize(
    ("asked", "answered", "words"),
    [(0, 1, "0 s behind"), (61, 62, "60 s ahead of"), (-62, -60, "60 s behind"), (-90, 120, "0 s behind")],
    ids=["none", "ahead", "behind", "a slow network shows none"],
)
def test_small_clock_difference_is_reported(asked: int, answered: int, words: str) -> None:
    assert words in difference(asked, answered)


@pytest.mark.parametrize(("asked", "answered", "words"), [(62, 300, "61 s ahead of"), (-4000, -3600, "3600 s behind")])
def test_wrong_clock_is_refused(asked: int, answered: int, words: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{words} Salesforce's. Synchronise it with NTP"):
        difference(asked, answered)


def allocations(**remaining: int) -> dict[str, Allocation]:
    return {name: Allocation(name, 1000, left) for name, left in remaining.items()}


@pytest.mark.parametrize(
    ("topic", "api", "advice"),
    [
        ("/event/Order__e", "streaming", "carries this topic too: prefer it"),
        ("/data/AccountChangeEvent", "streaming", "carries this topic too: prefer it"),
        ("/topic/Orders?Name='a'", None, "confirms neither the end of a stream nor an interval"),
        ("/u/Notes", None, "confirms neither the end of a stream nor an interval"),
    ],
)
def test_limits_of_the_streaming_api_are_named(topic: str, api: str | None, advice: str) -> None:
    assert advice in api_advice(Topic.parse(topic, api))
    assert ("prefer it" in api_advice(Topic.parse(topic, api))) == (api == "streaming")


def test_the_pubsub_api_needs_no_advice() -> None:
    assert api_advice(Topic.parse("/event/Order__e")) == ""


ORDERS, PUSH_TOPIC, PUSH_TOPIC_EVENTS = "/event/Order__e", "/topic/Orders", "DailyDurableStreamingApiEvents"


def test_remaining_allocations_are_reported() -> None:
    org = allocations(**{DELIVERED_EVENTS: 1, PUSH_TOPIC_EVENTS: 2, API_REQUESTS: 999}, HourlyTimeBasedWorkflow=0)
    reported = remaining_allocations(org, [Topic.parse(name) for name in (ORDERS, "/data/ChangeEvents", PUSH_TOPIC)])
    assert reported == (
        "DailyDeliveredPlatformEvents: 1 of 1,000 remain; DailyDurableStreamingApiEvents: 2 of 1,000 remain; "
        "DailyApiRequests: 999 of 1,000 remain"
    )


@pytest.mark.parametrize(
    ("topic", "reported", "words"),
    [
        (ORDERS, {DELIVERED_EVENTS: 0, API_REQUESTS: 5}, "0 of 1,000 remain"),
        (ORDERS, {DELIVERED_EVENTS: 5, API_REQUESTS: -2}, "-2 of 1,000 remain"),
        (ORDERS, {API_REQUESTS: 5}, f"Salesforce does not report {DELIVERED_EVENTS}"),
        (PUSH_TOPIC, {PUSH_TOPIC_EVENTS: 0, DELIVERED_EVENTS: 5, API_REQUESTS: 5}, f"{PUSH_TOPIC_EVENTS}: 0 of 1,000"),
        (PUSH_TOPIC, {DELIVERED_EVENTS: 5, API_REQUESTS: 5}, f"Salesforce does not report {PUSH_TOPIC_EVENTS}"),
    ],
)
def test_exhausted_or_missing_allocation_is_refused(topic: str, reported: dict[str, int], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        remaining_allocations(allocations(**reported), [Topic.parse(topic)])
