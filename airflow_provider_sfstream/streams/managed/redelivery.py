"""Which events a managed subscription delivers for the second time. Pure.

What was delivered and not committed comes again with the next stream (Pub/Sub API guide, "Managed Event
Subscriptions"), from the same event on and in the same order. Replay IDs can only be compared for equality, so the end
of what comes again is found by the one that was delivered last, or by asking which events are landed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from airflow_provider_sfstream.salesforce.events import EventBatch, StartFrom

IsLanded = Callable[[bytes], bool]
"""Whether the event with a replay ID is stored in a landed window. Asked for a few events of each response."""


@dataclass
class Redelivery:
    """The events at the beginning of a stream that were delivered before.

    ``through`` is the last of them, itself included. With ``is_landed`` they may also end before, with the last event
    that is landed; without, everything until ``through`` is one. ``is_over`` is whether all of them have come.
    """

    through: bytes | None = None
    is_landed: IsLanded | None = None
    is_over: bool = field(default=False, init=False)
    last: bytes | None = field(default=None, init=False)
    """The last of them that has come."""

    def __post_init__(self) -> None:
        self.is_over = self.through is None and self.is_landed is None

    def known(self, replay_ids: Sequence[bytes]) -> int:
        """Return how many of the next events, from the first on, were delivered before."""
        if self.is_over or not replay_ids:
            return 0
        if self.through in replay_ids:
            count, self.is_over = replay_ids.index(self.through) + 1, True
        else:
            count = self._landed(replay_ids)
            self.is_over = count < len(replay_ids)
        self.last = replay_ids[count - 1] if count else self.last
        return count

    def _landed(self, replay_ids: Sequence[bytes]) -> int:
        """Return how many are landed, without asking for each: landed windows are an unbroken run of the stream."""
        is_landed = self.is_landed
        if is_landed is None:
            return len(replay_ids)
        if not is_landed(replay_ids[0]):
            return 0
        if is_landed(replay_ids[-1]):
            return len(replay_ids)
        return bisect_left(replay_ids, True, key=lambda replay_id: not is_landed(replay_id))


@dataclass
class Delivered:
    """What a reader was given since the last commit, and so what a new stream begins with again.

    ``first`` and ``last`` are its events. ``confirmed`` is the position that an empty response confirmed last, with the
    last event before it. ``base`` is the start of the subscription that gave the first of them.
    """

    base: bytes | StartFrom = StartFrom.COMMITTED
    first: bytes | None = None
    last: bytes | None = None
    confirmed: tuple[bytes, bytes | None] | None = None

    def begin(self, start: bytes | StartFrom, is_landed: IsLanded | None) -> Redelivery:
        """Return what comes again before the events after ``start``.

        :param is_landed: applies where nothing was given, or nothing of it was kept.
        """
        if self.first is None:
            self.base = start
        through = start if isinstance(start, bytes) else None
        if self.first is None or start == self.base:
            return Redelivery(through if is_landed is not None else None, is_landed)
        if self.confirmed is not None and start == self.confirmed[0]:
            return Redelivery(self.confirmed[1])
        return Redelivery(through)

    def given(self, batch: EventBatch) -> None:
        """Note the events of a batch that the reader is given."""
        if len(batch):
            self.first = self.first or batch.replay_ids[0]
            self.last = batch.replay_ids[-1]

    def caught_up(self, replay_id: bytes) -> None:
        """Note that an empty response confirmed ``replay_id``."""
        self.confirmed = replay_id, self.last

    def forget(self) -> None:
        """Begin anew: what was given does not come again."""
        self.first = self.last = self.confirmed = None


def without_known(batch: EventBatch, count: int) -> EventBatch:
    """Return ``batch`` without its first ``count`` events. Without any, it is one that confirms no position."""
    if count < len(batch):
        return batch.part(count, len(batch))
    return EventBatch.without_events(received_at=batch.received_at)


def confirms(response: EventBatch) -> bool:
    """Return whether an empty response confirms a position: that no more events lie before it."""
    return len(response) == 0 and response.pending > 0 and bool(response.latest_replay_id)
