"""Conversion of field values between the JSON of REST and the stored form, which change events carry."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from typing import Any

from sfstream_localorg.errors import ApiError
from sfstream_localorg.identifiers import to_18
from sfstream_localorg.records.fields import FIELD_TYPES

_EPOCH = date(1970, 1, 1)
_DAY = 86_400_000
_FIRST_YEAR, _LAST_YEAR = 1700, 4000  # Salesforce's bounds
_MIDNIGHT = datetime(1970, 1, 1, tzinfo=UTC)


def from_json(column: str, field_type: str, value: Any) -> Any:
    """Convert a JSON value to the stored form: dates and times in milliseconds, empty text to null, null to false.

    Null becomes false for booleans only. Fractions of a second of date-times are dropped, as at Salesforce.

    :param column: name of the column for the error message.
    :raises ApiError: ``JSON_PARSER_ERROR`` or ``MALFORMED_ID`` if the value is not of this type.
    """
    kind = FIELD_TYPES[field_type].describe
    if value is None or value == "":
        return False if kind == "boolean" else None
    if kind == "reference":
        return _record_id(column, value)
    parse: Callable[[Any], Any] = _PARSERS.get(kind, _text)
    try:
        return parse(value)
    except (TypeError, ValueError, OverflowError):
        token = "VALUE_STRING" if isinstance(value, str) else "VALUE"
        raise ApiError(
            "JSON_PARSER_ERROR", f"Cannot deserialize instance of {kind} from {token} value {value} for {column}"
        ) from None


def to_json(field_type: str, value: Any) -> Any:
    """Convert a stored value to the REST form."""
    kind = FIELD_TYPES[field_type].describe
    if value is None:
        return None
    if kind == "datetime":
        moment = datetime.fromtimestamp(value / 1000, UTC)
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{value % 1000:03d}+0000"
    if kind == "date":
        return (_EPOCH.fromordinal(_EPOCH.toordinal() + value // _DAY)).isoformat()
    if kind == "time":
        moment = datetime.fromtimestamp(value / 1000, UTC)
        return f"{moment:%H:%M:%S}.{value % 1000:03d}Z"
    return value


def _record_id(column: str, value: Any) -> str:
    try:
        return to_18(value)
    except (TypeError, ValueError):
        message = f"{column}: id value of incorrect type: {value}"
        raise ApiError("MALFORMED_ID", message, fields=(column,)) from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _integer(value: Any) -> int:
    number = _number(value)
    if number != int(number) or not -(2**31) <= number < 2**31:
        raise ValueError
    return int(number)


def _boolean(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise TypeError
    return value


def _datetime(value: Any) -> int:
    moment = datetime.fromisoformat(_text(value))
    if moment.tzinfo is None:
        raise ValueError
    _check_year(moment)
    return int((moment - _MIDNIGHT).total_seconds()) * 1000


def _date(value: Any) -> int:
    # A date-time is also accepted, and its time dropped, as at Salesforce.
    day = date.fromisoformat(_text(value)[:10])
    _check_year(day)
    return (day - _EPOCH).days * _DAY


def _check_year(day: date) -> None:
    if not _FIRST_YEAR <= day.year <= _LAST_YEAR:
        raise ValueError


def _time(value: Any) -> int:
    # From Python 3.14 on, fromisoformat reads 24:00 as midnight.
    if not re.fullmatch(r"(?!24)\d\d:\d\d(:\d\d(\.\d{1,3})?)?Z?", _text(value)):
        raise ValueError
    at = time.fromisoformat(value.removesuffix("Z"))
    return ((at.hour * 60 + at.minute) * 60 + at.second) * 1000 + at.microsecond // 1000


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "currency": _number,
    "double": _number,
    "percent": _number,
    "int": _integer,
    "boolean": _boolean,
    "datetime": _datetime,
    "date": _date,
    "time": _time,
}
