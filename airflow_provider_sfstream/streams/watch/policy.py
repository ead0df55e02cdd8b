"""When to tell of the events that came: the conditions of a wake-up as arithmetic on a clock, without any I/O."""

from __future__ import annotations

from math import inf

from airflow_provider_sfstream.streams.watch.conditions import WakeUp, WakeUpConditions, WakeUpReason


class Untold:
    """The events that came since the last wake-up: their number, first replay ID and last position, no payload.

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
        """Count events that came, the last of them ``through``."""
        if not self._event_count:
            self._first_replay_id = first_replay_id
        self._event_count += event_count
        self._through = through
        if self._event_count >= self._conditions.min_events:
            self._ready_at = -inf

    def confirm(self, through: bytes) -> None:
        """Note a position that the server confirmed: there is nothing between the last event and it."""
        self._through = through

    @property
    def wait_for_age(self) -> bool:
        """Whether there are events, too few of them, and their age counts but is not known."""
        return bool(self) and self._ready_at == inf and self._conditions.max_wait is not None

    def oldest_is(self, age: float, now: float) -> None:
        """Note that the oldest event is ``age`` seconds old at ``now``; below 0 where the org's clock is ahead."""
        max_wait = self._conditions.max_wait or 0.0
        self._ready_at = now + min(max(0.0, max_wait - age), max_wait)

    @property
    def due(self) -> float:
        """When to tell of the events; infinity if more must come first."""
        return max(self._ready_at, self._not_before) if self else inf

    def tell(self, reason: WakeUpReason, now: float) -> WakeUp:
        """Return a wake-up that covers all of them, and begin anew."""
        told = WakeUp(reason, self._first_replay_id, self._event_count, self._through)
        self._event_count, self._first_replay_id, self._ready_at = 0, None, inf
        self._not_before = now + self._conditions.min_interval
        return told

    def forget_position(self) -> None:
        """Note that the last position is of no more use."""
        self._through = None
