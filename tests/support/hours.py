"""Past hours that do not change during a test.

They depend on the start of the test, and not on the collection of tests, which may be an hour earlier.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_begin_of_hour: datetime | None = None


def new_test() -> None:
    """Reset the hour at the start of a test."""
    global _begin_of_hour
    _begin_of_hour = None


def hours_ago(hours: float) -> datetime:
    """Return the time ``hours`` hours before the start of the hour in which the test first called this function."""
    global _begin_of_hour
    if _begin_of_hour is None:
        _begin_of_hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    return _begin_of_hour - timedelta(hours=hours)
