"""Wake-ups from the events of a topic: one for a single wait, or an endless sequence for asset watchers.

A wake-up reports that there are events to drain, never their content. The drain reads from its own position.
"""

from __future__ import annotations

import asyncio
import logging
import random as random_module
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf
from typing import TYPE_CHECKING

from airflow_provider_sfstream.exceptions import ReplayIdLostError, SalesforceStreamError
from airflow_provider_sfstream.salesforce.events import CONFIRM_TIMEOUT, EventBatch, PayloadEncoding, StartFrom
from airflow_provider_sfstream.salesforce.read_ahead import ReadAhead
from airflow_provider_sfstream.streams.cursor import Cursor
from airflow_provider_sfstream.streams.end_of_stream import EndOfStream, reference
from airflow_provider_sfstream.streams.source import AsyncEventSource
from airflow_provider_sfstream.streams.watch.arrivals import arrivals
from airflow_provider_sfstream.streams.watch.conditions import PendingEvents, WakeUp, WakeUpConditions, WakeUpReason

if TYPE_CHECKING:
    from airflow_provider_sfstream.salesforce.event_time import TimeReader

log = logging.getLogger(__name__)

SILENCE_TIMEOUT = CONFIRM_TIMEOUT
"""Seconds without any response after which a subscription counts as dead."""
_LOOK_EVERY = 1.0
"""Seconds between two checks of the second subscription's evidence, while a wait looks for the end of the stream."""


