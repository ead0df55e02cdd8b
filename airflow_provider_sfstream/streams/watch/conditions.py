"""Wake-ups: their conditions, and the payload that a trigger passes to tasks and asset events. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from math import inf
from typing import Any

from airflow_provider_sfstream import exceptions
from airflow_provider_sfstream.arguments import check_wake_up_conditions
from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.salesforce.replay_ids import replay_id_to_text
from airflow_provider_sfstream.salesforce.streams import Stream

_ERROR = "error"


class WakeUpReason(StrEnum):
    """Reason of a wake-up."""

    EVENTS = "events"
    """Events were received."""
    STARTED = "started"
    """Watching began at "latest": earlier events may exist that no wake-up has reported."""
    REPLAY_LOST = "replay_lost"
    """The replay ID to watch from can no longer be read. The next drain determines the consequence."""
    QUIET = "quiet"
    """No events; the server confirmed a replay ID, if the API does that. A wake-up only after a long quiet time."""


@dataclass(frozen=True)
class WakeUp:
    """Report of a watch, without event bodies.

    ``event_count`` events were received since the last wake-up, the first of them ``first_replay_id`` (``None`` if
    there is none). ``through`` is the replay ID up to which all events have been reported with this wake-up: a watch
    that starts after it misses no event. ``None`` when no replay ID is known yet. ``confirmed_at`` is a moment of
    Salesforce's time (a lower bound): every event after ``through`` was published later; ``None`` without evidence.
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
    """Conditions that must hold before a wake-up. The defaults wake with the first event.

    :param min_events: wake once this many events were received since the last wake-up.
    :param max_wait: wake with fewer once the oldest of them is this many seconds old, by its event time (by its arrival
        if its payload has none). ``None``: never with fewer.
    :param min_interval: minimum seconds between two wake-ups, so that a burst of events causes few wake-ups. Events
        received in between are reported after the interval.
    :param until_confirmed: for a single wait: wake also when there is evidence for the end of the stream.
    """

    min_events: int = 1
    max_wait: float | None = None
    min_interval: float = 0.0
    until_confirmed: bool = False

    def __post_init__(self) -> None:
        check_wake_up_conditions(self.min_events, self.max_wait, self.min_interval)


class PendingEvents:
    """Events received since the last wake-up: their number, first replay ID and last position, without payloads.

    Times are seconds on one monotonic clock.
    """

    def __init__(self, conditions: WakeUpConditions) -> None:
        self._conditions = conditions
        self._event_count = 0
        self._first_replay_id: bytes | None = None
        self._through: bytes | None = None
        self._ready_at = inf
        self._not_before = -inf

    def __bool__(self) -> bool:
        return self._event_count > 0

    def add(self, first_replay_id: bytes, event_count: int, through: bytes) -> None:
        """Count received events, the last of them ``through``."""
        if not self._event_count:
            self._first_replay_id = first_replay_id
        self._event_count += event_count
        self._through = through
        if self._event_count >= self._conditions.min_events:
            self._ready_at = -inf

    def confirm(self, through: bytes) -> None:
        """Record a position that the server confirmed: there are no events between the last event and it."""
        self._through = through

    @property
    def wait_for_age(self) -> bool:
        """Return whether there are events, fewer than ``min_events``, whose age matters but is not known."""
        return bool(self) and self._ready_at == inf and self._conditions.max_wait is not None

    def oldest_is(self, age: float, now: float) -> None:
        """Record that the oldest event is ``age`` seconds old at ``now``; negative if the org's clock is ahead."""
        max_wait = self._conditions.max_wait or 0.0
        self._ready_at = now + min(max(0.0, max_wait - age), max_wait)

    @property
    def due(self) -> float:
        """Return the time to report the events; infinity if more must be received first."""
        return max(self._ready_at, self._not_before) if self else inf

    def take_wake_up(self, reason: WakeUpReason, now: float) -> WakeUp:
        """Return a wake-up that covers all counted events, and reset the count."""
        wake_up = WakeUp(reason, self._first_replay_id, self._event_count, self._through)
        self._event_count, self._first_replay_id, self._ready_at = 0, None, inf
        self._not_before = now + self._conditions.min_interval
        return wake_up

    def forget_position(self) -> None:
        """Discard the last position, which can no longer be used."""
        self._through = None


def payload(stream: Stream, wake_up: WakeUp) -> dict[str, Any]:
    """Return ``reason``, ``stream`` (``org_id``, ``api``, ``topic``, ``subscription``),
    ``first_replay_id``, ``through`` (hex text or ``None``) and ``event_count``; a confirmed end of the stream also as
    ``confirmed_at`` and ``contact_at`` (ISO 8601)."""
    document = {
        "reason": wake_up.reason.value,
        "stream": asdict(stream),
        "first_replay_id": replay_id_to_text(wake_up.first_replay_id),
        "through": replay_id_to_text(wake_up.through),
        "event_count": wake_up.event_count,
    }
    if wake_up.confirmed_at is None or wake_up.contact_at is None:
        return document
    times = {"confirmed_at": wake_up.confirmed_at, "contact_at": wake_up.contact_at}
    return document | {name: time.isoformat() for name, time in times.items()}


def error_payload(error: SalesforceStreamError) -> dict[str, Any]:
    """Return ``error`` as ``reason`` (``"error"``), ``error`` (the name of its class) and ``message``."""
    return {"reason": _ERROR, "error": type(error).__name__, "message": str(error)}


def error_from_payload(event: dict[str, Any]) -> SalesforceStreamError | None:
    """Return the error that ``event`` reports, of the same class; ``None`` if it reports none.

    A class that is missing from :mod:`airflow_provider_sfstream.exceptions` (the triggerer runs another version)
    becomes the base class of the errors, which is not retriable.
    """
    if event.get("reason") != _ERROR:
        return None
    name, message = str(event.get("error")), str(event.get("message"))
    error_class = getattr(exceptions, name, None)
    if isinstance(error_class, type) and issubclass(error_class, SalesforceStreamError):
        return error_class(message)
    return SalesforceStreamError(f"{name}: {message}")
