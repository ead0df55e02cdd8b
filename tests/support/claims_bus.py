"""An event bus in memory, in time that moves only when somebody waits: what a drain claims is compared with its log.

All times of this module are seconds of the bus's own clock, which is the truth: claims are about Salesforce's time.
A worker's clock may show another time: its *skew* is by how much it is late or, below 0, early.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from airflow_provider_sfstream.exceptions import ReplayIdLostError
from airflow_provider_sfstream.streams.source import StartFrom

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

    @staticmethod
    def true(seconds: float) -> datetime:
        """Return the date and time of the bus at a time of the bus."""
        return MIDNIGHT + timedelta(seconds=seconds)


@dataclass(frozen=True, order=True)
class BusEvent:
    """One event. ``number`` and ``era`` make its replay ID; an era ends when the stream is reset."""

    era: int
    number: int
    published: float = field(compare=False)
    event_time: int = field(compare=False)
    unordered: bool = field(default=False, compare=False)

    @property
    def replay_id(self) -> bytes:
        return replay_id_of(self.era, self.number, self.unordered)

    @property
    def is_timed_right(self) -> bool:
        """Whether the event time is that of the publication, but for a second."""
        return abs(self.event_time - (MIDNIGHT.timestamp() + self.published) * 1_000) < 1_001

    @property
    def place(self) -> tuple[int, int]:
        return self.era, self.number


def replay_id_of(era: int, number: int, unordered: bool = False) -> bytes:
    """Return a replay ID. Those of a later era are smaller: nobody may take their order for that of the stream.

    :param unordered: return it in a form that nobody knows, and that has not the order of the stream.
    """
    if unordered:
        return bytes([era]) + number.to_bytes(7, "little") + b"\0\0\0\0"
    return bytes([200 - era]) + number.to_bytes(7, "big") + b"\0\0"


def place_of(replay_id: bytes) -> tuple[int, int]:
    """Return where in the stream a replay ID stands."""
    if len(replay_id) == 12:
        return replay_id[0], int.from_bytes(replay_id[1:8], "little")
    return 200 - replay_id[0], int.from_bytes(replay_id[1:8], "big")


def seconds_of(place: tuple[int, int]) -> float:
    """Return the time of the bus at a place."""
    return (place[1] / 16 - 10**12) / 1_000


def _number_at(seconds: float) -> int:
    return (round(seconds * 1_000) + 10**12) * 16


@dataclass(frozen=True)
class Stall:
    """A time in which sessions are answered but receive nothing, though events are stored: a ``share`` of them."""

    start: float
    end: float
    share: float


@dataclass
class Bus:
    """All events that are, and will be, published, in order; Salesforce keeps each for ``retention`` seconds and
    ``lag`` more."""

    time: WorldTime
    lag: float = 0.0
    retention: float = 72 * HOUR
    era: int = 0
    unordered: bool = False
    events: list[BusEvent] = field(default_factory=list)
    stalls: list[Stall] = field(default_factory=list)

    def publish(self, at: float, event_time: int) -> None:
        """Have an event published at that time, which is not past."""
        at = round(at, 3)
        number = _number_at(at)
        taken = {event.number for event in self.events}
        while number in taken:
            number += 1
        insort(self.events, BusEvent(self.era, number, at, event_time, self.unordered))

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
