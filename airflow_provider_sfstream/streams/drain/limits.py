"""When a drain ends: the limits of one replay window, and the reason that was met first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from math import isfinite

from airflow_provider_sfstream.exceptions import ConfigurationError


class StopReason(StrEnum):
    """Why a drain ended. Recorded in the manifest.

    ``CAUGHT_UP``: the drain has read everything that was published before it began to look for the end of the stream.
    ``IDLE``: no event was received for a while, and the server answered after that; no claim about time. The others are
    the limits.
    """

    MAX_EVENTS = "max_events"
    MAX_BYTES = "max_bytes"
    MAX_SECONDS = "max_seconds"
    UNTIL = "until"
    CAUGHT_UP = "caught_up"
    IDLE = "idle"

    @property
    def leaves_events(self) -> bool:
        """Whether there may be events that nobody will tell of again."""
        return self in (StopReason.MAX_EVENTS, StopReason.MAX_BYTES, StopReason.MAX_SECONDS)


@dataclass(frozen=True)
class DrainLimits:
    """The limits of one drain; it stops on the first that is met, or when it is caught up or idle.

    :param max_events: Events to store at most.
    :param max_bytes: Payload bytes to store at most, as received. One event always passes, however large.
    :param max_seconds: Seconds of wall clock after which no further batch is waited for.
    :param idle_timeout: Seconds without an event after which the drain ends as idle, if the server then answers.
    :param confirm_timeout: Seconds to wait, while no event was stored, for evidence of the end of the stream, with
        which the drain ends as caught up. 0: the drain does not look for it, unless ``to_the_end``.
    :param wait_for_confirmation: Wait for it also after events.
    :param to_the_end: Look for the end of the stream also without a wait: on a busy stream it is found as soon as
        everything was read that was published before the drain began.
    :param until: An event whose event time is at or past ``until + grace`` ends the drain and is not stored.
        Needs a time zone.
    :param grace: How far past ``until`` to keep storing, for events that arrive out of order.
    :raises ConfigurationError: if a limit cannot be used; it names the argument and the remedy.
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
            raise ConfigurationError(f"grace={self.grace!r} extends 'until'. Set until too, or leave out grace.")

    @property
    def end(self) -> datetime | None:
        """The first event time that is not stored any more: ``until + grace``."""
        return None if self.until is None else self.until + self.grace


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value > 0
