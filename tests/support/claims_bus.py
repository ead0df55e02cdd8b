"""An event bus in memory with simulated time, which advances only when a caller waits.

The scenarios compare the claims of drains with the log of this bus. All times of this module are seconds of the bus's
own clock, which is correct: claims are about Salesforce's time. A worker's clock may differ: its *skew* is the number
of seconds that it is ahead of the bus or, if negative, behind it.
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
    """The bus's clock and the worker's clock. ``skews`` has all skews of the worker's clock that a run has read."""

    seconds: float = 0.0
    skew: float = 0.0
    skews: set[float] = field(default_factory=set)

    def clock(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += max(0.0, seconds)

    def now(self) -> datetime:
        """Return the time of the worker's clock."""
        self.seconds += 0.001  # so that no two reads return the same time
        self.skews.add(self.skew)
        return self.shown(self.seconds, self.skew)

    @staticmethod
    def shown(seconds: float, skew: float) -> datetime:
        """Return the time that a clock with ``skew`` shows at a time of the bus."""
        return MIDNIGHT + timedelta(seconds=seconds + skew)

    @staticmethod
    def true(seconds: float) -> datetime:
        """Convert a time of the bus from seconds to a ``datetime``."""
        return MIDNIGHT + timedelta(seconds=seconds)


@dataclass(frozen=True, order=True)
class BusEvent:
    """One event. Its replay ID encodes ``number`` and ``era``; a reset of the stream begins a new era."""

    era: int
    number: int
    published: float = field(compare=False)
    event_time: int = field(compare=False)
    unordered: bool = field(default=False, compare=False)

    @property
    def replay_id(self) -> bytes:
        return replay_id_of(self.era, self.number, self.unordered)

    @property
    def has_correct_event_time(self) -> bool:
        """True if the event time is within one second of the publication."""
        return abs(self.event_time - (MIDNIGHT.timestamp() + self.published) * 1_000) < 1_001

    @property
    def place(self) -> tuple[int, int]:
        return self.era, self.number


def replay_id_of(era: int, number: int, unordered: bool = False) -> bytes:
    """Return a replay ID. Replay IDs of a later era are smaller, so that code which compares replay IDs fails.

    :param unordered: return a replay ID in an undocumented format, whose byte order is not the stream's order.
    """
    if unordered:
        return bytes([era]) + number.to_bytes(7, "little") + b"\0\0\0\0"
    return bytes([200 - era]) + number.to_bytes(7, "big") + b"\0\0"


def place_of(replay_id: bytes) -> tuple[int, int]:
    """Return era and number of a replay ID."""
    if len(replay_id) == 12:
        return replay_id[0], int.from_bytes(replay_id[1:8], "little")
    return 200 - replay_id[0], int.from_bytes(replay_id[1:8], "big")


def seconds_of(place: tuple[int, int]) -> float:
    """Return the time of the bus for era and number of an event."""
    return (place[1] / 16 - 10**12) / 1_000


def _number_at(seconds: float) -> int:
    return (round(seconds * 1_000) + 10**12) * 16


@dataclass(frozen=True)
class Stall:
    """A period in which a ``share`` of the sessions get replies but no events, although events are stored."""

    start: float
    end: float
    share: float


@dataclass
class Bus:
    """The event bus. ``events`` has all published events and those with a future publication, in stream order.

    An event expires after ``retention`` plus ``lag`` seconds.
    """

    time: WorldTime
    lag: float = 0.0
    retention: float = 72 * HOUR
    era: int = 0
    unordered: bool = False
    events: list[BusEvent] = field(default_factory=list)
    stalls: list[Stall] = field(default_factory=list)

    def publish(self, at: float, event_time: int) -> None:
        """Schedule the publication of an event at a time, which must not be in the past."""
        at = round(at, 3)
        number = _number_at(at)
        taken = {event.number for event in self.events}
        while number in taken:
            number += 1
        insort(self.events, BusEvent(self.era, number, at, event_time, self.unordered))

    def reset(self) -> None:
        """Reset the stream, as a sandbox refresh does: delete future events and invalidate all replay IDs."""
        self.events = [event for event in self.events if event.published <= self.time.seconds]
        self.era += 1

    def earliest(self, at: float) -> tuple[int, int]:
        """Return the position (era and number) before the oldest event that is retained at a time."""
        return self.era, _number_at(at - self.retention - self.lag) - 1

    def latest(self, at: float) -> tuple[int, int]:
        """Return the position (era and number) after all events that are published by a time."""
        published = bisect_right(self.events, at, key=lambda event: event.published)
        last = self.events[published - 1].place if published else (0, 0)
        return max((self.era, _number_at(at) - 1), last)

    def start_of(self, after: bytes | StartFrom, at: float) -> tuple[int, int]:
        """Return the position (era and number) after which a subscription begins that is opened at a time.

        :raises ReplayIdLostError: if the replay ID is expired, or invalid since a reset.
        """
        if isinstance(after, bytes):
            place = place_of(after)
            if place[0] != self.era or place <= self.earliest(at):
                raise ReplayIdLostError("The Replay ID validation failed.")
            return place
        return self.earliest(at) if after is StartFrom.EARLIEST else self.latest(at)

    def after(self, place: tuple[int, int], until: float) -> list[BusEvent]:
        """Return the events that follow a position (era and number) and were published by ``until``."""
        found, first = [], bisect_right(self.events, place, key=lambda event: event.place)
        for event in self.events[first:]:
            if event.published > until:
                break
            found.append(event)
        return found
