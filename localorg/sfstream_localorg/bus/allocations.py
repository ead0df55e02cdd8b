"""Event allocations: limits on delivered or published events per time window."""

from __future__ import annotations

from collections.abc import Callable


class Allocation:
    """Counter of use in a time window. A new window starts with the first use after ``window_seconds``.

    :param limit: returns the current limit of one window, ``None`` for no limit.
    :param clock: returns the time in seconds.
    """

    def __init__(self, window_seconds: float, limit: Callable[[], int | None], clock: Callable[[], float]) -> None:
        self._window_seconds = window_seconds
        self.limit = limit
        self._clock = clock
        self._since = 0.0
        self.used = 0

    def left(self) -> int | None:
        """Return the remaining allowance, ``None`` for no limit."""
        if self._clock() - self._since >= self._window_seconds:
            self.reset()
        limit = self.limit()
        return None if limit is None else max(0, limit - self.used)

    def use(self, count: int) -> None:
        """Add a count to the used amount."""
        if self._clock() - self._since >= self._window_seconds:
            self.reset()
        self.used += count

    def reset(self) -> None:
        """Start a new window now."""
        self._since, self.used = self._clock(), 0
