"""Flow control of a subscription: how many events to ask for, and when.

At most 100 events may be outstanding on one Subscribe call; Salesforce silently treats more as 100 (Pub/Sub API
guide, "Flow control"). A pipe that is asked for more only when it is empty loses a round trip for every 100 events,
so this accounting tops up as soon as half has come.
"""

from __future__ import annotations

MOST_OUTSTANDING = 100
"""Events that one Subscribe call may be owed."""


class Credit:
    """Counts what was asked for and what has come. Not safe for concurrent use; the caller holds a lock.

    Guarantee: never more than 100 events outstanding, never more than ``limit`` events asked for in total.

    :param limit: events to ask for over the whole subscription; ``None``: no limit.
    """

    def __init__(self, limit: int | None = None) -> None:
        if limit is not None and limit < 1:
            raise ValueError(f"limit={limit} must be at least 1, or None.")
        self._left = limit
        self.outstanding = 0
        """Events asked for that have not come yet."""

    def received(self, count: int) -> None:
        """Record that ``count`` events came (0 for a keepalive)."""
        self.outstanding = max(0, self.outstanding - count)

    def request(self) -> int:
        """Return how many events to ask for now, and record them as outstanding. 0: do not ask.

        Asks to be back at 100 outstanding, once half of that has come.
        """
        if self.outstanding > MOST_OUTSTANDING // 2:
            return 0
        number = MOST_OUTSTANDING - self.outstanding
        if self._left is not None:
            number = min(number, self._left)
            self._left -= number
        self.outstanding += number
        return number

    def allow(self, count: int) -> None:
        """Raise the limit by ``count`` events, such as have come and are not what was asked for."""
        if self._left is not None:
            self._left += count

    def stop(self) -> None:
        """Ask for nothing more. What was asked for may still come."""
        self._left = 0

    @property
    def exhausted(self) -> bool:
        """Whether everything that the limit allows was asked for and has come."""
        return self._left == 0 and self.outstanding == 0
