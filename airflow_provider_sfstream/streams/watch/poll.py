"""One bounded poll of a topic for enough events, for a sensor that does not defer.

No state is stored between two polls: each counts the retained events again, from the same start.

Guarantee: a poll that returns a count has received an answer of the server. A span without events ends a poll only if
an answer follows it. An unreachable topic is therefore an error, never a result of no events.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime

from airflow_provider_sfstream.exceptions import ReplayIdLostError
from airflow_provider_sfstream.salesforce.event_time import TimeReaders, to_datetime
from airflow_provider_sfstream.streams.cursor import Cursor
from airflow_provider_sfstream.streams.source import EventBatch, EventSource, StartFrom
from airflow_provider_sfstream.streams.watch.conditions import WakeUp, WakeUpConditions, WakeUpReason

log = logging.getLogger(__name__)

IDLE_TIMEOUT = 5.0
"""Seconds without an event after which all retained events have been received, if the server then answers."""
LONGEST_POLL = 60.0
"""Seconds after which a poll ends although events are still being received."""


def poll(
    source: EventSource,
    topic: str,
    after: bytes | StartFrom,
    conditions: WakeUpConditions,
    *,
    idle_timeout: float = IDLE_TIMEOUT,
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> WakeUp | None:
    """Return a wake-up if ``conditions`` hold for the events retained after ``after``, else ``None``.

    Requests at most ``min_events`` from Salesforce. A replay ID that can no longer be read also causes a wake-up. An
    event whose payload has no time, or one far in the future, counts as old enough for ``max_wait``, because its age is
    not known.

    :param after: a replay ID, or ``EARLIEST``. A poll at ``LATEST`` finds no events.
    :param idle_timeout: seconds without an event after which a poll ends, once the server has answered after them.
    :raises ContactError: the server does not answer.
    :raises SalesforceStreamError: any other fault; the next poll may succeed if it is retriable.
    """
    received = _ReceivedEvents()
    try:
        _read(source, topic, Cursor(after, clock), conditions.min_events, received, idle_timeout, clock)
    except ReplayIdLostError as error:
        if not isinstance(after, bytes):
            raise
        log.warning("%s: replay ID %s can no longer be read: %s", topic, after.hex(), error.happened)
        return received.wake_up(WakeUpReason.REPLAY_LOST)
    enough = received.event_count >= conditions.min_events or received.is_older_than(conditions.max_wait, source, now)
    outcome = "the wait ends" if enough else f"waiting for {conditions.min_events}"
    log.info("%s: %d events were received; %s.", topic, received.event_count, outcome)
    return received.wake_up(WakeUpReason.EVENTS) if enough else None


@dataclass
class _ReceivedEvents:
    """Count of the events of one poll, with the first batch and the last replay ID."""

    event_count: int = 0
    first: EventBatch | None = None
    through: bytes | None = None

    def add(self, batch: EventBatch) -> None:
        if self.first is None:
            self.first = batch
        self.event_count += len(batch)
        self.through = batch.replay_ids[-1]

    def is_older_than(self, seconds: float | None, source: EventSource, now: Callable[[], datetime]) -> bool:
        if self.first is None or seconds is None:
            return False
        readers = TimeReaders(source.payload_encoding, source.schema)
        times = readers.times(self.first.schema_ids[:1], self.first.payloads[:1])
        time_of_first = to_datetime(times[0])
        # A time further ahead than ``seconds`` is no basis for a wait: publishers set event times freely.
        return time_of_first is None or abs((now() - time_of_first).total_seconds()) >= seconds

    def wake_up(self, reason: WakeUpReason) -> WakeUp:
        return WakeUp(reason, self.first.replay_ids[0] if self.first else None, self.event_count, self.through)


def _read(
    source: EventSource,
    topic: str,
    cursor: Cursor,
    limit: int,
    received: _ReceivedEvents,
    idle_timeout: float,
    clock: Callable[[], float],
) -> None:
    """Read until ``limit`` events were received, the stream is idle, or the time limit is reached."""
    deadline = clock() + LONGEST_POLL
    responses = source.subscribe(
        topic, cursor.after, limit=limit, idle_timeout=idle_timeout / 4, answer_within=idle_timeout / 2
    )
    with closing(responses):
        for response in responses:
            if response is not None:
                cursor.answered()
                if len(response):
                    cursor.events_came(response.replay_ids[0])
                    received.add(response)
                else:
                    cursor.advance(response)
            if cursor.is_idle(idle_timeout):
                return
            if cursor.wants_proof(idle_timeout):
                source.prove_contact(topic)  # then read once more: events may have arrived before the answer
                cursor.answered()
            if clock() >= deadline:
                log.warning(
                    "%s: %d of %d events were received in %.0f s, and more are arriving. The next poke counts again "
                    "from the start. Lower min_events, or set deferrable=True, which counts each event once.",
                    topic,
                    received.event_count,
                    limit,
                    LONGEST_POLL,
                )
                return
