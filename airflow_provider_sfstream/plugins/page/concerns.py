"""What is wrong with a stream, worst first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_sfstream.protocol.headroom import Headroom

BAD, WARNING, GOOD = "bad", "warning", "good"
LEVELS = (BAD, WARNING, GOOD)
BAD_BELOW, WARNING_BELOW = 1 / 6, 1 / 2
"""Of the retention: 12 and 36 of 72 hours."""
SPENT_BAD, SPENT_WARNING = 0.9, 0.75
"""Of the org's allocation of delivered events."""


@dataclass(frozen=True)
class Concern:
    """One thing that is wrong."""

    level: str
    text: str


def concerns_of(row: Mapping[str, Any], headroom: Headroom | None, now: datetime) -> list[Concern]:
    """Return what is wrong with a stream, worst first.

    :param row: what the page shows of it.
    :param headroom: ``None`` if it was never drained.
    """
    found = [*_failed(row), *_time_left(headroom), *_lost(row, now), *_tables(row), *_allocation(row)]
    return sorted(found, key=lambda concern: LEVELS.index(concern.level))


def level_of(headroom: Headroom) -> str:
    """Return how bad it is that so little time is left."""
    found = [concern.level for concern in _time_left(headroom)]
    return min(found, key=LEVELS.index, default=GOOD)


def _failed(row: Mapping[str, Any]) -> Iterator[Concern]:
    for failure in row["failures"]:
        yield Concern(BAD, f"Task {failure['task_id']} failed: {failure['what']}")


def _time_left(headroom: Headroom | None) -> Iterator[Concern]:
    if headroom is None:
        yield Concern(WARNING, "Never drained")
        return
    if headroom.best is None:
        yield Concern(BAD, "Nobody knows how much time is left: its end was never confirmed, and no event is stored")
    elif headroom.best <= timedelta(0):
        yield Concern(BAD, "Unread events may be lost already")
    elif headroom.best < headroom.retention * BAD_BELOW:
        yield Concern(BAD, "Unread events are lost soon")
    elif headroom.best < headroom.retention * WARNING_BELOW:
        yield Concern(WARNING, "More than half of the retention is used up")
    if headroom.assumed is not None and (headroom.known is None or headroom.known <= timedelta(0)):
        never = "was never confirmed" if headroom.known is None else "was not confirmed within the retention"
        yield Concern(WARNING, f"Its end {never}: the time left is only assumed")


def _lost(row: Mapping[str, Any], now: datetime) -> Iterator[Concern]:
    recent = now - timedelta(seconds=row["retention"])
    for gap in row["latest_gaps"]:
        if datetime.fromisoformat(gap["detected_at"]) > recent:
            uncertain = gap.get("uncertain")
            yield Concern(WARNING, "Events may have been lost") if uncertain else Concern(BAD, "Events were lost")
    if row["missing"]:
        yield Concern(WARNING, "The last interval is not whole")


def _tables(row: Mapping[str, Any]) -> Iterator[Concern]:
    if row["quarantined"]:
        yield Concern(WARNING, "Rows are in quarantine")
    if row["flagged"]:
        yield Concern(WARNING, "A table has to be fetched anew")
    elif row["dirty"]:
        yield Concern(WARNING, "Dirty rows wait for a refresh")


def _allocation(row: Mapping[str, Any]) -> Iterator[Concern]:
    for allocation in row["allocations"]:
        spent = allocation["used"] / allocation["maximum"]
        if spent >= SPENT_WARNING:
            yield Concern(BAD if spent >= SPENT_BAD else WARNING, f"{allocation['name']}: {spent:.0%} used")
