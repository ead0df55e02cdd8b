"""Salesforce's time, advanced with a monotonic clock: the true time is always between the two bounds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_sfstream.salesforce.server_time import ServerTime

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_bounds_differ_by_the_duration_of_the_request_and_one_second() -> None:
    time = ServerTime(NOON, sent=100.0, received=102.5)
    assert time.earliest(102.5) == NOON, "the response may have arrived without delay"
    assert time.latest(100.0) == NOON + timedelta(seconds=1), "the header is rounded down"
    for reading in (102.5, 3_600.0):
        assert time.latest(reading) - time.earliest(reading) == timedelta(seconds=2.5 + 1)


def test_clock_reading_before_the_response_has_bounds() -> None:
    time = ServerTime(NOON, sent=100.0, received=102.5)
    assert time.earliest(101.0) == NOON - timedelta(seconds=1.5)


def test_a_header_in_another_time_zone_is_the_same_moment() -> None:
    local = NOON.astimezone(timezone(timedelta(hours=-8)))
    assert ServerTime(local, 0.0, 0.0).earliest(60.0) == NOON + timedelta(minutes=1)


_seconds = st.floats(0, 100_000, allow_nan=False)


@given(offset=st.floats(-1e8, 1e8), begin=_seconds, there=_seconds, back=_seconds, later=_seconds)
def test_true_time_is_between_the_bounds_for_any_network_delay(
    offset: float, begin: float, there: float, back: float, later: float
) -> None:
    """Salesforce's clock shows the monotonic clock plus ``offset``; the header contains whole seconds only."""

    def true(reading: float) -> datetime:
        return NOON + timedelta(seconds=reading + offset)

    date = true(begin + there).replace(microsecond=0)
    measured = ServerTime(date, sent=begin, received=begin + there + back)
    rounding = timedelta(milliseconds=1)  # of floating-point numbers
    for reading in (begin, begin + there + back, begin + there + back + later):
        assert measured.earliest(reading) - rounding <= true(reading) <= measured.latest(reading) + rounding
