"""Limits of one replay window, and the cut of a batch at them, so that the position stays exact."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from airflow_provider_sfstream.arguments import is_seconds
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.salesforce.events import EventBatch

log = logging.getLogger(__name__)

EventTimes = Callable[[Sequence[str], Sequence[bytes]], Sequence[int | None]]
"""Event times of (schema IDs, payloads): milliseconds since the epoch, ``None`` where an event has none."""

FARTHEST_AHEAD = timedelta(days=1)
"""An event time farther ahead of Salesforce's clock than this is wrong: the publisher's clock set it."""


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
    :param ends_sooner: End as idle sooner after an event of the last minute: after three times the seconds that the
        subscription needed for its first event, and at least half a second. Not while the drain looks for the end.
    :param confirm_timeout: Seconds to wait, while no event was stored, for evidence of the end of the stream, with
        which the drain ends as caught up. 0: the drain does not look for it, unless ``to_the_end``.
    :param wait_for_confirmation: Wait for this evidence also after events.
    :param to_the_end: Look for the end of the stream also without a wait. On a busy stream it is found as soon as
        everything was read that was published before the drain began.
    :param until: An event whose event time is at or past ``until + grace`` ends the drain and is not stored. Needs a
        time zone.
    :param grace: Time past ``until`` in which events are still stored, for events that arrive out of order.
    """

    max_events: int | None = None
    max_bytes: int | None = None
    max_seconds: float | None = None
    idle_timeout: float = 10.0
    ends_sooner: bool = False
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
        if self.max_seconds is not None and not (is_seconds(self.max_seconds) and self.max_seconds > 0):
            raise ConfigurationError(
                f"max_seconds={self.max_seconds!r} must be a number of seconds above 0, or None for no limit."
            )
        if not (is_seconds(self.idle_timeout) and self.idle_timeout > 0):
            raise ConfigurationError(
                f"idle_timeout={self.idle_timeout!r} must be a number of seconds above 0, for example 10."
            )
        if self.confirm_timeout and not is_seconds(self.confirm_timeout):
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
    def least_idle(self) -> float:
        """Return the minimum number of seconds without an event after which the drain ends as idle."""
        return min(0.5, self.idle_timeout) if self.ends_sooner else self.idle_timeout

    @property
    def end(self) -> datetime | None:
        """Return the first event time that is no longer stored: ``until + grace``."""
        return None if self.until is None else self.until + self.grace


@dataclass(frozen=True, slots=True)
class Cut:
    """The events of a batch to store, their payload bytes, and the limit that they meet, if any.

    ``misdated`` is the event time, in milliseconds since the epoch, of the first stored event that did not meet
    ``until`` because its time is too far in the future; ``None`` if there is none.
    """

    batch: EventBatch
    payload_bytes: int
    stop: StopReason | None
    misdated: int | None = None


def cut(
    batch: EventBatch,
    limits: DrainLimits,
    event_count: int,
    payload_bytes: int,
    event_times: EventTimes,
    *,
    now: datetime,
) -> Cut:
    """Return the part of ``batch`` to store after ``event_count`` events with ``payload_bytes`` bytes.

    An event whose time is more than :data:`FARTHEST_AHEAD` after ``now``, the present by Salesforce's clock, does not
    meet ``until``: no later drain could read past it either, and each would succeed without an event.

    If several limits are met at one event, the reason is ``until``, which means that the interval is complete.

    Events with the same replay ID are stored together, even beyond a limit: a reader that resumes after that replay ID
    receives none of them again. Salesforce creates them from one change of several records, on a channel that enriches
    events (Change Data Capture guide, "Event Enrichment Considerations").
    """
    count, stop = len(batch), None
    misdated: dict[int, int] = {}
    if limits.max_events is not None and event_count + count >= limits.max_events:
        count, stop = limits.max_events - event_count, StopReason.MAX_EVENTS
    size = sum(map(len, batch.payloads[:count]))
    if limits.max_bytes is not None and payload_bytes + size >= limits.max_bytes:
        count, size = _within_bytes(batch.payloads[:count], limits.max_bytes - payload_bytes, first=event_count == 0)
        stop = StopReason.MAX_BYTES
    if limits.end is not None:
        end, present = limits.end.timestamp() * 1_000, (now + FARTHEST_AHEAD).timestamp() * 1_000
        times = event_times(batch.schema_ids, batch.payloads)
        late = [(index, time) for index, time in enumerate(times) if time is not None and time >= end]
        until_index = next((index for index, time in late if time <= present), len(batch))
        misdated = {index: time for index, time in late if time > present}
        if until_index <= count and until_index < len(batch):
            count, stop = until_index, StopReason.UNTIL
            size = sum(map(len, batch.payloads[:count]))
    stored_count = _through_replay_id(batch.replay_ids, count)
    size += sum(map(len, batch.payloads[count:stored_count]))
    first_misdated = next((time for index, time in misdated.items() if index < stored_count), None)
    return Cut(batch if stored_count == len(batch) else batch.part(0, stored_count), size, stop, first_misdated)


def _through_replay_id(replay_ids: Sequence[bytes], count: int) -> int:
    """Return the number of events to store, so that all events of the last replay ID are stored."""
    while 0 < count < len(replay_ids) and replay_ids[count] == replay_ids[count - 1]:
        count += 1
    return count


def _within_bytes(payloads: Sequence[bytes], room: int, *, first: bool) -> tuple[int, int]:
    """Return the number of payloads that fit into ``room`` bytes, and their size; the ``first`` one always fits."""
    count = size = 0
    for payload in payloads:
        if size + len(payload) > room and not (first and count == 0):
            break
        count += 1
        size += len(payload)
    return count, size


class MisdatedEventWarning:
    """Warning of a drain about stored events that are too far in the future to meet ``until``, logged once."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._is_logged = False

    def stored(self, misdated: int | None) -> None:
        """Log the warning for the first event with such a time, in milliseconds since the epoch."""
        if misdated is None or self._is_logged:
            return
        from airflow_provider_sfstream.salesforce.event_time import to_datetime

        self._is_logged = True
        time = to_datetime(misdated)
        log.warning(
            "%s: an event has the event time %s, more than a day ahead of the present: its publisher's clock is wrong. "
            "The event was landed and did not end the drain at 'until'. Correct that clock.",
            self._topic,
            f"{misdated} ms (after the year 9999)" if time is None else time.isoformat(),
        )
