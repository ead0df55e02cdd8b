"""Lossless conversion of JSON text to Python values, and back.

Input that JSON readers commonly accept is rejected here if it would silently change a value: a duplicate key of an
object (the first value would be lost), ``NaN`` and ``Infinity``, half of a surrogate pair, text that is not UTF-8.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute

from airflow_provider_sfstream.tables.decode.arrow_columns import arrow_type, times_of_milliseconds

_ALWAYS_EXACT = 16
"""Maximum characters of a number with a point and no exponent that is always exact: at most 15 digits."""
_MOST_DIGITS = 17
"""Significant digits that identify a double."""


def parse(payload: bytes) -> Any:
    """Return the value of a JSON text in UTF-8.

    A number with a point or an exponent is a ``float`` if its digits can be recovered from that, otherwise a
    ``Decimal``; any other number is an ``int``.

    :raises ValueError: if it is not JSON text, or if a value would change.
    """
    value = _DECODER.decode(payload.decode())
    if b"\\u" in payload:  # half of a surrogate pair is not a character, and cannot be encoded
        json.dumps(value, ensure_ascii=False, default=str).encode()
    return value


def parse_object(payload: bytes) -> dict[str, Any]:
    """Return the JSON object of a text, as :func:`parse` does.

    :raises ValueError: if the value is not an object.
    """
    value = parse(payload)
    if type(value) is not dict:
        raise ValueError(f"expected a JSON object, got {kind_name(value)}")
    return value


def json_text(value: Any) -> str:
    """Return a parsed value as JSON text: numbers with all their digits, keys in their order."""
    try:
        return _ENCODE(value)
    except TypeError:  # the value contains a Decimal, which the library cannot write as a number
        return _exact_text(value)


def as_double(number: int) -> float:
    """Return an integer as a double.

    :raises ValueError: if the double would be a different number.
    """
    try:
        double = float(number)
    except OverflowError:
        double = math.inf
    if double != number:
        raise ValueError(f"{number} would lose digits as a double")
    return double


def digits_survive(text: str, number: float) -> bool:
    """Return true if the decimal number in ``text`` can be recovered from ``number``, its nearest double: as the
    double's shortest text, as its value to that many digits, or as its exact value."""
    if not math.isfinite(number):
        return False
    exact = Decimal(text)
    if Decimal(repr(number)) == exact:
        return True
    digits = len(exact.as_tuple().digits)
    return Decimal(number) == exact or (digits <= _MOST_DIGITS and Decimal(f"{number:.{digits - 1}e}") == exact)


def kind_name(value: Any) -> str:
    """Return the JSON name of a parsed value's kind."""
    if isinstance(value, bool):
        return "a boolean"
    names = {dict: "an object", list: "an array", str: "text", type(None): "null", Decimal: "a number of many digits"}
    return names.get(type(value), "a number")


def _number(text: str) -> float | Decimal:
    number = float(text)
    if len(text) <= _ALWAYS_EXACT and "e" not in text and "E" not in text:
        return number
    return number if digits_survive(text, number) else Decimal(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise ValueError(f"the object has the key {max(counts, key=counts.__getitem__)!r} more than once")
    return document


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _exact_text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_ENCODE(key)}: {_exact_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_exact_text, value)) + "]"
    return str(value) if isinstance(value, Decimal) else _ENCODE(value)


_ENCODE = json.JSONEncoder(ensure_ascii=False).encode
_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_number, parse_constant=_refuse)


_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Microseconds since the epoch of the years 1 to 9999."""
_DAY = 86_400_000_000
_TIME_OF_DAY = re.compile(r"([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d{1,3}))?Z?", re.ASCII)
_DATE_LENGTH = len("2026-01-31")


def read_times(values: list[Any]) -> pa.Array:
    """Return times, exact to the microsecond.

    :param values: ISO 8601 text with a zone (``2016-09-16T19:45:27.454Z``, ``...+0000``), integers (milliseconds since
        the epoch), or ``None``.
    :raises ValueError: if a value is none of these, or not between the years 1 and 9999.
    """
    kinds = set(map(type, values)) - {type(None)}
    if kinds <= {str}:
        return _check(pa.array(values, pa.string()).cast(arrow_type("timestamp")))
    if kinds <= {int}:
        return times_of_milliseconds(pa.array(values, pa.int64()))
    if kinds <= {int, str}:
        parts = [[value if type(value) is kind else None for value in values] for kind in (str, int)]
        return pa.compute.coalesce(read_times(parts[0]), read_times(parts[1]))
    raise ValueError("a time must be text or a whole number of milliseconds")


def read_dates(values: list[Any]) -> pa.Array:
    """Return dates.

    :param values: ISO 8601 dates, times that :func:`read_times` accepts, or ``None``. Time text must be midnight UTC.
    :raises ValueError: if a value is none of these, or not between the years 1 and 9999.
    """
    plain = [value if type(value) is str and len(value) == _DATE_LENGTH else None for value in values]
    dates = pa.array(plain, pa.string()).cast(pa.date32())
    _check(dates.cast(pa.timestamp("us")))
    if dates.null_count == sum(value is None for value in values):
        return dates
    times = read_times([value if date is None else None for value, date in zip(values, plain, strict=True)])
    for value, time in zip(values, times.cast(pa.int64()).to_pylist(), strict=True):
        if time is not None and type(value) is str and time % _DAY:
            raise ValueError(f"{value!r} is a time, not a date")
    return pa.compute.coalesce(dates, times.cast(pa.date32()))


def milliseconds_of_day(text: str) -> int:
    """Return a time of day (``18:30:00.000Z``) as milliseconds since midnight, the form of Avro payloads.

    :raises ValueError: if the text is not a time of day.
    """
    match = _TIME_OF_DAY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is neither a whole number nor a time of day")
    hours, minutes, seconds = map(int, match.group(1, 2, 3))
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + int((match.group(4) or "0").ljust(3, "0"))


def _check(times: pa.Array) -> pa.Array:
    bounds = pa.compute.min_max(times.cast(pa.int64())).as_py()
    if bounds["min"] is not None and not _FIRST <= bounds["min"] <= bounds["max"] <= _LAST:
        raise ValueError("a time is not between the years 1 and 9999")
    return times
