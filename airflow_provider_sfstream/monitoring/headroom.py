"""Time until a stream loses events: proven by Salesforce, or estimated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_sfstream.monitoring.status import Certainty, certainty_of


@dataclass(frozen=True)
class Headroom:
    """The remaining time to read unread events before Salesforce deletes them.

    :param proven_until: the last moment for which the end of the stream was proven: each unread event is younger.
        ``None`` without proof of an end.
    :param estimated_until: the last estimate of that moment, if it is later: the time of the last stored event,
        which its publisher set, an end of the stream that is only estimated, or the answer after which the last drain
        ended idle. ``None`` without an estimate.
    :param is_retention_proven: ``False``: ``retention`` is a lower bound.
    :param is_by_idle: ``estimated_until`` is the answer after which the last drain ended idle.
    """

    proven_until: datetime | None
    estimated_until: datetime | None
    retention: timedelta
    is_retention_proven: bool
    now: datetime
    is_by_idle: bool = False

    @classmethod
    def from_drain(cls, drain: Mapping[str, Any], now: datetime) -> Headroom:
        """Return the headroom of a stream at ``now``, by the section ``drain`` of its status."""
        certainty = certainty_of(drain)
        confirmed, contact, event = (
            _time(drain.get(fact)) for fact in ("confirmed_at", "contact_at", "last_event_time")
        )
        proven = confirmed if certainty["confirmed_at"] == "proven" else None
        if event is not None and contact is not None and contact < event <= now:
            event = contact  # the event was published before Salesforce answered, independent of its publisher's time
        times = [time for time in (confirmed, event) if time is not None and time <= now]
        is_idle = contact is not None and _ended_unconfirmed(drain.get("window") or {}, proven)
        if contact is not None and is_idle:
            times.append(min(contact, now))
        return cls(
            proven_until=proven,
            estimated_until=max((time for time in times if proven is None or time > proven), default=None),
            retention=timedelta(seconds=drain["retention"]),
            is_retention_proven=certainty["retention"] == "proven",
            now=now,
            is_by_idle=is_idle,
        )

    @property
    def until(self) -> datetime | None:
        """The time up to which all events are stored: proven or, if that is later, estimated."""
        return self.proven_until if self.estimated_until is None else self.estimated_until

    @property
    def known(self) -> timedelta | None:
        """The remaining time by ``proven_until``. Below zero, unread events may be lost already."""
        return self._remaining(self.proven_until)

    @property
    def assumed(self) -> timedelta | None:
        """The remaining time by ``estimated_until``."""
        return self._remaining(self.estimated_until)

    @property
    def best(self) -> timedelta | None:
        """The remaining time by ``until``."""
        return self._remaining(self.until)

    @property
    def certainty(self) -> Certainty:
        """The certainty of ``best``."""
        if self.until is None:
            return "unknown"
        return "proven" if self.estimated_until is None and self.is_retention_proven else "estimated"

    def _remaining(self, until: datetime | None) -> timedelta | None:
        return None if until is None else until + self.retention - self.now


def _ended_unconfirmed(window: Mapping[str, Any], proven: datetime | None) -> bool:
    """Return whether the drain of a window received all events by its own limits, without a confirmed end.

    A confirmed end is proof, and must not become an estimate because Salesforce answered a second later.
    """
    if window.get("stop_reason") not in ("idle", "caught_up"):
        return False
    started_at = _time(window.get("started_at"))
    return proven is None or started_at is None or proven < started_at


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
