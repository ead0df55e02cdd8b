"""Date literals, for example ``TODAY``, ``LAST_N_DAYS:30`` and ``THIS_QUARTER``. Pure.

Days are in UTC, and weeks begin on Sunday as in the user's locale ``en_US``. Fiscal periods, which depend on settings
of the org, are not modelled.
"""

from __future__ import annotations

import re
from datetime import date, timedelta

_LITERAL = re.compile(
    r"(?P<one>THIS|LAST|NEXT)_(?P<unit>WEEK|MONTH|QUARTER|YEAR)"
    r"|(?P<several>LAST|NEXT)_N_(?P<units>DAY|WEEK|MONTH|QUARTER|YEAR)S:(?P<count>\d+)"
    r"|N_(?P<past>DAY|WEEK|MONTH|QUARTER|YEAR)S_AGO:(?P<ago>\d+)"
)
_DAYS = {"YESTERDAY": -1, "TODAY": 0, "TOMORROW": 1}
_SHORT = {"LAST_90_DAYS": "LAST_N_DAYS:90", "NEXT_90_DAYS": "NEXT_N_DAYS:90"}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def period(literal: str, today: date) -> tuple[date, date] | None:
    """Return the first day of a date literal's range and the day after its last, ``None`` for an unknown literal.

    :raises ValueError: if the range exceeds the supported dates.
    """
    bounds = _bounds(_SHORT.get(literal.upper(), literal.upper()))
    if bounds is None:
        return None
    unit, first, end = bounds
    try:
        return _start(unit, today, first), _start(unit, today, end)
    except OverflowError as error:
        raise ValueError(str(error)) from None


def _bounds(literal: str) -> tuple[str, int, int] | None:
    """Return the unit of a literal, and its bounds as offsets from the current unit."""
    if literal in _DAYS:
        return "DAY", _DAYS[literal], _DAYS[literal] + 1
    match = _LITERAL.fullmatch(literal)
    if match is None:
        return None
    if match["one"]:
        first = {"LAST": -1, "THIS": 0, "NEXT": 1}[match["one"]]
        return match["unit"], first, first + 1
    if match["past"]:
        return match["past"], -int(match["ago"]), 1 - int(match["ago"])
    unit, count = match["units"], int(match["count"])
    if match["several"] == "NEXT":
        return unit, 1, count + 1
    return unit, -count, 1 if unit == "DAY" else 0  # LAST_N_DAYS includes today; LAST_N_WEEKS excludes this week


def _start(unit: str, today: date, units: int) -> date:
    """Return the first day of the period at an offset of ``units`` from the current period."""
    if unit == "DAY":
        return today + timedelta(days=units)
    if unit == "WEEK":
        return today - timedelta(days=today.isoweekday() % 7) + timedelta(weeks=units)
    size = _MONTHS[unit]
    month = (today.year * 12 + today.month - 1) // size * size + units * size
    return date(month // 12, month % 12 + 1, 1)
