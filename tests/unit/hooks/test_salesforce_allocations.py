"""Allocations from the ``/limits`` response, and the reserve of an allocation."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.hooks.salesforce_allocations import (
    Allocation,
    Reserve,
    allocations_from,
    delivery_allocation,
)

ALLOCATION = Allocation("DailyApiRequests", 15_000, 4_500)


@pytest.mark.parametrize(
    ("value", "amount"),
    [(0, 0), (1, 1), (20_000, 20_000), (0.0, 0), (0.2, 3_000), (1.0, 15_000), (0.00001, 1)],
)
def test_integer_reserve_is_a_number_and_float_reserve_a_share(value: float, amount: int) -> None:
    assert Reserve.from_value(value, "reserve").amount(ALLOCATION) == amount


@pytest.mark.parametrize("value", [-1, -0.1, 1.5, 5000.0, float("nan"), True, "0.2", None])
def test_invalid_reserve_is_refused_by_name(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"allocation_reserve=.*whole number.*from 0\.0 to 1\.0"):
        Reserve.from_value(value, "allocation_reserve")


def test_allocations_are_read_from_the_limits_response() -> None:
    entry = {"Max": 15_000, "Remaining": 4_500, "Ant Migration Tool": {"Max": 0, "Remaining": 0}}
    document = {"DailyApiRequests": entry, "MassEmail": {"Max": 10, "Remaining": -2}}
    assert allocations_from(document) == {"DailyApiRequests": ALLOCATION, "MassEmail": Allocation("MassEmail", 10, -2)}
    assert str(ALLOCATION) == "DailyApiRequests: 4,500 of 15,000 remain"


@pytest.mark.parametrize(
    "entry",
    [None, 7, [], {}, {"Max": 5}, {"Remaining": 5}, {"Max": "5", "Remaining": 5}, {"Max": 5, "Remaining": None}],
)
def test_undocumented_entries_are_ignored(entry: Any) -> None:
    assert allocations_from({"DailyApiRequests": entry}) == {}


def test_allocation_with_a_maximum_of_zero_is_ignored() -> None:
    assert allocations_from({"MonthlyPlatformEvents": {"Max": 0, "Remaining": 0}}) == {}


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("/event/Order__e", "DailyDeliveredPlatformEvents"),
        ("/data/ChangeEvents", "DailyDeliveredPlatformEvents"),
        ("/topic/Orders", "DailyDurableStreamingApiEvents"),
        ("/u/Orders", "DailyDurableGenericStreamingApiEvents"),
    ],
)
def test_delivery_allocation_of_a_topic(topic: str, name: str) -> None:
    assert delivery_allocation(topic) == name
