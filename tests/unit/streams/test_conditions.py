"""Conditions of wake-ups: validation, and the time at which a wake-up is due."""

from __future__ import annotations

from math import inf

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.streams.watch.conditions import PendingEvents, WakeUp, WakeUpConditions, WakeUpReason


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        *[("min_events", value) for value in (0, -1, 1.0, True, "5", None)],
        *[("max_wait", value) for value in (0, -1.0, float("inf"), float("nan"), True, "5")],
        *[("min_interval", value) for value in (-0.1, float("inf"), float("nan"), None, False)],
    ],
)
def test_invalid_condition_is_refused_by_name(argument, value):
    with pytest.raises(ConfigurationError, match=f"{argument}={value!r}"):
        WakeUpConditions(**{argument: value})


def test_valid_conditions_are_accepted():
    assert WakeUpConditions() == WakeUpConditions(min_events=1, max_wait=None, min_interval=0)
    assert WakeUpConditions(min_events=10_000, max_wait=0.5, min_interval=60).max_wait == 0.5


def test_wake_up_without_events_is_never_due():
    pending = PendingEvents(WakeUpConditions(max_wait=1))
    assert (bool(pending), pending.due, pending.wait_for_age) == (False, inf, False)


def test_the_first_event_is_due_at_once_and_the_next_when_the_interval_has_passed():
    pending = PendingEvents(WakeUpConditions(min_interval=5))
    pending.add(b"1", 3, b"3")
    assert pending.due == -inf
    assert pending.take_wake_up(WakeUpReason.EVENTS, 100) == WakeUp(WakeUpReason.EVENTS, b"1", 3, b"3")
    assert pending.due == inf
    pending.add(b"4", 1, b"4")
    pending.add(b"5", 2, b"6")
    assert pending.due == 105
    assert pending.take_wake_up(WakeUpReason.EVENTS, 105) == WakeUp(WakeUpReason.EVENTS, b"4", 3, b"6")


def test_too_few_events_are_due_when_the_oldest_is_old_enough():
    pending = PendingEvents(WakeUpConditions(min_events=10, max_wait=60))
    pending.add(b"1", 2, b"2")
    assert (pending.wait_for_age, pending.due) == (True, inf)
    pending.oldest_is(15, now=100)
    assert (pending.wait_for_age, pending.due) == (False, 145)
    pending.add(b"3", 7, b"9")
    assert pending.due == 145
    pending.add(b"10", 1, b"10")
    assert pending.due == -inf
    pending.take_wake_up(WakeUpReason.EVENTS, 110)
    pending.add(b"11", 1, b"11")
    assert (pending.wait_for_age, pending.due) == (True, inf)


@pytest.mark.parametrize(("age", "due"), [(61, 100), (86_400, 100), (0, 160), (-1, 160), (-86_400, 160)])
def test_event_waits_at_most_max_wait_for_any_event_time(age, due):
    pending = PendingEvents(WakeUpConditions(min_events=2, max_wait=60))
    pending.add(b"1", 1, b"1")
    pending.oldest_is(age, now=100)
    assert pending.due == due


def test_min_interval_applies_to_old_events():
    pending = PendingEvents(WakeUpConditions(min_events=2, max_wait=1, min_interval=30))
    pending.take_wake_up(WakeUpReason.STARTED, 100)
    pending.add(b"1", 1, b"1")
    pending.oldest_is(0, now=101)
    assert pending.due == 130


def test_event_age_is_not_needed_without_max_wait_or_with_enough_events():
    few = PendingEvents(WakeUpConditions(min_events=2))
    few.add(b"1", 1, b"1")
    enough = PendingEvents(WakeUpConditions(min_events=2, max_wait=1))
    enough.add(b"1", 2, b"2")
    assert (few.wait_for_age, enough.wait_for_age) == (False, False)


def test_confirmed_position_is_reported_with_the_events_before_it():
    pending = PendingEvents(WakeUpConditions(min_events=2))
    pending.add(b"1", 1, b"1")
    pending.confirm(b"9")
    assert pending.take_wake_up(WakeUpReason.EVENTS, 0) == WakeUp(WakeUpReason.EVENTS, b"1", 1, b"9")
    pending.forget_position()
    assert pending.take_wake_up(WakeUpReason.REPLAY_LOST, 0) == WakeUp(WakeUpReason.REPLAY_LOST, None, 0, None)
