"""The one cursor: where a reader of a stream stands, and what the server has shown it. Pure; the clocks are given.

Guarantee: the cursor says no more than the server showed.

- *Contact* is an answer: a response of the subscription, or of a call that was made on its connection.
- The stream is *idle* after a silence with contact proven after it. That claims nothing about time: it ends a wait.
- The end of the stream is *confirmed* by an empty response while events are owed, and for the moment at which that
  subscription was opened: whatever had been published by then has come, however slow the network is.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from airflow_provider_sfstream.protocol.events import EventBatch, StartFrom

UNPINNED = (StartFrom.LATEST, StartFrom.COMMITTED)
"""Starts that may be somewhere else the next time, until a replay ID was seen."""

PROOF_EVERY = 30.0
"""Seconds of silence after which contact is proven in a wait that goes on. Connections that carry nothing are cut by
middleboxes after 60 seconds and more."""


class Cursor:
    """Where a reader stands. ``position`` is where its next subscription begins.

    ``through`` is the replay ID of the last event taken, or one that the server confirmed; ``None`` before either.
    ``pinned`` is the first replay ID that a ``LATEST`` or ``COMMITTED`` start saw, at ``pinned_at``.
    ``contact_at`` is when the server last answered, ``confirmed_at`` a moment at which ``through`` was the end of the
    stream (``None``: not known); all by the worker's clock.

    :param clock: monotonic seconds. ``now`` is the time of day.
    """

    def __init__(self, start: bytes | StartFrom, clock: Callable[[], float], now: Callable[[], datetime]) -> None:
        self._clock, self._now = clock, now
        self.position = start
        self.through: bytes | None = None
        self.pinned: bytes | None = None
        self.pinned_at: datetime | None = None
        self.contact_at: datetime | None = None
        self.confirmed_at: datetime | None = None
        self._silent_since = self._opened = clock()
        self._opened_at = now()
        self._proven: float | None = None

    @property
    def is_pinned(self) -> bool:
        """Whether the next subscription would go on exactly here."""
        return self.position not in UNPINNED

    def opened(self) -> None:
        """Note that a subscription is about to be opened: what was shown before was shown on another one."""
        self._opened, self._opened_at, self._proven = self._clock(), self._now(), None

    def answered(self) -> None:
        """Note that the server answered: the subscription, or a call on its connection."""
        self._proven, self.contact_at = self._clock(), self._now()

    def was_answered(self, moment: datetime) -> None:
        """Note that another subscription was answered at ``moment``, with events that this reader takes."""
        self.contact_at = moment if self.contact_at is None else max(self.contact_at, moment)

    def without_known(self, batch: EventBatch) -> EventBatch:
        """Return ``batch`` without the event that the subscription began after, if that came once more."""
        return batch.part(1, len(batch)) if batch.replay_ids[0] == self.position else batch

    def events_came(self, batch: EventBatch) -> None:
        """Note that new events came. They are not taken yet; but they pin a start that was not, and end a silence."""
        self._pin(batch.replay_ids[0])
        self._silent_since = self._clock()

    def took(self, replay_id: bytes) -> None:
        """Move on to an event that was taken."""
        self.position = self.through = replay_id
        self.confirmed_at = None

    def confirms(self, response: EventBatch) -> bool:
        """Take what an empty response says; return whether it said that this is the end of the stream.

        It does while events are owed. It then names the position to go on from, on the Pub/Sub API.
        """
        if response.pending <= 0:
            return False
        self.confirmed_at = self._opened_at
        if response.latest_replay_id:
            self._pin(response.latest_replay_id)
            self.position = self.through = response.latest_replay_id
        return True

    def confirmed(self, moment: datetime) -> None:
        """Note that everything that was published before ``moment`` was taken."""
        self.confirmed_at = moment

    def _pin(self, replay_id: bytes) -> None:
        if not self.is_pinned:
            self.pinned, self.pinned_at = replay_id, self._now()

    def go_on_from(self, start: StartFrom) -> None:
        """Begin elsewhere: the position can no longer be read."""
        self.position, self.confirmed_at = start, None
        self._silent_since = self._clock()

    def is_idle(self, seconds: float) -> bool:
        """Return whether this subscription saw no event for ``seconds``, and contact was proven after that."""
        return self._proven is not None and self._proven >= self._quiet_since + seconds

    def wants_proof(self, seconds: float) -> bool:
        """Return whether it is time to prove contact: for :meth:`is_idle`, or because an answer is long ago."""
        now = self._clock()
        if self._proven is None or self._proven < self._quiet_since + seconds:
            return now >= self._quiet_since + min(seconds, PROOF_EVERY)
        return now >= self._proven + PROOF_EVERY

    @property
    def _quiet_since(self) -> float:
        return max(self._silent_since, self._opened)
