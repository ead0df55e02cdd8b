"""Result and progress of a drain."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from airflow_provider_sfstream.salesforce.streams import Gap
from airflow_provider_sfstream.streams.drain.limits import StopReason
from airflow_provider_sfstream.streams.source import PayloadEncoding, StartFrom

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DrainResult:
    """Result of a drain.

    ``through`` is the replay ID of the last event passed to the sink, or one that an empty response named; ``None`` if
    there was neither, and the position does not move. ``gap`` is set when a lost replay ID was accepted. ``pinned`` is
    the first replay ID that a subscription to ``LATEST`` or ``COMMITTED`` received, at ``pinned_at``: no event
    published later is missing. ``payload_bytes`` counts payloads as received, ``reconnects`` the subscriptions after
    the first. ``contact_at`` is the time of the server's last answer. ``confirmed_at`` is a moment before which every
    published event was read by the drain; ``None`` without evidence. ``began_at`` is the start of the drain. These
    times are Salesforce's: ``confirmed_at`` and ``began_at`` are lower bounds, ``pinned_at`` and ``contact_at`` are
    upper bounds, and all are ``None`` where Salesforce's time could not be measured.
    """

    stop_reason: StopReason
    through: bytes | None
    event_count: int
    payload_bytes: int
    gap: Gap | None
    reconnects: int
    pinned: bytes | None
    contact_at: datetime | None = None
    confirmed_at: datetime | None = None
    pinned_at: datetime | None = None
    began_at: datetime | None = None


@dataclass(frozen=True)
class ConfirmedEnd:
    """Evidence of a trigger that no event follows ``after``, for the moment ``opened_at``.

    ``through`` is the replay ID that the last empty response named; ``after`` where there was none. Times are
    Salesforce's: ``opened_at`` is a lower bound, ``contact_at`` an upper bound of the last answer.
    """

    after: bytes
    through: bytes
    opened_at: datetime
    contact_at: datetime

    payload_encoding: PayloadEncoding = "avro"

    def drained(self, topic: str, after: bytes | StartFrom) -> DrainResult:
        """Return the result of a drain that begins at ``after`` and receives no event.

        :raises ValueError: if ``after`` is another position.
        """
        if after != self.after:
            raise ValueError(
                f"{topic}: the end of the stream was confirmed after replay ID {self.after.hex()}, but the position "
                "has moved since. Nothing was recorded. Run the task again."
            )
        return DrainResult(
            stop_reason=StopReason.CAUGHT_UP,
            through=self.through,
            event_count=0,
            payload_bytes=0,
            gap=None,
            reconnects=0,
            pinned=None,
            contact_at=self.contact_at,
            confirmed_at=self.opened_at,
        )

    def schema(self, schema_id: str) -> str | None:
        """Return ``None``: there are no events."""
        return None

    def renew_session(self) -> None:
        """Do nothing: there is no session."""


INTERVAL = 10.0
"""Seconds between two reports."""


class ProgressReporter:
    """Reporter that logs the progress of a drain about every ten seconds: events so far, events per second since the
    last report, and the age of the last event, if its event time is known."""

    def __init__(self, topic: str, clock: Callable[[], float], now: Callable[[], datetime]) -> None:
        self._topic, self._clock, self._now = topic, clock, now
        self._reported_at = clock()
        self._reported_count = 0

    def update(self, event_count: int, last_event_time: Callable[[], datetime | None]) -> None:
        """Report if ten seconds have passed. ``last_event_time`` is only called when they have."""
        elapsed = self._clock() - self._reported_at
        if elapsed < INTERVAL:
            return
        time = last_event_time()
        last = "" if time is None else f"; the last event is {(self._now() - time).total_seconds():,.0f} s old"
        rate = (event_count - self._reported_count) / elapsed
        log.info("%s: %s events, %s events/s%s", self._topic, f"{event_count:,}", f"{rate:,.0f}", last)
        self._reported_at += elapsed
        self._reported_count = event_count
