"""Responses of a topic, with retries of transient faults.

Guarantee: the events are yielded in stream order, each once, as an unbroken run from the start position, however often
the subscription breaks. The first replay ID received pins a ``LATEST`` start. A fault before that subscribes to
``LATEST`` again; events published in between are not yielded (the guarantee does not cover them).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from airflow_provider_sfstream.exceptions import SalesforceStreamError, ServiceUnavailableError
from airflow_provider_sfstream.salesforce.events import AsyncResponses, EventBatch, StartFrom
from airflow_provider_sfstream.streams.cursor import Cursor
from airflow_provider_sfstream.streams.recovery import Retries
from airflow_provider_sfstream.streams.source import AsyncEventSource

log = logging.getLogger(__name__)

FAULTS_TO_WARN_OF = 5
"""Number of consecutive faults from which each is logged as a warning: about ten seconds without a response."""

SESSION_HOLDS_AFTER = 30.0
"""Seconds after which a renewed session counts as accepted. A quiet topic may not respond for far longer; if the
session ends after that, the cause is a different one."""


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
    source names none, yield all empty responses. The cursor is moved before a response is yielded.

    Retry transient faults without limit: resume from the last replay ID received, after a jittered, doubling pause of
    at most 30 seconds, or immediately after a refused session, which is renewed first.

    :param limit: number of events to request in total; the iteration ends when they were received.
    :param unpinned: start of the next subscription after a fault, if a ``LATEST`` start received no replay ID yet.
    :raises SalesforceStreamError: a fault that a retry cannot resolve: for example a lost replay ID, or a session that
        was refused within 30 seconds of its renewal, before any response.
    """
    remaining = limit
    recovery = _Recovery(source, topic, clock, random)
    while remaining is None or remaining > 0:
        try:
            cursor.opened()
            subscription = source.subscribe(topic, cursor.after, limit=remaining, silence_timeout=silence_timeout)
            async with aclosing(subscription) as responses:
                # Where the API names no positions, the first response only confirms the subscription.
                is_established = source.confirms_positions
                async for response in responses:
                    new_part = _new_part(cursor, response, source.confirms_positions)
                    if new_part is None:
                        continue
                    if is_established or len(new_part):
                        recovery.progressed()
                    is_established = True
                    remaining = None if remaining is None else remaining - len(new_part)
                    yield new_part
                    del response, new_part  # frees the batch during the wait for the next one, which may be long
            if remaining is None or remaining > 0:
                raise ServiceUnavailableError(f"{topic}: the subscription ended without a status.")
        except SalesforceStreamError as error:
            if cursor.after is StartFrom.LATEST:
                cursor.restart_at(unpinned)
            pause = recovery.pause_after(error)
            if pause:
                await sleep(pause)


def _new_part(cursor: Cursor, response: EventBatch, confirms_positions: bool) -> EventBatch | None:
    """Move the cursor over ``response``; return the new part of it, ``None`` if there is none.

    If the source names no positions, each empty response is an answer, and new.
    """
    cursor.answered()
    if len(response) == 0:
        cursor.advance(response)
        return response if not confirms_positions or response.confirms_position else None
    if known := cursor.known(response.replay_ids):
        response = response.part(known, len(response))
    if len(response) == 0:
        return None
    cursor.events_came(response.replay_ids[0])
    cursor.took(response.replay_ids[-1])
    return response


class _Recovery:
    """Preparation of the next subscription after a fault, with its log messages."""

    def __init__(
        self, source: AsyncEventSource, topic: str, clock: Callable[[], float], random: Callable[[], float]
    ) -> None:
        self._source = source
        self._topic = topic
        self._clock = clock
        self._retries = Retries(topic, None, random)
        self._unreachable_since = 0.0
        self._renewed_at = 0.0

    def progressed(self) -> None:
        """Record that a response was received."""
        if self._retries.failures >= FAULTS_TO_WARN_OF:
            seconds = self._clock() - self._unreachable_since
            log.warning("%s: reachable again after %.0f s.", self._topic, seconds)
        self._retries.progressed()

    def pause_after(self, error: SalesforceStreamError) -> float:
        """Return the seconds to wait before the next subscription; raise ``error`` if a retry cannot help."""
        if error.invalidates_token and self._clock() - self._renewed_at >= SESSION_HOLDS_AFTER:
            self._retries.session_renewed = False
        pause = self._retries.pause_after(error)
        if error.invalidates_token:
            self._source.renew_session()
            self._renewed_at = self._clock()
        failures = self._retries.failures
        if failures == 1:
            self._unreachable_since = self._clock()
        if failures < FAULTS_TO_WARN_OF:
            log.info("%s: resuming in %.1f s after: %s", self._topic, pause, error)
        else:
            seconds = self._clock() - self._unreachable_since
            log.warning(
                "%s: unreachable for %.0f s (%d consecutive faults), retrying in %.1f s. Nothing is lost while the org "
                "retains the events. The last fault: %s",
                self._topic,
                seconds,
                failures,
                pause,
                error,
            )
        return pause
