"""Salesforce's time, measured once and extrapolated with a monotonic clock. Pure.

A worker's time of day can be wrong by hours, and a drain cannot detect that. So proofs about time use the ``Date``
header of an HTTP response. It has whole seconds, and the transfer takes time, so each time is an interval; a proof uses
the conservative end of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

_RESOLUTION = timedelta(seconds=1)
"""Resolution of the ``Date`` header, which is rounded down (RFC 9110, section 5.6.7)."""


@dataclass(frozen=True)
class ServerTime:
    """Bounds of Salesforce's time at any reading of a monotonic clock.

    :param date: the ``Date`` header of a response, with a time zone.
    :param sent: reading of the clock before the request was sent.
    :param received: reading of the same clock after the response was received.
    """

    date: datetime
    sent: float
    received: float

    def earliest(self, reading: float) -> datetime:
        """Return the earliest time that Salesforce's clock can have shown at ``reading``, which is after ``sent``."""
        return self.date + timedelta(seconds=reading - self.received)

    def latest(self, reading: float) -> datetime:
        """Return the latest time that Salesforce's clock can have shown at ``reading``."""
        return self.date + _RESOLUTION + timedelta(seconds=reading - self.sent)
