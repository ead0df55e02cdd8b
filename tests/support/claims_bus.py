"""An event bus in memory, in time that moves only when somebody waits: what a drain claims is compared with its log.

All times of this module are seconds of the bus's own clock. A worker's clock may show another time: its *skew* is how
much later.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from airflow_provider_sfstream.exceptions import ReplayIdLostError
from airflow_provider_sfstream.reading.source import StartFrom

MIDNIGHT = datetime(2026, 11, 20, tzinfo=UTC)
HOUR = 3600.0


@dataclass
class WorldTime:
    """The time of the bus, and what the worker's clock shows."""

    seconds: float = 0.0
    skew: float = 0.0
    skews: set[float] = field(default_factory=set)

    def clock(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += max(0.0, seconds)

    def now(self) -> datetime:
        """Return the time by the worker's clock. Asking takes a moment."""
        self.seconds += 0.001
        self.skews.add(self.skew)
        return self.shown(self.seconds, self.skew)

    @staticmethod
    def shown(seconds: float, skew: float) -> datetime:
        """Return what a clock with ``skew`` shows at a time of the bus."""
        return MIDNIGHT + timedelta(seconds=seconds + skew)

    def on_all_clocks(self, seconds: float, start: datetime | None, end: datetime) -> bool:
        """Return whether a time of the bus was in ``[start, end)`` by each clock that a worker had so far."""
        shown = [self.shown(seconds, skew) for skew in self.skews]
        return all((start is None or start <= each) and each < end for each in shown)


@dataclass(frozen=True, order=True)
class BusEvent:
    """One event. ``number`` and ``era`` make its replay ID; an era ends when the stream is reset."""

    era: int
    number: int
    published: float = field(compare=False)
    event_time: int = field(compare=False)

    @property
    def replay_id(self) -> bytes:
        return replay_id_of(self.era, self.number)

    @property
    def place(self) -> tuple[int, int]:
        return self.era, self.number


def replay_id_of(era: int, number: int) -> bytes:
    """Return a replay ID. Those of a later era are smaller: nobody may take their order for that of the stream."""
    return bytes([200 - era]) + number.to_bytes(7, "big") + b"\0\0"


def place_of(replay_id: bytes) -> tuple[int, int]:
    """Return where in the stream a replay ID stands."""
    return 200 - replay_id[0], int.from_bytes(replay_id[1:8], "big")


def _number_at(seconds: float) -> int:
    return (round(seconds * 1_000) + 10**12) * 16


@dataclass
class Bus:
    """All events that are, and will be, published, in order; Salesforce keeps each for ``retention`` seconds and
    ``lag`` more."""

    time: WorldTime
    lag: float = 0.0
    retention: float = 72 * HOUR
    era: int = 0
    events: list[BusEvent] = field(default_factory=list)

    def publish(self, at: float, event_time: int) -> None:
        """Have an event published at that time, which is not past."""
        at = round(at, 3)
        number = _number_at(at)
        taken = {event.number for event in self.events}
        while number in taken:
            number += 1
        insort(self.events, BusEvent(self.era, number, at, event_time))

    def reset(self) -> None:
        """Forget everything, as a refreshed sandbox does; replay IDs of before mean nothing any more."""
        self.events = [event for event in self.events if event.published <= self.time.seconds]
        self.era += 1

    def earliest(self, at: float) -> tuple[int, int]:
        """Return the place before the oldest event that can be read at that time."""
        return self.era, _number_at(at - self.retention - self.lag) - 1

    def latest(self, at: float) -> tuple[int, int]:
        """Return the place after all that was published by then."""
        published = bisect_right(self.events, at, key=lambda event: event.published)
        last = self.events[published - 1].place if published else (0, 0)
        return max((self.era, _number_at(at) - 1), last)

    def start_of(self, start: bytes | StartFrom, at: float) -> tuple[int, int]:
        """Return the place after which a subscription of that time begins.

        :raises ReplayIdLostError: if the replay ID is no longer known.
        """
        if isinstance(start, bytes):
            place = place_of(start)
            if place[0] != self.era or place <= self.earliest(at):
                raise ReplayIdLostError("The Replay ID validation failed.")
            return place
        return self.earliest(at) if start is StartFrom.EARLIEST else self.latest(at)

    def after(self, place: tuple[int, int], until: float) -> list[BusEvent]:
        """Return the events that stand after a place and were published by ``until``."""
        found, first = [], bisect_right(self.events, place, key=lambda event: event.place)
        for event in self.events[first:]:
            if event.published > until:
                break
            found.append(event)
        return found
