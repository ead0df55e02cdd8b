"""Values of rows as Avro has them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from airflow_provider_sfstream.salesforce.pubsub.publishing import event_value

TIME = {"name": "At__c", "type": ["null", "long"], "doc": "Data:DateTime:00N000000000001"}
DAY = {"name": "Day__c", "type": ["null", "long"], "doc": "Data:DateOnly:00N000000000001"}
NUMBER = {"name": "Number__c", "type": ["null", "double"], "doc": "Data:Double:00N000000000001"}
WHOLE = {"name": "Count__c", "type": "long"}
TEXT = {"name": "Note__c", "type": ["null", "string"]}


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        (TIME, datetime(1970, 1, 2, tzinfo=UTC), 86_400_000),
        (TIME, datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=2))), -3_600_000),
        (TIME, datetime(1970, 1, 1, 0, 0, 0, 1_999, tzinfo=UTC), 1),
        (TIME, "1970-01-02T00:00:00Z", 86_400_000),
        (TIME, 5, 5),
        (DAY, date(1970, 1, 3), 172_800_000),
        (DAY, "1969-12-31", -86_400_000),
        (NUMBER, Decimal("1.25"), 1.25),
        (NUMBER, 3.0, 3.0),
        (NUMBER, 3, 3),
        (WHOLE, 3.0, 3),
        (WHOLE, 3.5, 3.5),
        (TEXT, "1970-01-02", "1970-01-02"),
        (TEXT, None, None),
        (TIME, None, None),
    ],
)
def test_a_value_becomes_what_avro_takes(field: dict[str, Any], value: Any, expected: Any) -> None:
    found = event_value(field, value)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(("field", "value"), [(TIME, "yesterday"), (TIME, datetime(2026, 1, 1)), (DAY, "2026-13-01")])  # noqa: DTZ001
def test_what_is_no_time_is_refused(field: dict[str, Any], value: Any) -> None:
    with pytest.raises(ValueError, match=r"time|date|month|isoformat"):
        event_value(field, value)


def test_a_time_is_no_date() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert event_value(DAY, moment) is moment, "for Avro to refuse"
