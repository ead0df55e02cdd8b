"""Limits of one replay window, and the reason why a drain stopped."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from math import isfinite

from airflow_provider_sfstream.exceptions import ConfigurationError


class StopReason(StrEnum):
    """Reason why a drain ended. Recorded in the manifest.

    ``CAUGHT_UP``: the drain has read everything that was published before it began to look for the end of the stream.
    ``IDLE``: no event was received for a while, and the server answered after that; it proves nothing about time. The
    others are the limits.
    """

    MAX_EVENTS = "max_events"
    MAX_BYTES = "max_bytes"
    MAX_SECONDS = "max_seconds"
    UNTIL = "until"
    CAUGHT_UP = "caught_up"
    IDLE = "idle"

    @property
    def leaves_events(self) -> bool:
        """Return whether unread events may remain that no later event will report."""
        return self in (StopReason.MAX_EVENTS, StopReason.MAX_BYTES, StopReason.MAX_SECONDS)


@dataclass(frozen=True)
class DrainLimits:
    """Limits of one drain; it stops at the first that is met, or when it is caught up or idle.

    :param max_events: Maximum number of events to store.
    :param max_bytes: Maximum number of payload bytes to store, as received. One event is always stored, however large.
    :param max_seconds: Seconds of wall clock after which the drain waits for no further batch.
    :param idle_timeout: Seconds without an event after which the drain ends as idle, if the server then answers.
    :param confirm_timeout: Seconds to wait, while no event was stored, for evidence of the end of the stream, with
        which the drain ends as caught up. 0: the drain does not look for it, unless ``to_the_end``.
    :param wait_for_confirmation: Wait for this evidence also after events.
    :param to_the_end: Look for the end of the stream also without a wait. On a busy stream it is found as soon as
        everything was read that was published before the drain began.
    :param until: An event whose event time is at or past ``until + grace`` ends the drain and is not stored. Needs a
        time zone.
    :param grace: Time past ``until`` in which events are still stored, for events that arrive out of order.
    :raises ConfigurationError: if a limit is invalid; it names the argument and the remedy.
    """

    max_events: int | None = None
    max_bytes: int | None = None
    max_seconds: float | None = None
    idle_timeout: float = 10.0
    confirm_timeout: float = 0.0
    wait_for_confirmation: bool = False
    to_the_end: bool = False
    until: datetime | None = None
    grace: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        for name in ("max_events", "max_bytes"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise ConfigurationError(f"{name}={value!r} must be a whole number above 0, or None for no limit.")
        if self.max_seconds is not None and not _is_seconds(self.max_seconds):
            raise ConfigurationError(
                f"max_seconds={self.max_seconds!r} must be a number of seconds above 0, or None for no limit."
            )
        if not _is_seconds(self.idle_timeout):
            raise ConfigurationError(
                f"idle_timeout={self.idle_timeout!r} must be a number of seconds above 0, for example 10."
            )
        if self.confirm_timeout and not _is_seconds(self.confirm_timeout):
            raise ConfigurationError(
                f"confirm_timeout={self.confirm_timeout!r} must be a number of seconds, 0 or more."
            )
        if self.until is not None and (not isinstance(self.until, datetime) or self.until.utcoffset() is None):
            raise ConfigurationError(
                f"until={self.until!r} must be a datetime with a time zone, for example the data interval's end."
            )
        if not isinstance(self.grace, timedelta) or self.grace < timedelta(0):
            raise ConfigurationError(f"grace={self.grace!r} must be a timedelta of zero or more.")
        if self.grace and self.until is None:
            raise ConfigurationError(f"grace={self.grace!r} requires 'until'. Set until too, or omit grace.")

    @property
    def end(self) -> datetime | None:
        """Return the first event time that is no longer stored: ``until + grace``."""
        return None if self.until is None else self.until + self.grace


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value > 0
