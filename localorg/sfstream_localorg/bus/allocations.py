"""Event allocations: how much may be delivered or published within a window of time."""

from __future__ import annotations

from collections.abc import Callable


class Allocation:
    """Counts use within a window that starts anew ``window_seconds`` after its first use.

    :param limit: how much is allowed in one window now, ``None`` for no limit.
    :param clock: seconds.
    """

    def __init__(self, window_seconds: float, limit: Callable[[], int | None], clock: Callable[[], float]) -> None:
        self._window_seconds = window_seconds
        self.limit = limit
        self._clock = clock
        self._since = 0.0
        self.used = 0

    def left(self) -> int | None:
        """Return how much may still be used, ``None`` for any amount."""
        if self._clock() - self._since >= self._window_seconds:
            self.reset()
        limit = self.limit()
        return None if limit is None else max(0, limit - self.used)

    def use(self, count: int) -> None:
        """Count something as used."""
        if self._clock() - self._since >= self._window_seconds:
            self.reset()
        self.used += count

    def reset(self) -> None:
        """Start a new window now."""
        self._since, self.used = self._clock(), 0
