"""Position of a reader in a stream, and the evidence for it. Pure; the clock is an argument.

- *Contact* is an answer: a response of the subscription, or of a call on its connection.
- A stream is *idle* after a span without events that an answer follows. It ends a wait and proves nothing about time.
- An empty response of the Pub/Sub API names a position from which reading can continue. It does not confirm the end of
  the stream: Salesforce may send it while it still seeks through its backlog (Salesforce Knowledge 005321562).
  :class:`~airflow_provider_sfstream.streams.end_of_stream.EndOfStream` holds the evidence for an end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from airflow_provider_sfstream.salesforce.events import EventBatch, StartFrom
from airflow_provider_sfstream.salesforce.server_time import ServerTime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UNPINNED = (StartFrom.LATEST, StartFrom.COMMITTED)
"""Starts that can name another position at the next subscription, until a replay ID was received."""

PROOF_EVERY = 30.0
"""Seconds without an answer after which a long wait requests one. Middleboxes cut connections that carry nothing for 60
seconds or more."""


class Cursor:
    """Position of a reader. Its next subscription yields the events after ``after``.

    ``through`` is the replay ID of the last event that the reader took, or one that an empty response named; ``None``
    before either. ``pinned`` is the first replay ID that a ``LATEST`` or ``COMMITTED`` start received. ``pinned_at``
    and ``contact_at`` are upper bounds of Salesforce's time when that replay ID, and the last answer, were received;
    ``None`` where Salesforce's time was not measured. ``is_answered`` is true after the first answer.
    """

    def __init__(self, after: bytes | StartFrom, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.server_time: ServerTime | None = None
        """Salesforce's time, measured with ``clock``; ``None`` before the measurement."""
        self.after = after
        self.through: bytes | None = None
        self.pinned: bytes | None = None
        self.pinned_at: datetime | None = None
        self.contact_at: datetime | None = None
        self.is_answered = False
        self.first_event_after: float | None = None
        """Seconds from the opening of this subscription to its first event; ``None`` before it."""
        self.last_event_at: datetime | None = None
        """Upper bound of Salesforce's time when the last event was received; ``None`` as for ``contact_at``."""
        self._silent_since = self._opened_at = clock()
        self._answered_at: float | None = None

    @property
    def is_pinned(self) -> bool:
        """Return whether the next subscription would continue exactly at ``after``."""
        return self.after not in _UNPINNED

    def opened(self) -> None:
        """Record that a subscription is about to open: answers to earlier subscriptions are no evidence for it."""
        self._opened_at, self._answered_at, self.first_event_after = self._clock(), None, None

    def answered(self) -> None:
        """Record an answer of the server: of the subscription, or of a call on its connection."""
        self.is_answered, self._answered_at, self.contact_at = True, self._clock(), self.latest_time()

    def latest_time(self) -> datetime | None:
        """Return an upper bound of Salesforce's time now, ``None`` if it was not measured."""
        return None if self.server_time is None else self.server_time.latest(self._clock())

    @property
    def contact_nanoseconds(self) -> int | None:
        """Return ``contact_at`` as nanoseconds since the epoch."""
        return None if self.contact_at is None else (self.contact_at - _EPOCH) // _MICROSECOND * 1_000

    def known(self, replay_ids: Sequence[bytes]) -> int:
        """Return 1 if Salesforce delivered the event ``after`` again as the first of these events, else 0."""
        return int(replay_ids[0] == self.after)

    def events_came(self, replay_id: bytes) -> None:
        """Record that new events were received, the first with ``replay_id``: they pin an unpinned start, and end an
        idle span."""
        self._pin(replay_id)
        self._silent_since = self._clock()
        self.last_event_at = self.latest_time()
        if self.first_event_after is None:
            self.first_event_after = self._silent_since - self._opened_at

    def took(self, replay_id: bytes) -> None:
        """Move to the event ``replay_id``, which the reader took."""
        self.after = self.through = replay_id

    def advance(self, response: EventBatch) -> None:
        """Move to the position that an empty response with pending requests names."""
        if response.confirms_position:
            self._pin(response.latest_replay_id)
            self.after = self.through = response.latest_replay_id

    def _pin(self, replay_id: bytes) -> None:
        if not self.is_pinned:
            self.pinned, self.pinned_at = replay_id, self.latest_time()

    def restart_at(self, after: StartFrom) -> None:
        """Restart at ``after``, because the position can no longer be read."""
        self.after = after
        self._silent_since = self._clock()

    def is_idle(self, seconds: float) -> bool:
        """Return whether this subscription received no event for ``seconds``, followed by an answer."""
        return self._answered_at is not None and self._answered_at >= self._quiet_since + seconds

    def wants_proof(self, seconds: float) -> bool:
        """Return whether to request an answer: for :meth:`is_idle`, or because the last answer is too old."""
        now = self._clock()
        if self._answered_at is None or self._answered_at < self._quiet_since + seconds:
            return now >= self._quiet_since + min(seconds, PROOF_EVERY)
        return now >= self._answered_at + PROOF_EVERY

    @property
    def _quiet_since(self) -> float:
        return max(self._silent_since, self._opened_at)
