"""Flow control: full pipe, never over 100, never over the limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_sfstream.salesforce.credit import MOST_OUTSTANDING, Credit


@given(limit=st.none() | st.integers(1, 1_000), arrivals=st.lists(st.integers(0, 100), max_size=60))
def test_neither_100_outstanding_nor_the_limit_is_ever_passed(limit: int | None, arrivals: list[int]) -> None:
    credit = Credit(limit)
    asked, came = credit.request(), 0
    for arrival in arrivals:
        count = min(arrival, asked - came)
        credit.received(count)
        came += count
        asked += credit.request()
        assert credit.outstanding == asked - came <= MOST_OUTSTANDING
        assert limit is None or asked <= limit
        if limit is None:
            assert credit.outstanding > MOST_OUTSTANDING // 2
        assert credit.exhausted == (limit is not None and came == limit)


def test_half_a_pipe_is_asked_for_as_soon_as_half_has_come() -> None:
    credit = Credit()
    assert credit.request() == 100
    credit.received(49)
    assert credit.request() == 0
    credit.received(1)
    assert credit.request() == 50


def test_the_last_request_is_what_the_limit_leaves() -> None:
    credit = Credit(130)
    assert credit.request() == 100
    credit.received(100)
    assert credit.request() == 30
    assert not credit.exhausted
    credit.received(30)
    assert credit.request() == 0
    assert credit.exhausted


def test_events_that_do_not_count_are_asked_for_again() -> None:
    credit = Credit(10)
    credit.request()
    credit.received(10)
    assert credit.exhausted
    credit.allow(4)
    assert not credit.exhausted
    assert credit.request() == 4
    without_limit = Credit()
    without_limit.allow(4)
    assert without_limit.request() == 100


@pytest.mark.parametrize("limit", [None, 500])
def test_nothing_is_asked_for_after_a_stop(limit: int | None) -> None:
    credit = Credit(limit)
    assert credit.request() == 100
    credit.stop()
    credit.received(100)
    assert credit.request() == 0
    assert credit.exhausted


def test_a_server_that_sends_more_than_was_asked_for_does_no_harm() -> None:
    credit = Credit(10)
    credit.request()
    credit.received(12)
    assert credit.outstanding == 0
    assert credit.exhausted


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_nothing_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Credit(limit)
