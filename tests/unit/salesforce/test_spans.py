"""Arithmetic with spans of time, against sets of minutes."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_sfstream.salesforce.streams import Span, clip, covers, span_between, span_of, subtract, union
from tests.support.recorded_windows import HOUR, MINUTE, at, recorded_window, span

one_span = st.builds(lambda start, length: span(start, start + length), st.integers(0, 40), st.integers(1, 12))
some_spans = st.lists(one_span, max_size=6)


def minutes(spans: list[Span]) -> set[int]:
    return {minute for each in spans for minute in range((each.start - HOUR) // MINUTE, (each.end - HOUR) // MINUTE)}


def assert_normal(spans: list[Span]) -> None:
    assert all(earlier.end < later.start for earlier, later in pairwise(spans))


@given(some_spans)
def test_a_union_has_what_any_has_in_as_few_spans_as_can_be(spans):
    assert minutes(union(spans)) == minutes(spans)
    assert_normal(union(spans))


@given(some_spans, some_spans)
def test_what_is_subtracted_is_gone_and_nothing_else(spans, taken):
    assert minutes(subtract(spans, taken)) == minutes(spans) - minutes(taken)
    assert_normal(subtract(spans, taken))


@given(some_spans, one_span)
def test_what_is_clipped_lies_within(spans, bounds):
    assert minutes(clip(spans, bounds)) == minutes(spans) & minutes([bounds])
    assert_normal(clip(spans, bounds))


@given(some_spans, one_span)
def test_a_span_is_covered_if_all_of_it_is(spans, one):
    assert covers(spans, one) == (minutes([one]) <= minutes(spans))


def test_a_span_is_between_two_known_times_that_are_apart():
    assert span_between(at(0), at(1)) == span(0, 1)
    assert span_between(at(1), at(1)) is None
    assert span_between(at(2), at(1)) is None
    assert span_between(None, at(1)) is None
    assert span_between(at(1), None) is None


def test_local_times_are_told_apart_in_the_hour_that_comes_twice():
    berlin = ZoneInfo("Europe/Berlin")
    first = datetime(2026, 10, 25, 2, 30, tzinfo=berlin)
    again = first.replace(minute=10, fold=1)  # forty minutes later, though the wall clock says twenty earlier
    result = span_between(first, again)
    assert result == Span(datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 25, 1, 10, tzinfo=UTC))


def test_a_window_answers_for_a_span_only_if_both_its_ends_are_known():
    assert span_of(recorded_window("w", (0, 5))) == span(0, 5)
    assert span_of(recorded_window("w", (None, 5))) is None
    assert span_of(recorded_window("w", (5, 5))) is None
