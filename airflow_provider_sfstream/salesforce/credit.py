"""Flow control of a subscription: the number and time of event requests.

At most 100 events may be outstanding on one Subscribe call; Salesforce silently treats more as 100 (Pub/Sub API guide,
"Flow control"). A client that requests more only after all events arrived loses a round trip for every 100 events, so
this accounting requests more as soon as half has arrived.
"""

from __future__ import annotations

MOST_OUTSTANDING = 100
"""Maximum of outstanding events of one Subscribe call."""


class Credit:
    """Counter of requested and received events. Not safe for concurrent use; the caller holds a lock.

    Guarantee: never more than 100 events outstanding, never more than ``limit`` events requested in total.

    :param limit: events to request over the whole subscription; ``None``: no limit.
    """

    def __init__(self, limit: int | None = None) -> None:
        if limit is not None and limit < 1:
            raise ValueError(f"limit={limit} must be at least 1, or None.")
        self._remaining = limit
        self.outstanding = 0
        """Requested events that have not arrived yet."""

    def received(self, count: int) -> None:
        """Record that ``count`` events arrived (0 for a keepalive)."""
        # Not below 0: a server may send more events than were requested.
        self.outstanding = max(0, self.outstanding - count)

    def request(self) -> int:
        """Return the number of events to request now, and record them as outstanding. 0: send no request.

        Tops up to 100 outstanding events once half of them has arrived.
        """
        if self.outstanding > MOST_OUTSTANDING // 2:
            return 0
        number = MOST_OUTSTANDING - self.outstanding
        if self._remaining is not None:
            number = min(number, self._remaining)
            self._remaining -= number
        self.outstanding += number
        return number

    def allow(self, count: int) -> None:
        """Raise the limit by ``count`` events, in place of received events that do not count."""
        if self._remaining is not None:
            self._remaining += count

    def stop(self) -> None:
        """Request no more events. Outstanding events may still arrive."""
        self._remaining = 0

    @property
    def exhausted(self) -> bool:
        """Return whether all events of the limit were requested and have arrived."""
        return self._remaining == 0 and self.outstanding == 0
