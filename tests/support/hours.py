"""The hours before a test: the same ones for as long as it runs, and not those of the collection an hour ago."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_begin_of_hour: datetime | None = None


def new_test() -> None:
    """Forget the hour of the test before."""
    global _begin_of_hour
    _begin_of_hour = None


def hours_ago(hours: float) -> datetime:
    """Return the time so many hours before the begin of the hour in which this was first called for a test."""
    global _begin_of_hour
    if _begin_of_hour is None:
        _begin_of_hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    return _begin_of_hour - timedelta(hours=hours)
