from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.tables.source.parts import may_pass
from tests.support.landing_files import land_window

DATES = date(2026, 1, 10), date(2026, 1, 12)
DAY, TIME, TOPIC = ("event_date",), ("_event_time",), ("_topic",)


@pytest.fixture
def window(tmp_path: Path) -> Manifest:
    url = land_window(tmp_path, "20260110T000000Z-a", [], {})
    return Manifest.from_json(Path(url.removeprefix("file://")).read_text(), url)


@pytest.mark.parametrize(
    ("each", "passes"),
    [
        (EqualTo(DAY, date(2026, 1, 9)), False),
        (EqualTo(DAY, date(2026, 1, 10)), True),
        (EqualNullSafe(DAY, date(2026, 1, 13)), False),
        (In(DAY, (date(2026, 1, 9), date(2026, 1, 13))), False),
        (In(DAY, (date(2026, 1, 9), date(2026, 1, 12))), True),
        (GreaterThan(DAY, date(2026, 1, 12)), True),  # a whole day is compared
        (GreaterThan(DAY, date(2026, 1, 13)), False),
        (GreaterThanOrEqual(TIME, datetime(2026, 1, 12, 23, 59, tzinfo=UTC)), True),
        (GreaterThanOrEqual(TIME, datetime(2026, 1, 13, tzinfo=UTC)), False),
        (LessThan(TIME, datetime(2026, 1, 9, 23, tzinfo=UTC)), False),
        (LessThanOrEqual(DAY, date(2026, 1, 10)), True),
        (LessThan(TIME, datetime(2020, 1, 1)), True),  # noqa: DTZ001 (of no known zone)
        (EqualTo(TOPIC, "/event/Order__e"), True),
        (EqualTo(TOPIC, "/event/Other__e"), False),
        (In(("window_id",), ("20260110T000000Z-b",)), False),
        (EqualTo(("_org_id",), "00D000000000001EAA"), True),
        (Not(EqualTo(DAY, date(2026, 1, 9))), True),
        (IsNotNull(DAY), True),
        (EqualTo(("Header", "event_date"), date(2020, 1, 1)), True),
        (EqualTo(("Amount__c",), 7), True),
        (EqualTo(DAY, None), True),
    ],
)
def test_a_window_is_left_out_only_where_no_row_can_pass(window: Manifest, each: Any, passes: bool) -> None:
    assert may_pass([IsNotNull(DAY), each], window, DATES) is passes


def test_window_without_known_dates_is_read(window: Manifest) -> None:
    assert may_pass([EqualTo(DAY, date(1999, 1, 1))], window, None)
