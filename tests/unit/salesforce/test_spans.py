"""Arithmetic with time spans, compared with sets of minutes."""

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
def test_union_covers_all_spans_with_as_few_spans_as_possible(spans):
    assert minutes(union(spans)) == minutes(spans)
    assert_normal(union(spans))


@given(some_spans, some_spans)
def test_subtraction_removes_only_the_subtracted_spans(spans, taken):
    assert minutes(subtract(spans, taken)) == minutes(spans) - minutes(taken)
    assert_normal(subtract(spans, taken))


@given(some_spans, one_span)
def test_clipped_spans_lie_within_the_bounds(spans, bounds):
    assert minutes(clip(spans, bounds)) == minutes(spans) & minutes([bounds])
    assert_normal(clip(spans, bounds))


@given(some_spans, one_span)
def test_span_is_covered_if_all_its_minutes_are(spans, one):
    assert covers(spans, one) == (minutes([one]) <= minutes(spans))


def test_span_needs_two_known_times_in_order():
    assert span_between(at(0), at(1)) == span(0, 1)
    assert span_between(at(1), at(1)) is None
    assert span_between(at(2), at(1)) is None
    assert span_between(None, at(1)) is None
    assert span_between(at(1), None) is None


def test_local_times_in_the_repeated_hour_are_distinguished():
    berlin = ZoneInfo("Europe/Berlin")
    first = datetime(2026, 10, 25, 2, 30, tzinfo=berlin)
    again = first.replace(minute=10, fold=1)  # 40 minutes later, although the wall clock shows 20 minutes earlier
    result = span_between(first, again)
    assert result == Span(datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 25, 1, 10, tzinfo=UTC))


def test_window_has_a_span_only_if_both_its_times_are_known():
    assert span_of(recorded_window("w", (0, 5))) == span(0, 5)
    assert span_of(recorded_window("w", (None, 5))) is None
    assert span_of(recorded_window("w", (5, 5))) is None
