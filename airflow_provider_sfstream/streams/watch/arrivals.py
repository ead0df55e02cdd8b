"""The responses of a topic, read for as long as they are wanted: faults that pass are outlasted here.

Guarantee: the events come in stream order, each once, as an unbroken run from the start position, however often the
subscription breaks. A ``LATEST`` start is pinned by the first replay ID seen; a fault before that subscribes to
``LATEST`` again, and what was published in between does not come (nothing was promised yet).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from types import TracebackType
from typing import Self

from airflow_provider_sfstream.exceptions import SalesforceStreamError, ServiceUnavailableError
from airflow_provider_sfstream.salesforce.events import AsyncResponses, EventBatch, StartFrom
from airflow_provider_sfstream.streams.cursor import Cursor
from airflow_provider_sfstream.streams.recovery import Retries
from airflow_provider_sfstream.streams.source import AsyncEventSource

log = logging.getLogger(__name__)

FAULTS_TO_WARN_OF = 5
"""Faults in a row from which on each is a warning: by then, some ten seconds have passed without a response."""

SESSION_HOLDS_AFTER = 30.0
"""Seconds after which a renewed session was accepted: a quiet topic may not respond for far longer, and a session
that ends then ends for a reason of its own."""


async def arrivals(
    source: AsyncEventSource,
    topic: str,
    cursor: Cursor,
    *,
    limit: int | None,
    unpinned: StartFrom = StartFrom.LATEST,
    silence_timeout: float,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]],
    random: Callable[[], float],
) -> AsyncResponses:
    """Yield the responses after the cursor's position: events, and empty responses that name a position. Where the
    source names none, all empty responses. The cursor has moved over what is yielded.

    Never gives up on a fault that may pass: it resumes from the last replay ID seen, after a jittered, doubling pause
    of at most 30 seconds, or at once after a refused session, which it has renewed.

    :param limit: how many events to ask for in total; ends when they have come. ``None``: goes on for ever.
    :param unpinned: where to subscribe again after a fault if no replay ID was seen since a ``LATEST`` start.
    :raises ReplayIdLostError: the last replay ID seen can no longer be read.
    :raises SessionExpiredError: a session was refused within 30 seconds of its renewal, before any response.
    :raises SalesforceStreamError: any other fault that a repetition cannot heal.
    """
    left = limit
    recovery = _Recovery(source, topic, clock, random)
    while left is None or left > 0:
        try:
            cursor.opened()
            subscription = source.subscribe(topic, cursor.position, limit=left, silence_timeout=silence_timeout)
            async with aclosing(subscription) as responses:
                stands = source.confirms_positions  # else the first response says that, and no more
                async for response in responses:
                    news = _news(cursor, response, source.confirms_positions)
                    if news is None:
                        continue
                    if stands or len(news):
                        recovery.progressed()
                    stands = True
                    left = None if left is None else left - len(news)
                    yield news
                    del response, news  # nothing is kept during the wait for the next one, which may be long
            if left is None or left > 0:
                raise ServiceUnavailableError(f"{topic}: the subscription ended without a status.")
        except SalesforceStreamError as error:
            if cursor.position is StartFrom.LATEST:
                cursor.go_on_from(unpinned)
            pause = recovery.pause_after(error)
            if pause:
                await sleep(pause)


def _news(cursor: Cursor, response: EventBatch, confirms_positions: bool) -> EventBatch | None:
    """Move over ``response``; return the part of it that is new, ``None`` if there is none.

    Where a source names no positions, each empty response is an answer, and new.
    """
    cursor.answered()
    if len(response) == 0:
        cursor.advance(response)
        names_position = response.pending > 0 and bool(response.latest_replay_id)
        return response if not confirms_positions or names_position else None
    news = cursor.without_known(response)
    if len(news) == 0:
        return None
    cursor.events_came(news)
    cursor.took(news.replay_ids[-1])
    return news


class _Recovery:
    """Gets ready to subscribe again after a fault, and tells the log."""

    def __init__(
        self, source: AsyncEventSource, topic: str, clock: Callable[[], float], random: Callable[[], float]
    ) -> None:
        self._source = source
        self._topic = topic
        self._clock = clock
        self._retries = Retries(topic, None, random)
        self._out_of_reach_since = 0.0
        self._renewed_at = 0.0

    def progressed(self) -> None:
        """Note that a response came."""
        if self._retries.failures >= FAULTS_TO_WARN_OF:
            seconds = self._clock() - self._out_of_reach_since
            log.warning("%s: within reach again after %.0f s.", self._topic, seconds)
        self._retries.progressed()

    def pause_after(self, error: SalesforceStreamError) -> float:
        """Return the seconds to wait before subscribing again, or raise ``error`` if that cannot help."""
        if error.invalidates_token and self._clock() - self._renewed_at >= SESSION_HOLDS_AFTER:
            self._retries.session_renewed = False
        pause = self._retries.pause_after(error)
        if error.invalidates_token:
            self._source.renew_session()
            self._renewed_at = self._clock()
        failures = self._retries.failures
        if failures == 1:
            self._out_of_reach_since = self._clock()
        if failures < FAULTS_TO_WARN_OF:
            log.info("%s: resuming in %.1f s after: %s", self._topic, pause, error)
        else:
            seconds = self._clock() - self._out_of_reach_since
            log.warning(
                "%s: out of reach for %.0f s (%d faults in a row), trying again in %.1f s. Nothing is lost while the "
                "org retains the events. The last fault: %s",
                self._topic,
                seconds,
                failures,
                pause,
                error,
            )
        return pause


class ReadAhead:
    """Reads ``responses`` in a task, one response ahead of its consumer at most.

    To cancel an async generator's ``anext`` would end the generator; to stop waiting for a task ends nothing. Used as
    a context manager: entering begins to read, leaving ends the task, then closes ``responses``.
    """

    def __init__(self, responses: AsyncResponses) -> None:
        self._responses = responses
        self._task: asyncio.Task[EventBatch] | None = None

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if task is not None and task.cancel():
            # Cancelled once more here, the task still ends by itself, and ``responses`` with it.
            await asyncio.wait({task})
        await self._responses.aclose()

    async def next(self, seconds: float | None) -> EventBatch | None:
        """Return the next response, or ``None`` if there is none within ``seconds`` (``None``: no limit).

        Raises what ``responses`` raises.
        """
        task = self._begin()
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            return None
        self._task = None
        return task.result()

    def _begin(self) -> asyncio.Task[EventBatch]:
        if self._task is None:
            self._task = asyncio.create_task(self._read())
            self._task.add_done_callback(_look_at)
        return self._task

    async def _read(self) -> EventBatch:
        return await anext(self._responses)


def _look_at(task: asyncio.Task[EventBatch]) -> None:
    """Mark the task's error as seen: asyncio would log it if nobody waits for the task any more."""
    if not task.cancelled():
        task.exception()
