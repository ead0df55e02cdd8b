"""Evidence that a reader has read everything that was published before a moment. Pure.

An empty response of the reader's own subscription is not enough: Salesforce may send it while it still seeks through
the backlog (Salesforce Knowledge 005321562). A second subscription that begins at ``LATEST`` has no backlog, so each
replay ID that it receives is a reference: everything published before it was requested precedes that replay ID.

The reader has reached the end for the moment of that request when

- it receives the first event of the second subscription, or the replay ID that the second subscription's empty response
  names: with an event or an empty response of its own. That its position is that replay ID from the start is not
  enough: only a response of its own gives a position a new age; or
- both subscriptions sent an empty response, and the reader's replay ID is not behind that of the second subscription.

Replay IDs are opaque. Their order only withholds the last claim, which rests on the two responses, and an ID in an
unknown form withholds it too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from airflow_provider_sfstream.salesforce.events import EventBatch

_BATCHES_KEPT = 1_000
"""Batches of the reader in which a reference is searched that arrives after them. It arrives at about the same time."""
_KNOWN_LENGTHS = (8, 10)
"""Bytes of the forms of replay IDs that were observed on the Pub/Sub API."""


class EndOfStream:
    """Comparison of a reader with one second subscription at ``LATEST``."""

    def __init__(self) -> None:
        self._events: deque[Sequence[bytes]] = deque(maxlen=_BATCHES_KEPT)
        self._reader_empty: bytes | None = None
        self._position: bytes | None = None
        self._first_event: bytes | None = None
        self._latest: bytes | None = None
        self.is_reached = False

    @property
    def has_event(self) -> bool:
        """Whether the second subscription received an event, after which it is not needed."""
        return self._first_event is not None

    def reader_took(self, replay_ids: Sequence[bytes]) -> None:
        """Record events that the reader took."""
        if replay_ids:
            self._events.append(replay_ids)
            self._position = replay_ids[-1]
            self._compare(replay_ids)

    def reader_answered(self, response: EventBatch) -> None:
        """Record an empty response of the reader's subscription."""
        if response.pending > 0 and response.latest_replay_id:
            self._reader_empty = self._position = response.latest_replay_id
            self._compare(())

    def reference_answered(self, response: EventBatch) -> None:
        """Record a response of the second subscription."""
        if len(response):
            self._first_event = self._first_event or response.replay_ids[0]
        elif response.latest_replay_id:
            self._latest = self._latest or response.latest_replay_id
        for replay_ids in (*self._events, ()):
            self._compare(replay_ids)

    def _compare(self, replay_ids: Sequence[bytes]) -> None:
        references = [replay_id for replay_id in (self._first_event, self._latest) if replay_id is not None]
        self.is_reached = (
            self.is_reached
            or any(reference == self._position or reference in replay_ids for reference in references)
            or (self._latest is not None and _is_not_behind(self._reader_empty, self._latest))
        )


def _is_not_behind(replay_id: bytes | None, reference: bytes) -> bool:
    """Return whether ``replay_id`` is in the known form of ``reference`` and not ordered before it."""
    if replay_id is None or len(replay_id) != len(reference) or len(reference) not in _KNOWN_LENGTHS:
        return False
    return replay_id >= reference
