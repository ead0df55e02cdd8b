"""When watching a topic is worth a wake-up: so many events, or one that has waited for so long."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from math import isfinite

from airflow_provider_sfstream.exceptions import ConfigurationError


class WakeUpReason(StrEnum):
    """Why there is a wake-up."""

    EVENTS = "events"
    """Events came."""
    STARTED = "started"
    """Watching began at "latest": there may be events before that nobody was told of."""
    REPLAY_LOST = "replay_lost"
    """The replay ID to watch from can no longer be read. Whoever drains finds out what that means."""
    QUIET = "quiet"
    """Nothing came; the server confirmed a replay ID, if it does that. Wakes nobody, unless it was quiet for long."""


@dataclass(frozen=True)
class WakeUp:
    """What a watch has to say. Never an event's body.

    ``event_count`` events came since the last wake-up, the first of them ``first_replay_id`` (``None`` if there is
    none). ``through`` is the replay ID up to which everything was told with this wake-up: watching again after it
    misses nothing. ``None`` when no replay ID is known yet. ``confirmed_at`` is a moment of Salesforce's time (a lower
    bound) before which nothing was published that comes after ``through``; ``None`` without evidence for one.
    ``contact_at`` is then an upper bound of the time of the last answer.
    """

    reason: WakeUpReason
    first_replay_id: bytes | None = None
    event_count: int = 0
    through: bytes | None = None
    confirmed_at: datetime | None = None
    contact_at: datetime | None = None


@dataclass(frozen=True)
class WakeUpConditions:
    """What has to be there before there is a wake-up. The defaults wake with the first event.

    :param min_events: wake once this many events have come since the last wake-up.
    :param max_wait: wake with fewer once the oldest of them is this many seconds old, by its event time (by its
        arrival where it tells none). ``None``: never with fewer.
    :param min_interval: seconds from one wake-up to the next at least, so that a burst of events becomes few wake-ups.
        What comes in between is told when they have passed.
    :param until_confirmed: of a single wait: wake also when there is evidence for the end of the stream.
    :raises ConfigurationError: naming the argument that cannot be used.
    """

    min_events: int = 1
    max_wait: float | None = None
    min_interval: float = 0.0
    until_confirmed: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.min_events, int) or isinstance(self.min_events, bool) or self.min_events < 1:
            raise ConfigurationError(f"min_events={self.min_events!r} must be a whole number above 0.")
        if self.max_wait is not None and not (_is_seconds(self.max_wait) and self.max_wait > 0):
            raise ConfigurationError(f"max_wait={self.max_wait!r} must be a number of seconds above 0, or None.")
        if not _is_seconds(self.min_interval):
            raise ConfigurationError(f"min_interval={self.min_interval!r} must be a number of seconds, 0 or more.")


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value >= 0
