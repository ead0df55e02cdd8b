"""Values of rows as an event's Avro schema has them: the reverse of what decoding makes of dates and times. Pure.

Salesforce writes dates and times as Avro longs, in milliseconds since the epoch, and names the real type in each
field's ``doc``; see :func:`~airflow_provider_sfstream.salesforce.schemas.salesforce_type`.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from airflow_provider_sfstream.salesforce.schemas import salesforce_type

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE = {"int", "long"}


def event_value(field: dict[str, Any], value: Any) -> Any:
    """Return a value for a field of an event's schema, as Avro takes it; one that needs no change as it is.

    Times need a time zone, and are no dates; either may be ISO 8601 text. A ``Decimal`` becomes the nearest double, and
    a whole number that is written as one with a fraction (1.0, as pandas has integers with gaps) an integer.

    :raises ValueError: if a text is no date or time, or a time has no time zone.
    """
    kinds = _kinds(field["type"])
    if "long" in kinds and (named := salesforce_type(field)) in ("DateTime", "DateOnly"):
        return _milliseconds(value, is_date=named == "DateOnly")
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, float) and value.is_integer() and kinds & _WHOLE and "double" not in kinds:
        return int(value)
    return value


def _kinds(avro: Any) -> set[str]:
    branches = avro if isinstance(avro, list) else [avro]
    return {str(branch.get("type") if isinstance(branch, dict) else branch) for branch in branches}


def _milliseconds(value: Any, *, is_date: bool) -> Any:
    if isinstance(value, str):
        value = date.fromisoformat(value) if is_date else datetime.fromisoformat(value)
    if isinstance(value, datetime):
        if is_date:
            return value  # which day it is depends on where: no date
        if value.utcoffset() is None:
            raise ValueError("a time needs a time zone")
        return (value - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(value, date) and is_date:
        return (value - _EPOCH.date()) // timedelta(milliseconds=1)
    return value
