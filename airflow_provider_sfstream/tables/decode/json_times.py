"""Times as the Streaming API writes them, ISO 8601 text or milliseconds since the epoch, as Arrow arrays."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute

from airflow_provider_sfstream.tables.decode.arrow_columns import arrow_type, times_of_milliseconds

_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Microseconds since the epoch of the years 1 to 9999."""
_DAY = 86_400_000_000
_TIME_OF_DAY = re.compile(r"([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d{1,3}))?Z?", re.ASCII)
_DATE_LENGTH = len("2026-01-31")


def read_times(values: list[Any]) -> pa.Array:
    """Return times, exact to the microsecond.

    :param values: ISO 8601 text with a zone (``2016-09-16T19:45:27.454Z``, ``...+0000``), integers (milliseconds since
        the epoch), or ``None``.
    :raises ValueError: if one is none of these, or not between the years 1 and 9999.
    """
    kinds = set(map(type, values)) - {type(None)}
    if kinds <= {str}:
        return _times_of_texts(values)
    if kinds <= {int}:
        return times_of_milliseconds(pa.array(values, pa.int64()))
    if kinds <= {int, str}:
        parts = [[value if type(value) is kind else None for value in values] for kind in (str, int)]
        return pa.compute.coalesce(read_times(parts[0]), read_times(parts[1]))
    raise ValueError("a time is text or a whole number of milliseconds")


def read_dates(values: list[Any]) -> pa.Array:
    """Return dates.

    :param values: ISO 8601 dates, times as :func:`read_times` takes them, or ``None``. Time text must be midnight UTC.
    :raises ValueError: if one is none of these, or not between the years 1 and 9999.
    """
    plain = [value if type(value) is str and len(value) == _DATE_LENGTH else None for value in values]
    dates = pa.array(plain, pa.string()).cast(pa.date32())
    _check(dates.cast(pa.timestamp("us")))
    if dates.null_count == sum(value is None for value in values):
        return dates
    times = read_times([value if short is None else None for value, short in zip(values, plain, strict=True)])
    for value, time in zip(values, times.cast(pa.int64()).to_pylist(), strict=True):
        if time is not None and type(value) is str and time % _DAY:
            raise ValueError(f"{value!r} is a time, not a date")
    return pa.compute.coalesce(dates, times.cast(pa.date32()))


def milliseconds_of_day(text: str) -> int:
    """Return a time of day (``18:30:00.000Z``) as milliseconds since midnight, as Avro payloads have it.

    :raises ValueError: if it is none.
    """
    match = _TIME_OF_DAY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is neither a whole number nor a time of day")
    hours, minutes, seconds = map(int, match.group(1, 2, 3))
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + int((match.group(4) or "0").ljust(3, "0"))


def _times_of_texts(texts: list[str | None]) -> pa.Array:
    return _check(pa.array(texts, pa.string()).cast(arrow_type("timestamp")))


def _check(times: pa.Array) -> pa.Array:
    bounds = pa.compute.min_max(times.cast(pa.int64())).as_py()
    if bounds["min"] is not None and not _FIRST <= bounds["min"] <= bounds["max"] <= _LAST:
        raise ValueError("a time is not between the years 1 and 9999")
    return times
