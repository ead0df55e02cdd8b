from __future__ import annotations

from datetime import date, time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfstream_localorg.errors import ApiError
from sfstream_localorg.records.fields import FIELD_TYPES
from sfstream_localorg.records.values import from_json, to_json

DAY = 86_400_000


@pytest.mark.parametrize(
    ("field_type", "given", "stored", "shown"),
    [
        ("Text", "x", "x", "x"),
        ("Text", "", None, None),
        ("Boolean", None, False, False),
        ("Boolean", "TRUE", True, True),
        ("Double", 3, 3.0, 3.0),
        ("Double", "3.5", 3.5, 3.5),
        ("Integer", 3.0, 3, 3),
        ("DateOnly", "1969-12-31", -DAY, "1969-12-31"),
        ("DateOnly", "2026-11-21T23:00:00Z", 20_778 * DAY, "2026-11-21"),
        ("DateTime", "2026-11-21T03:14:15.999+0100", 1_795_227_255_000, "2026-11-21T02:14:15.000+0000"),
        ("DateTime", "1969-12-31T23:59:59Z", -1000, "1969-12-31T23:59:59.000+0000"),
        ("TimeOnly", "23:59:58.250Z", DAY - 1750, "23:59:58.250Z"),
        ("TimeOnly", "08:30", 30_600_000, "08:30:00.000Z"),
        ("EntityId", "001A0000006Vm9r", "001A0000006Vm9rIAC", "001A0000006Vm9rIAC"),
    ],
)
def test_values_of_field_types_from_and_to_json(field_type: str, given: Any, stored: Any, shown: Any) -> None:
    assert from_json("Column", field_type, given) == stored
    assert to_json(field_type, stored) == shown


@pytest.mark.parametrize("field_type", sorted(FIELD_TYPES))
@pytest.mark.parametrize("bad", [[], {}, [1]])
def test_lists_and_objects_are_refused_for_every_field_type(field_type: str, bad: Any) -> None:
    with pytest.raises(ApiError, match="Column"):
        from_json("Column", field_type, bad)


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e999", True])
def test_numbers_that_are_not_finite_are_refused(number: Any) -> None:
    with pytest.raises(ApiError, match="JSON_PARSER_ERROR"):
        from_json("Column", "Double", number)


@pytest.mark.parametrize(
    ("field_type", "bad"),
    [("DateOnly", "1699-12-31"), ("DateTime", "4001-01-01T00:00:00Z"), ("TimeOnly", "24:00"), ("DateOnly", "today")],
)
def test_dates_and_times_out_of_range_are_refused(field_type: str, bad: str) -> None:
    with pytest.raises(ApiError, match="JSON_PARSER_ERROR"):
        from_json("Column", field_type, bad)


@given(
    st.dates(date(1700, 1, 1), date(4000, 12, 31)), st.times(), st.sampled_from(["DateTime", "DateOnly", "TimeOnly"])
)
def test_value_shown_by_rest_is_stored_unchanged(day: date, at: time, field_type: str) -> None:
    text = {"DateTime": f"{day}T{at.isoformat()}Z", "DateOnly": f"{day}", "TimeOnly": f"{at:%H:%M:%S}"}
    stored = from_json("Column", field_type, text[field_type])
    assert from_json("Column", field_type, to_json(field_type, stored)) == stored
