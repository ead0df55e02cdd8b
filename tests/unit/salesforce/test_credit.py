"""Flow control: at most 100 events are outstanding, and never more than the limit are requested."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_sfstream.salesforce.events import MOST_OUTSTANDING, Credit


@given(limit=st.none() | st.integers(1, 1_000), arrivals=st.lists(st.integers(0, 100), max_size=60))
def test_outstanding_events_never_exceed_100_or_the_limit(limit: int | None, arrivals: list[int]) -> None:
    credit = Credit(limit)
    requested, arrived = credit.request(), 0
    for arrival in arrivals:
        count = min(arrival, requested - arrived)
        credit.received(count)
        arrived += count
        requested += credit.request()
        assert credit.outstanding == requested - arrived <= MOST_OUTSTANDING
        assert limit is None or requested <= limit
        if limit is None:
            assert credit.outstanding > MOST_OUTSTANDING // 2
        assert credit.exhausted == (limit is not None and arrived == limit)


def test_50_events_are_requested_when_50_have_arrived() -> None:
    credit = Credit()
    assert credit.request() == 100
    credit.received(49)
    assert credit.request() == 0
    credit.received(1)
    assert credit.request() == 50


def test_last_request_is_the_rest_of_the_limit() -> None:
    credit = Credit(130)
    assert credit.request() == 100
    credit.received(100)
    assert credit.request() == 30
    assert not credit.exhausted
    credit.received(30)
    assert credit.request() == 0
    assert credit.exhausted


def test_events_that_do_not_count_are_requested_again() -> None:
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
def test_no_event_is_requested_after_a_stop(limit: int | None) -> None:
    credit = Credit(limit)
    assert credit.request() == 100
    credit.stop()
    credit.received(100)
    assert credit.request() == 0
    assert credit.exhausted


def test_more_events_than_requested_are_accepted() -> None:
    credit = Credit(10)
    credit.request()
    credit.received(12)
    assert credit.outstanding == 0
    assert credit.exhausted


@pytest.mark.parametrize("limit", [0, -1])
def test_limit_below_one_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Credit(limit)
