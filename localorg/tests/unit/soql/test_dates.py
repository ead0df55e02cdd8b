from __future__ import annotations

from datetime import date

import pytest

from sfstream_localorg.records.soql.dates import period

WEDNESDAY = date(2026, 1, 14)


@pytest.mark.parametrize(
    ("literal", "first", "end"),
    [
        ("TODAY", date(2026, 1, 14), date(2026, 1, 15)),
        ("yesterday", date(2026, 1, 13), date(2026, 1, 14)),
        ("TOMORROW", date(2026, 1, 15), date(2026, 1, 16)),
        ("THIS_WEEK", date(2026, 1, 11), date(2026, 1, 18)),
        ("LAST_WEEK", date(2026, 1, 4), date(2026, 1, 11)),
        ("NEXT_WEEK", date(2026, 1, 18), date(2026, 1, 25)),
        ("THIS_MONTH", date(2026, 1, 1), date(2026, 2, 1)),
        ("LAST_MONTH", date(2025, 12, 1), date(2026, 1, 1)),
        ("THIS_QUARTER", date(2026, 1, 1), date(2026, 4, 1)),
        ("LAST_QUARTER", date(2025, 10, 1), date(2026, 1, 1)),
        ("THIS_YEAR", date(2026, 1, 1), date(2027, 1, 1)),
        ("NEXT_YEAR", date(2027, 1, 1), date(2028, 1, 1)),
        ("LAST_N_DAYS:2", date(2026, 1, 12), date(2026, 1, 15)),
        ("LAST_90_DAYS", date(2025, 10, 16), date(2026, 1, 15)),
        ("NEXT_N_DAYS:2", date(2026, 1, 15), date(2026, 1, 17)),
        ("LAST_N_WEEKS:2", date(2025, 12, 28), date(2026, 1, 11)),
        ("NEXT_N_MONTHS:2", date(2026, 2, 1), date(2026, 4, 1)),
        ("N_DAYS_AGO:14", date(2025, 12, 31), date(2026, 1, 1)),
        ("N_QUARTERS_AGO:1", date(2025, 10, 1), date(2026, 1, 1)),
        ("LAST_N_YEARS:3", date(2023, 1, 1), date(2026, 1, 1)),
    ],
)
def test_date_literals_return_their_range(literal: str, first: date, end: date) -> None:
    assert period(literal, WEDNESDAY) == (first, end)


def test_this_week_starts_today_on_a_sunday() -> None:
    assert period("THIS_WEEK", date(2026, 1, 11)) == (date(2026, 1, 11), date(2026, 1, 18))


@pytest.mark.parametrize(
    "literal", ["SOMEDAY", "LAST_N_DAYS", "LAST_N_DAYS:", "THIS_DAY", "TODAY:1", "THIS_FISCAL_YEAR", "LAST_N_DAY:1"]
)
def test_unknown_date_literals_return_none(literal: str) -> None:
    assert period(literal, WEDNESDAY) is None


@pytest.mark.parametrize("literal", ["LAST_N_YEARS:9999", "NEXT_N_DAYS:99999999999999"])
def test_date_literal_outside_the_supported_dates_is_an_error(literal: str) -> None:
    with pytest.raises(ValueError):
        period(literal, WEDNESDAY)
