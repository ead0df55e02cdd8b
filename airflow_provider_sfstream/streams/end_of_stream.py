"""Evidence that a reader has read everything that was published before a moment.

An empty response of the reader's own subscription is not enough: Salesforce may send it while it still seeks through
the backlog (Salesforce Knowledge 005321562). A second subscription that begins at ``LATEST`` has no backlog. Each
replay ID that it receives is therefore a reference: everything published before that subscription was requested
precedes it. The second subscription costs one call and at most one delivered event. On a quiet topic it also takes the
time until Salesforce sends an empty response, which is at most 270 seconds.

The reader has reached the end for the moment of that request when

- it receives the reference, in an event or an empty response of its own subscription. The reference is the first event
  of the second subscription, or the replay ID in its empty response. A reader that starts at this replay ID has not
  reached the end yet: only a response of its own subscription confirms a position again; or
- both subscriptions sent an empty response, and the reader's replay ID is not behind that of the second subscription.

Replay IDs are opaque. The second rule rests on the two responses: the order or form of the IDs can only prevent it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import datetime

from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.salesforce.events import EventBatch, StartFrom
from airflow_provider_sfstream.salesforce.replay_ids import KNOWN_LENGTHS
from airflow_provider_sfstream.salesforce.server_time import ServerTime
from airflow_provider_sfstream.streams.source import AsyncEventSource, EventSource, Responses

log = logging.getLogger(__name__)

_BATCHES_KEPT = 1_000
"""Number of the reader's latest batches to search for a reference, which arrives at about the same time as they do."""
_READ_SECONDS = 0.001
_REOPEN_SECONDS = 5.0
"""Seconds between a fault of the second subscription and the next try, so that a lasting fault costs few calls."""


class EndOfStream:
    """Comparison of a reader with one second subscription at ``LATEST``.

    :param opened_at: lower bound of Salesforce's time when that was requested; ``None`` if time was not measured.
    """

    def __init__(self, opened_at: datetime | None = None) -> None:
        self.opened_at = opened_at
        self._events: deque[Sequence[bytes]] = deque(maxlen=_BATCHES_KEPT)
        self._reader_empty: bytes | None = None
        self._position: bytes | None = None
        self._first_event: bytes | None = None
        self._latest: bytes | None = None
        self.is_reached = False

    @property
    def has_event(self) -> bool:
        """Return whether the second subscription received its event, so that it is not needed any more."""
        return self._first_event is not None

    @property
    def has_reference(self) -> bool:
        """Return whether the second subscription received a replay ID to compare the reader with."""
        return self._first_event is not None or self._latest is not None

    def reader_took(self, replay_ids: Sequence[bytes]) -> None:
        """Record events that the reader took."""
        if replay_ids:
            self._events.append(replay_ids)
            self._position = replay_ids[-1]
            self._compare(replay_ids)

    def reader_answered(self, response: EventBatch) -> None:
        """Record an empty response of the reader's subscription."""
        if response.confirms_position:
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
    """Return whether ``replay_id`` has a known form, the same as ``reference``, and does not precede it."""
    if replay_id is None or len(replay_id) != len(reference) or len(reference) not in KNOWN_LENGTHS:
        return False
    return replay_id >= reference


class TipProbe:
    """A second subscription at ``LATEST``, parallel to that of the drain, and the resulting evidence.

    A fault of this subscription does not end the drain. The next subscription of the drain opens it again, or the drain
    does while it waits. Otherwise a connection that breaks under both subscriptions would leave the end unconfirmed.
    """

    def __init__(self, source: EventSource, topic: str, clock: Callable[[], float]) -> None:
        self._source, self._topic, self._clock = source, topic, clock
        self._responses: Responses | None = None
        self._evidence = EndOfStream()
        self.answered_at: datetime | None = None
        """Upper bound of Salesforce's time at the last answer of this subscription, if any; ``None`` as above."""
        self._server_time: ServerTime | None = None
        self._failed_at: float | None = None

    @property
    def opened_at(self) -> datetime | None:
        """Lower bound of Salesforce's time when this subscription was requested; ``None`` if time was not measured."""
        return self._evidence.opened_at

    @property
    def is_reached(self) -> bool:
        """Return whether the drain has taken everything that was published before :attr:`opened_at`."""
        return self._evidence.is_reached

    def open(self, server_time: ServerTime | None) -> None:
        """Open the subscription, unless it is open or has received its event."""
        if self._responses is None and not self._evidence.has_event:
            self._server_time = server_time
            self._evidence = EndOfStream(None if server_time is None else server_time.earliest(self._clock()))
            self._responses = self._source.latest(self._topic, idle_timeout=_READ_SECONDS)
            self._failed_at = None
            self.read_available()

    def reopen(self, server_time: ServerTime | None) -> None:
        """Open the subscription again 5 seconds after a retriable fault, unless it had received a replay ID."""
        is_due = self._failed_at is not None and self._clock() >= self._failed_at + _REOPEN_SECONDS
        if is_due and not self._evidence.has_reference:
            self.open(server_time)

    def took(self, replay_ids: Sequence[bytes]) -> None:
        """Record events that the drain took."""
        self._evidence.reader_took(replay_ids)
        self.read_available()

    def answered(self, response: EventBatch) -> None:
        """Record an empty response of the drain's subscription."""
        self._evidence.reader_answered(response)
        self.read_available()

    def read_available(self) -> None:
        """Read the responses that have arrived on the second subscription."""
        while self._responses is not None and not self._evidence.is_reached:
            try:
                response = next(self._responses, None)
            except SalesforceStreamError as error:
                log.info("%s: the subscription that looks for the end of the stream failed: %s", self._topic, error)
                self.close()
                self._failed_at = self._clock() if error.retriable else None
                return
            if response is None:
                return
            if self._server_time is not None:
                self.answered_at = self._server_time.latest(self._clock())
            self._evidence.reference_answered(response)
            if len(response):
                self.close()

    def discard(self) -> None:
        """Delete the evidence: the drain lost its position, so earlier replay IDs prove nothing."""
        self.close()
        self._evidence = EndOfStream()
        self.answered_at = self._failed_at = None

    def close(self) -> None:
        """Close the second subscription."""
        responses, self._responses = self._responses, None
        if responses is not None:
            responses.close()


@asynccontextmanager
async def reference(
    source: AsyncEventSource,
    topic: str,
    server_time: ServerTime | None,
    *,
    silence_timeout: float,
    clock: Callable[[], float],
) -> AsyncIterator[EndOfStream | None]:
    """Read a second subscription to ``topic`` in the background until the context exits.

    Yield ``None`` if no end can be confirmed: the API names no positions, or Salesforce's time was not measured. A
    retriable fault is followed by another subscription, unless a replay ID was received before it.
    """
    if server_time is None or not source.confirms_positions:
        yield None
        return
    end = EndOfStream(server_time.earliest(clock()))

    async def read() -> None:
        # A reference that was received later also follows everything that was published before ``opened_at``.
        while not end.has_reference:
            subscription = source.subscribe(topic, StartFrom.LATEST, limit=1, silence_timeout=silence_timeout)
            try:
                async with aclosing(subscription) as responses:
                    async for response in responses:
                        end.reference_answered(response)
            except SalesforceStreamError as error:
                log.info("%s: the subscription that looks for the end of the stream failed: %s", topic, error)
                if not error.retriable:
                    return
            await asyncio.sleep(_REOPEN_SECONDS)

    task = asyncio.create_task(read())
    try:
        yield end
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
