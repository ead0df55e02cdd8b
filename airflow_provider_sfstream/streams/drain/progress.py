"""Progress of a drain, told at a human rhythm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

INTERVAL = 10.0
"""Seconds between two reports."""


@dataclass(frozen=True)
class DrainProgress:
    """How far a drain is: events so far, events per second since the last report, and how old the last event
    is (``None`` where its event time is unknown)."""

    event_count: int
    events_per_second: float
    age: timedelta | None

    def __str__(self) -> str:
        last = "" if self.age is None else f"; the last one is {self.age.total_seconds():,.0f} s old"
        return f"{self.event_count:,} events, {self.events_per_second:,.0f} events/s{last}"


class ProgressReporter:
    """Calls ``tell`` with a :class:`DrainProgress` about every ten seconds."""

    def __init__(
        self, tell: Callable[[DrainProgress], None], clock: Callable[[], float], now: Callable[[], datetime]
    ) -> None:
        self._tell = tell
        self._clock = clock
        self._now = now
        self._at = clock()
        self._count = 0

    def update(self, event_count: int, last_event_time: Callable[[], datetime | None]) -> None:
        """Report if ten seconds have passed. ``last_event_time`` is only called when they have."""
        elapsed = self._clock() - self._at
        if elapsed < INTERVAL:
            return
        time = last_event_time()
        age = None if time is None else self._now() - time
        self._tell(DrainProgress(event_count, (event_count - self._count) / elapsed, age))
        self._at += elapsed
        self._count = event_count
