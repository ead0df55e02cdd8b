"""Conditions that cannot be met are refused before anything is read."""

from __future__ import annotations

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.streams.watch.conditions import WakeUpConditions


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        *[("min_events", value) for value in (0, -1, 1.0, True, "5", None)],
        *[("max_wait", value) for value in (0, -1.0, float("inf"), float("nan"), True, "5")],
        *[("min_interval", value) for value in (-0.1, float("inf"), float("nan"), None, False)],
    ],
)
def test_an_unusable_condition_is_named(argument, value):
    with pytest.raises(ConfigurationError, match=f"{argument}={value!r}"):
        WakeUpConditions(**{argument: value})


def test_usable_conditions():
    assert WakeUpConditions() == WakeUpConditions(min_events=1, max_wait=None, min_interval=0)
    assert WakeUpConditions(min_events=10_000, max_wait=0.5, min_interval=60).max_wait == 0.5
