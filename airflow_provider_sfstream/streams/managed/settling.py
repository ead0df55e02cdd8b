"""The replay ID to commit, for a managed subscription that did not continue after the recorded position. Pure.

Only a replay ID that the managed stream has delivered, or an empty response of it has named, can be committed. So the
stream is read until it delivers the end of the recorded windows, or names a position with no event in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from airflow_provider_sfstream.salesforce.events import EventBatch
from airflow_provider_sfstream.streams.managed.comparison import is_later
from airflow_provider_sfstream.streams.managed.redelivery import confirms

_BATCHES = 1_000


@dataclass
class Settling:
    """Responses of the managed stream, and of an ordinary subscription at ``end``: the end of the recorded windows."""

    end: bytes
    commit: bytes | None = field(default=None, init=False)
    """The replay ID to commit: every event up to it is stored. ``None``: none so far, or none is needed."""
    is_over: bool = field(default=False, init=False)
    is_ahead: bool = field(default=False, init=False)
    """The managed stream continues after an event that is not stored yet, so that nothing can be committed."""
    _first: bytes | None = field(default=None, init=False)
    _recent: deque[Sequence[bytes]] = field(default_factory=lambda: deque(maxlen=_BATCHES), init=False)
    _following: bytes | None = field(default=None, init=False)
    _quiet_until: bytes | None = field(default=None, init=False)
    _named: bytes | None = field(default=None, init=False)

    def ordinary(self, response: EventBatch | None) -> None:
        """Note a response of the ordinary subscription: the event after ``end``, or that there is none."""
        if response is None or self.is_over:
            return
        if len(response):
            self._following = response.replay_ids[0]
            if self._named is not None and self._first is None:
                self._stop(is_ahead=True)
            self._find_following()
        elif confirms(response):
            self._quiet_until = response.latest_replay_id
            self._compare_ends()

    def managed(self, response: EventBatch | None) -> None:
        """Note a response of the managed stream."""
        if response is None or self.is_over:
            return
        if len(response):
            self._first = self._first or response.replay_ids[0]
            self._recent.append(response.replay_ids)
            if self.end in response.replay_ids:
                self._stop(self.end)
            else:
                self._find_following()
        elif confirms(response):
            self._named = response.latest_replay_id
            if self._following is not None:
                self._stop(is_ahead=True)
            else:
                self._compare_ends()

    def _find_following(self) -> None:
        """End with the event before the one that follows ``end``: ``end`` itself may be between two events."""
        following, before = self._following, None
        if following is None or self.is_over:
            return
        for replay_ids in self._recent:
            if following in replay_ids:
                index = replay_ids.index(following)
                self._stop(replay_ids[index - 1] if index else before)
                return
            before = replay_ids[-1]
        if self._first is not None and is_later(self._first, following):
            self._stop(is_ahead=True)

    def _compare_ends(self) -> None:
        """End where both streams are quiet: no event lies between ``end`` and what the ordinary one named."""
        named, quiet_until = self._named, self._quiet_until
        if named is None or quiet_until is None:
            return
        if named == quiet_until or is_later(quiet_until, named):
            self._stop(named)

    def _stop(self, commit: bytes | None = None, *, is_ahead: bool = False) -> None:
        self.commit, self.is_ahead, self.is_over = commit, is_ahead, True
