"""Limits of a drain, and the texts of its stop reasons."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.streams.drain.limits import DrainLimits, StopReason

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"max_events": 0}, "max_events=0"),
        ({"max_events": 1.5}, "max_events=1.5"),
        ({"max_events": True}, "max_events=True"),
        ({"max_bytes": -1}, "max_bytes=-1"),
        ({"max_seconds": 0}, "max_seconds=0"),
        ({"max_seconds": float("nan")}, "max_seconds=nan"),
        ({"max_seconds": "60"}, "max_seconds='60'"),
        ({"idle_timeout": 0}, "idle_timeout=0"),
        ({"idle_timeout": None}, "idle_timeout=None"),
        ({"confirm_timeout": -1}, "confirm_timeout=-1"),
        ({"until": datetime(2026, 1, 31)}, "time zone"),  # noqa: DTZ001
        ({"until": "2026-01-31"}, "until='2026-01-31'"),
        ({"until": NOON, "grace": timedelta(seconds=-1)}, "grace"),
        ({"until": NOON, "grace": 60}, "grace=60"),
        ({"grace": timedelta(minutes=5)}, "until"),
    ],
)
def test_invalid_limit_is_refused_by_name(arguments, named):
    with pytest.raises(ConfigurationError, match=named):
        DrainLimits(**arguments)


def test_the_end_is_until_plus_grace():
    assert DrainLimits(until=NOON, grace=timedelta(minutes=5)).end == NOON + timedelta(minutes=5)
    assert DrainLimits(max_events=1, max_bytes=1, max_seconds=0.5).end is None


def test_stop_reasons_are_text_for_manifests():
    reasons = ["max_events", "max_bytes", "max_seconds", "until", "caught_up", "idle"]
    assert [str(reason) for reason in StopReason] == reasons
