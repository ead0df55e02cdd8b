"""Which windows a query's filters leave out, by what their manifests say. Pure.

A window is left out only where no row of it can pass: Spark applies every filter again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from typing import Any

from airflow_provider_sfstream.tables.delta.landed_windows import LandedWindow

Dates = tuple[date, date] | None
"""The first and the last event date that rows of a window can have; ``None``: any."""
_NAMES = ("_topic", "topic", "_org_id", "org_id", "window_id")
_COVERS: Mapping[str, Callable[[date, date, date], bool]] = {
    "EqualTo": lambda first, last, value: first <= value <= last,
    "EqualNullSafe": lambda first, last, value: first <= value <= last,
    "GreaterThan": lambda first, last, value: last >= value,
    "GreaterThanOrEqual": lambda first, last, value: last >= value,
    "LessThan": lambda first, last, value: first <= value,
    "LessThanOrEqual": lambda first, last, value: first <= value,
}
"""Whether a row can pass, by the name of PySpark's filter. A day is compared whole, so that times need no other."""


def may_pass(filters: Iterable[Any], window: LandedWindow, dates: Dates) -> bool:
    """Tell whether a row of a window can pass all filters.

    :param filters: of ``pyspark.sql.datasource``, with ``attribute`` and ``value``.
    """
    return all(_may_pass(each, window, dates) for each in filters)


def _may_pass(each: Any, window: LandedWindow, dates: Dates) -> bool:
    path: tuple[str, ...] = getattr(each, "attribute", ())
    column, kind = path[0] if len(path) == 1 else "", type(each).__name__
    if column in _NAMES:
        own = getattr(window, column.removeprefix("_"))
        if kind in ("EqualTo", "EqualNullSafe"):
            return bool(each.value == own)
        return kind != "In" or own in each.value
    if dates is None or column not in ("event_date", "_event_time"):
        return True
    if kind == "In":
        return any(_covers("EqualTo", dates, value) for value in each.value)
    return _covers(kind, dates, getattr(each, "value", None))


def _covers(kind: str, dates: tuple[date, date], value: Any) -> bool:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return True
        value = value.astimezone(UTC).date()
    if kind not in _COVERS or not isinstance(value, date):
        return True
    first, last = dates
    return _COVERS[kind](first, last, value)
