"""The end of a stream that never falls silent, for a drain that has to reach it.

Salesforce names the end of a quiet stream, of its own accord; of a busy one it never does. But the first event that
comes to a second subscription, opened at the latest event, was published after that was opened: a drain that has taken
this event has taken everything that was published before.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime

from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.reading.source import EventSource, Responses, StartFrom

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.001
_BATCHES_KEPT = 1_000
"""Batches in which the event is looked for when it is known. It comes to both subscriptions at about the same time."""


class EndMarker:
    """An event that was published after ``opened_at`` (this machine's clock). It costs one event of the allocation.

    Faults of the second subscription are not the drain's: it is then opened again, later.
    """

    def __init__(self, source: EventSource, topic: str, now: Callable[[], datetime]) -> None:
        self._source, self._topic, self._now = source, topic, now
        self._responses: Responses | None = None
        self._marker: bytes | None = None
        self._taken: deque[Sequence[bytes]] = deque(maxlen=_BATCHES_KEPT)
        self.opened_at = now()

    def open(self) -> None:
        """Open the second subscription, unless it is open or has told its event."""
        if self._responses is None and self._marker is None:
            self.opened_at = self._now()
            self._taken.clear()
            self._responses = self._source.subscribe(self._topic, StartFrom.LATEST, limit=1, idle_timeout=_LOOK_SECONDS)
            self._look()

    def is_passed(self, replay_ids: Sequence[bytes] = ()) -> bool:
        """Return whether the event is among all that was taken since, ``replay_ids`` being the last."""
        if replay_ids:
            self._taken.append(replay_ids)
        known, marker = self._marker, self._marker or self._look()
        if marker is None:
            return False
        return marker in replay_ids if known else any(marker in taken for taken in self._taken)

    def close(self) -> None:
        """End the second subscription."""
        responses, self._responses = self._responses, None
        if responses is not None:
            responses.close()

    def _look(self) -> bytes | None:
        if self._responses is None:
            return None
        try:
            response = next(self._responses, None)
        except SalesforceStreamError as error:
            log.info("%s: the subscription that looks for the end of the stream failed: %s", self._topic, error)
            self.close()
            return None
        if response is not None and len(response):
            self._marker = response.replay_ids[0]
            self.close()
        return self._marker
