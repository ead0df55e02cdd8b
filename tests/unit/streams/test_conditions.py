"""Conditions that cannot be met are refused before anything is read."""

from __future__ import annotations

from math import inf

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.streams.watch.conditions import Untold, WakeUp, WakeUpConditions, WakeUpReason


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


def test_nothing_is_never_due():
    untold = Untold(WakeUpConditions(max_wait=1))
    assert (bool(untold), untold.due, untold.wait_for_age) == (False, inf, False)


def test_the_first_event_is_due_at_once_and_the_next_when_the_interval_has_passed():
    untold = Untold(WakeUpConditions(min_interval=5))
    untold.add(b"1", 3, b"3")
    assert untold.due == -inf
    assert untold.tell(WakeUpReason.EVENTS, 100) == WakeUp(WakeUpReason.EVENTS, b"1", 3, b"3")
    assert untold.due == inf
    untold.add(b"4", 1, b"4")
    untold.add(b"5", 2, b"6")
    assert untold.due == 105
    assert untold.tell(WakeUpReason.EVENTS, 105) == WakeUp(WakeUpReason.EVENTS, b"4", 3, b"6")


def test_too_few_events_are_due_when_the_oldest_is_old_enough():
    untold = Untold(WakeUpConditions(min_events=10, max_wait=60))
    untold.add(b"1", 2, b"2")
    assert (untold.wait_for_age, untold.due) == (True, inf)
    untold.oldest_is(15, now=100)
    assert (untold.wait_for_age, untold.due) == (False, 145)
    untold.add(b"3", 7, b"9")
    assert untold.due == 145
    untold.add(b"10", 1, b"10")
    assert untold.due == -inf
    untold.tell(WakeUpReason.EVENTS, 110)
    untold.add(b"11", 1, b"11")
    assert (untold.wait_for_age, untold.due) == (True, inf)


@pytest.mark.parametrize(("age", "due"), [(61, 100), (86_400, 100), (0, 160), (-1, 160), (-86_400, 160)])
def test_an_event_waits_no_longer_than_max_wait_whatever_its_clock_says(age, due):
    untold = Untold(WakeUpConditions(min_events=2, max_wait=60))
    untold.add(b"1", 1, b"1")
    untold.oldest_is(age, now=100)
    assert untold.due == due


def test_the_interval_holds_for_old_events_too():
    untold = Untold(WakeUpConditions(min_events=2, max_wait=1, min_interval=30))
    untold.tell(WakeUpReason.STARTED, 100)
    untold.add(b"1", 1, b"1")
    untold.oldest_is(0, now=101)
    assert untold.due == 130


def test_age_does_not_matter_without_max_wait_or_when_there_are_enough():
    few = Untold(WakeUpConditions(min_events=2))
    few.add(b"1", 1, b"1")
    enough = Untold(WakeUpConditions(min_events=2, max_wait=1))
    enough.add(b"1", 2, b"2")
    assert (few.wait_for_age, enough.wait_for_age) == (False, False)


def test_a_confirmed_position_is_told_with_the_events_before_it():
    untold = Untold(WakeUpConditions(min_events=2))
    untold.add(b"1", 1, b"1")
    untold.confirm(b"9")
    assert untold.tell(WakeUpReason.EVENTS, 0) == WakeUp(WakeUpReason.EVENTS, b"1", 1, b"9")
    untold.forget_position()
    assert untold.tell(WakeUpReason.REPLAY_LOST, 0) == WakeUp(WakeUpReason.REPLAY_LOST, None, 0, None)