@dataclass
class Watch:
    """Watch of the events of ``topic`` after ``after``, for one call of :meth:`first_wake_up` or :meth:`wake_ups`.

    Retries transient faults without limit. A permanent fault is raised: a watch that starts after the last ``through``
    receives the unreported events again.

    :param after: a replay ID, which is not delivered again; ``EARLIEST``; or ``LATEST``: new events only.
    :param silence_timeout: seconds without any response, keepalives included, after which to subscribe again.
    """

    source: AsyncEventSource
    topic: str
    after: bytes | StartFrom
    conditions: WakeUpConditions
    silence_timeout: float = SILENCE_TIMEOUT
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random_module.random

    def __post_init__(self) -> None:
        self._cursor = Cursor(self.after, self.clock)
        self._pending = PendingEvents(self.conditions)
        self._event_times = EventTimes(self.source)
        self._unpinned = self.after if isinstance(self.after, StartFrom) else None
        """The start until the first response, then ``None``."""

    async def first_wake_up(self) -> WakeUp:
        """Return once ``min_events`` were received, or fewer if the oldest is ``max_wait`` seconds old; with
        ``until_confirmed`` also once a second subscription provides evidence for the end of the stream.

        Requests at most ``min_events`` from Salesforce, since every delivered event counts against the org's
        allocation. Cancel it to stop. ``min_interval`` has no effect here.

        :returns: a wake-up for ``EVENTS``; for ``REPLAY_LOST``, if the position can no longer be read; or ``QUIET``.
        """
        try:
            if not self.conditions.until_confirmed:
                async with self._responses(self.conditions.min_events) as responses:
                    return await self._first(responses)
            server_time = await self.source.server_time(self.clock)
            second_subscription = reference(
                self.source, self.topic, server_time, silence_timeout=self.silence_timeout, clock=self.clock
            )
            async with second_subscription as end, self._responses(self.conditions.min_events) as responses:
                self._cursor.server_time = server_time
                return await self._first(responses, end)
        except ReplayIdLostError as error:
            return self._lost(error)

    async def wake_ups(self) -> AsyncGenerator[WakeUp, None]:
        """Yield wake-ups without end.

        Guarantees, however often the subscription breaks:

        - Every event after ``after`` is counted in exactly one wake-up, in stream order: one for ``EVENTS``, or the
          ``REPLAY_LOST`` that ends the run of events it belongs to.
        - ``through`` never covers an event that was not reported. A watch that starts after it misses no event.
        - ``EVENTS`` follow the previous wake-up after ``min_interval`` seconds or more (``QUIET`` does not count). The
          first event after a quiet time wakes immediately; the following ones are reported together when the interval
          has passed. A burst of any size causes a few wake-ups, and its last event is always reported.
        - Memory does not grow with the number of events.

        A ``LATEST`` start yields ``STARTED`` immediately, because earlier events are unknown. It yields a second one
        ``through`` the first replay ID that an empty response names, which covers the events between the two. If events
        are received first, an ordinary wake-up replaces the second one, and the next drain reads the events before
        them. When the position can no longer be read, yields ``REPLAY_LOST`` (with the events not reported yet, if
        there are any, and no ``through``), and continues from ``LATEST``, with that second ``STARTED``.

        Yields ``QUIET`` for an empty response while no events wait to be reported: store its ``through``, so that the
        position of a quiet topic does not age out. A source that confirms no positions names none. It yields
        ``STARTED`` once, with the first empty response, which confirms the subscription. Until it has received a replay
        ID, a fault or a loss causes it to read all retained events, so that no event is missed.

        Closing the generator, or cancelling the task that waits for it, ends the subscription.
        """
        first = self._started() if self.after is StartFrom.LATEST and self.source.confirms_positions else None
        while True:
            try:
                async with self._responses(None) as responses:
                    if first is not None:
                        yield first
                        first = None
                    while True:
                        wake_up = await self._next(responses)
                        if wake_up is not None:
                            yield wake_up
            except ReplayIdLostError as error:
                lost = self._lost(error)
            yield lost

    async def _first(self, responses: ReadAhead, end: EndOfStream | None = None) -> WakeUp:
        """Return the first wake-up with events or with a confirmed end of the stream."""
        while True:
            wake_up = await self._next(responses, end)
            if wake_up is not None and (wake_up.reason is WakeUpReason.EVENTS or wake_up.confirmed_at is not None):
                return wake_up

    def _responses(self, limit: int | None) -> ReadAhead:
        """Return a reader of the responses from the start on, with at most ``limit`` events."""
        # If empty responses name no replay ID, a restart at LATEST would skip the events before the first one received.
        sees_all = limit is None and not self.source.confirms_positions
        return ReadAhead(
            arrivals(
                self.source,
                self.topic,
                self._cursor,
                limit=limit,
                unpinned=StartFrom.EARLIEST if sees_all else StartFrom.LATEST,
                silence_timeout=self.silence_timeout,
                clock=self.clock,
                sleep=self.sleep,
                random=self.random,
            )
        )

    async def _next(self, responses: ReadAhead, end: EndOfStream | None = None) -> WakeUp | None:
        """Wait for a response or for the time to wake up, whichever is first, and return the resulting wake-up.

        :param end: evidence for the end of the stream, which is checked each second.
        """
        due = self._pending.due
        seconds = due - self.clock()
        if seconds <= 0:
            return self._pending.take_wake_up(WakeUpReason.EVENTS, self.clock())
        seconds = seconds if end is None else min(seconds, _LOOK_EVERY)
        response = await responses.next(None if seconds == inf else seconds)
        if response is not None and end is not None and len(response) == 0:
            end.reader_answered(response)
        is_end = end is not None and end.is_reached and self._cursor.is_answered and not self._pending
        if end is not None and is_end and not response:
            return self._confirmed_end(end)
        if response is None:
            return None
        unpinned, self._unpinned = self._unpinned, None
        if len(response):
            await self._count(response)
            return None
        if response.latest_replay_id:
            self._pending.confirm(response.latest_replay_id)
        if unpinned is StartFrom.LATEST:
            return self._started()
        if self._pending:
            return None
        return WakeUp(WakeUpReason.QUIET, through=response.latest_replay_id or None)

    def _confirmed_end(self, end: EndOfStream) -> WakeUp:
        through, contact_at = self._cursor.through, self._cursor.contact_at
        return WakeUp(WakeUpReason.QUIET, through=through, confirmed_at=end.opened_at, contact_at=contact_at)

    def _started(self) -> WakeUp:
        """Return the wake-up for a ``LATEST`` start, whether it is pinned or not."""
        return self._pending.take_wake_up(WakeUpReason.STARTED, self.clock())

    def _lost(self, error: ReplayIdLostError) -> WakeUp:
        """Return the wake-up for a lost replay ID, and continue from ``LATEST``.

        :raises ReplayIdLostError: ``error``, if no replay ID was sent: then a restart cannot help.
        """
        if self._unpinned is not None:
            raise error
        self._unpinned = StartFrom.LATEST if self.source.confirms_positions else StartFrom.EARLIEST
        self._cursor = Cursor(self._unpinned, self.clock)
        self._pending.forget_position()
        return self._pending.take_wake_up(WakeUpReason.REPLAY_LOST, self.clock())

    async def _count(self, events: EventBatch) -> None:
        self._pending.add(events.replay_ids[0], len(events), events.replay_ids[-1])
        if self._pending.wait_for_age:
            payload_time = await self._event_times.read(events.schema_ids[0], events.payloads[0])
            event_time = payload_time or datetime.fromtimestamp(0, UTC) + timedelta(
                microseconds=events.received_at // 1_000
            )
            self._pending.oldest_is((self.now() - event_time).total_seconds(), self.clock())


class EventTimes:
    """Reader of the event time of single events of any schema IDs."""

    def __init__(self, source: AsyncEventSource) -> None:
        self._source = source
        self._readers: dict[str, TimeReader] = {}

    async def read(self, schema_id: str, payload: bytes) -> datetime | None:
        """Return the time of an event, in UTC; ``None`` if it has no time or its schema is unavailable."""
        reader = self._readers.get(schema_id)
        if reader is None:
            try:
                encoding = self._source.payload_encoding
                schema = await self._source.schema(schema_id) if encoding == "avro" else None
                reader = await asyncio.to_thread(_reader, encoding, schema)
            except SalesforceStreamError as error:
                log.info(
                    "Schema %s cannot be fetched, so the arrival of the event counts as its time: %s", schema_id, error
                )
                return None
            self._readers[schema_id] = reader
        return reader.read(payload)


def _reader(encoding: PayloadEncoding, schema: str | None) -> TimeReader:
    # Imported here, and in a thread: the first import takes half a second, which must not block the event loop.
    from airflow_provider_sfstream.salesforce.event_time import time_reader

    return time_reader(encoding, schema)
