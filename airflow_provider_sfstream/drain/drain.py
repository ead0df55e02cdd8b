"""The bounded drain: read a topic from a position until a limit is met or the stream is caught up, then stop.

Guarantee: the sink receives the events of the stream in order, each once, as an unbroken run from the start
position, however often the subscription breaks; and ``through`` never names an event that the sink was not given.
The only ways to leave events out are explicit and reported: ``on_invalid_replay`` (a gap), and a fault on a
``LATEST`` start before its first response (it subscribes to ``LATEST`` again: nothing was promised yet).
"""

from __future__ import annotations

import logging
import random as random_module
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf

from airflow_provider_sfstream.drain.cut import EventTimes, cut, without_before, without_first
from airflow_provider_sfstream.drain.event_times import StreamEventTimes, TimeReaders
from airflow_provider_sfstream.drain.limits import DrainLimits, StopReason
from airflow_provider_sfstream.drain.progress import DrainProgress, ProgressReporter
from airflow_provider_sfstream.drain.recovery import OnInvalidReplay, ReplayLosses, Retries, check_on_invalid_replay
from airflow_provider_sfstream.drain.source import EventBatch, EventSink, EventSource, StartFrom
from airflow_provider_sfstream.exceptions import (
    LandingError,
    SalesforceStreamError,
    ServiceUnavailableError,
    SubscriptionBusyError,
)
from airflow_provider_sfstream.protocol.event_time import to_datetime
from airflow_provider_sfstream.protocol.streams import Gap

log = logging.getLogger(__name__)

UNPINNED = (StartFrom.LATEST, StartFrom.COMMITTED)
"""Starts that may be somewhere else the next time, until a replay ID was seen."""
PIN_TIMEOUT = 300.0
"""Seconds that such a start waits for its first replay ID; Salesforce names one within 270."""


@dataclass(frozen=True)
class DrainResult:
    """What a drain did.

    ``through`` is the replay ID of the last event given to the sink, or one that an empty response confirmed;
    ``None`` when there was neither, and the position stays where it was. ``gap`` is set when a lost replay ID was
    accepted. ``pinned`` is the first replay ID seen by a subscription to ``LATEST`` or ``COMMITTED``. ``payload_bytes``
    counts payloads as received, ``reconnects`` the subscriptions after the first. ``began_after`` is the replay ID of
    the last event that was left out because of ``since``.
    """

    stop_reason: StopReason
    through: bytes | None
    event_count: int
    payload_bytes: int
    gap: Gap | None
    reconnects: int
    pinned: bytes | None
    began_after: bytes | None = None


def drain(
    source: EventSource,
    sink: EventSink,
    topic: str,
    start: bytes | StartFrom,
    limits: DrainLimits,
    *,
    on_invalid_replay: OnInvalidReplay = "fail",
    position_time: datetime | None = None,
    event_times: EventTimes | None = None,
    progress: Callable[[DrainProgress], None] | None = None,
    max_failures: int = 8,
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    sleep: Callable[[float], None] = time.sleep,
    random: Callable[[], float] = random_module.random,
) -> DrainResult:
    """Give ``sink`` the events of ``topic`` after ``start``, until the first of ``limits`` or caught up.

    Caught up is an empty response while events are still owed, or no event for ``limits.idle_timeout`` seconds
    (``confirm_timeout`` before there is a position to record).
    Retriable faults resume from the last event given to the sink, after a jittered, doubling pause.

    :param position_time: The last known event time at ``start``, for messages and the gap.
    :param event_times: Gives the event times of payloads; by default read with the topic's own schemas.
    :param progress: Called about every ten seconds; by default progress is logged.
    :param max_failures: Faults in a row, without an event between them, after which the drain gives up.
    :param clock: Monotonic seconds. ``now`` is the time of day, ``random`` a number in ``[0, 1)``.
    :raises ReplayIdLostError: the position can no longer be read and ``on_invalid_replay`` is ``"fail"``.
    :raises ServiceUnavailableError: the faults did not end, or a ``LATEST`` or ``COMMITTED`` start saw no replay ID in
        time.
    :raises LandingError: the sink failed.
    :raises SalesforceStreamError: any other fault that a repetition cannot heal.
    """
    check_on_invalid_replay(on_invalid_replay)
    run = _Drain(
        source=source,
        sink=sink,
        topic=topic,
        start=start,
        limits=limits,
        event_times=event_times or StreamEventTimes(TimeReaders(source.payload_encoding, source.schema)),
        position_time=position_time,
        retries=Retries(topic, max_failures, random),
        losses=ReplayLosses(topic, on_invalid_replay, now),
        now=now,
        reporter=ProgressReporter(progress or (lambda report: log.info("%s: %s", topic, report)), clock, now),
        clock=clock,
        sleep=sleep,
    )
    return run.until_stopped()


class _Drain:
    """The state of one drain. ``_resume`` is where the next subscription begins."""

    def __init__(
        self,
        *,
        source: EventSource,
        sink: EventSink,
        topic: str,
        start: bytes | StartFrom,
        limits: DrainLimits,
        event_times: EventTimes,
        position_time: datetime | None,
        retries: Retries,
        losses: ReplayLosses,
        now: Callable[[], datetime],
        reporter: ProgressReporter,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._source = source
        self._sink = sink
        self._topic = topic
        self._limits = limits
        self._event_times = event_times
        self._position_time = position_time
        self._retries = retries
        self._losses = losses
        self._now = now
        self._reporter = reporter
        self._clock = clock
        self._sleep = sleep
        self._resume = start
        self._through: bytes | None = None
        self._pinned: bytes | None = None
        self._began_after: bytes | None = None
        self._has_begun = limits.since is None
        self._event_count = 0
        self._payload_bytes = 0
        self._reconnects = 0
        self._schema_ids: set[str] = set()
        self._last: tuple[str, bytes] | None = None
        self._deadline = inf if limits.max_seconds is None else clock() + limits.max_seconds
        self._pin_deadline = clock() + PIN_TIMEOUT
        # Waiting is cut into slices, so that max_seconds holds on a quiet topic too.
        self._poll = min(limits.idle_timeout, 30.0 if limits.max_seconds is None else min(1.0, limits.max_seconds))

    def until_stopped(self) -> DrainResult:
        stop: StopReason | None = None
        while stop is None:
            try:
                stop = self._read()
            except (LandingError, SubscriptionBusyError):  # the source has waited for its place for long enough
                raise
            except SalesforceStreamError as error:
                stop = self._recover(error)
        if self._resume in UNPINNED:
            raise ServiceUnavailableError(
                f"{self._topic}: no replay ID to pin the start to was seen before the drain had to end ({stop}). "
                "Nothing was recorded, because the next run could start later and skip events. "
                f"Raise max_seconds above {PIN_TIMEOUT:.0f}, or start from 'earliest' or a replay ID."
            )
        return DrainResult(
            stop_reason=stop,
            through=self._through,
            event_count=self._event_count,
            payload_bytes=self._payload_bytes,
            gap=self._losses.gap,
            reconnects=self._reconnects,
            pinned=self._pinned,
            began_after=self._began_after,
        )

    def _read(self) -> StopReason | None:
        """Read one subscription until the drain is to stop. A fault ends it with an error."""
        limits = self._limits
        # What is left out for ``since`` does not count, and how much that is nobody knows.
        most = limits.max_events if self._has_begun else None
        left = None if most is None else most - self._event_count
        responses = self._source.subscribe(self._topic, self._resume, limit=left, idle_timeout=self._poll)
        idle = 0.0
        try:
            for response in responses:
                stop: StopReason | None = None
                if response is None:
                    idle += self._poll
                    if idle >= self._silence_that_ends_it() and self._may_be_caught_up(limits.idle_timeout):
                        stop = StopReason.CAUGHT_UP
                elif len(response) == 0:
                    stop = self._confirm(response)
                else:
                    idle = 0.0
                    stop = self._store(response)
                if stop is None and self._overdue():
                    stop = StopReason.MAX_SECONDS
                if stop is not None:
                    return stop
                self._reporter.update(self._event_count, self._last_event_time)
        finally:
            close = getattr(responses, "close", None)
            if close is not None:
                close()
        raise ServiceUnavailableError(f"{self._topic}: the subscription ended without a status.")

    def _silence_that_ends_it(self) -> float:
        """Return the seconds without an event after which the stream counts as caught up."""
        unconfirmed = self._through is None
        return max(self._limits.idle_timeout, self._limits.confirm_timeout if unconfirmed else 0.0)

    def _may_be_caught_up(self, silence: float = 0.0) -> bool:
        """Return whether a pinned stream that has had nothing to say for ``silence`` seconds may be caught up."""
        stay_until = self._limits.stay_until
        stayed = stay_until is None or self._now() >= stay_until + timedelta(seconds=silence)
        return stayed and self._resume not in UNPINNED

    def _confirm(self, response: EventBatch) -> StopReason | None:
        """Take the position that an empty response confirms, if events are still owed (else it confirms nothing)."""
        if response.pending <= 0:
            return None
        if response.latest_replay_id:
            if self._resume in UNPINNED:
                self._pinned = response.latest_replay_id
            self._resume = self._through = response.latest_replay_id
            self._retries.progressed()
        return StopReason.CAUGHT_UP if self._may_be_caught_up() else None

    def _store(self, batch: EventBatch) -> StopReason | None:
        """Give the sink what the limits leave of ``batch``, and move on to its last event."""
        if batch.replay_ids[0] == self._resume:
            batch = without_first(batch)
            if len(batch) == 0:
                return None
        for schema_id in set(batch.schema_ids) - self._schema_ids:
            self._source.schema(schema_id)  # here, where a fault is healed; the client keeps it for the sink
            self._schema_ids.add(schema_id)
        if self._resume in UNPINNED:
            self._pinned = batch.replay_ids[0]
        self._losses.resumed(batch.replay_ids[0])
        batch = self._since(batch)
        part = cut(batch, self._limits, self._event_count, self._payload_bytes, self._event_times)
        stored = part.batch
        if len(stored):
            self._sink.append(stored)
            self._resume = self._through = stored.replay_ids[-1]
            self._last = stored.schema_ids[-1], stored.payloads[-1]
            self._event_count += len(stored)
            self._payload_bytes += part.payload_bytes
            self._retries.progressed()
        return part.stop

    def _since(self, batch: EventBatch) -> EventBatch:
        """Return ``batch`` without what happened before ``since``, until the first event that did not."""
        if self._has_begun or self._limits.since is None:
            return batch
        batch, left_out = without_before(batch, self._limits.since, self._event_times)
        self._has_begun = len(batch) > 0
        if left_out is not None:
            self._resume = self._through = self._began_after = left_out
            self._retries.progressed()
        return batch

    def _recover(self, error: SalesforceStreamError) -> StopReason | None:
        """Get ready to subscribe again after ``error``, or raise; return a reason if there is no time left for it."""
        if error.replay_lost:
            self._resume = self._losses.accept(error, self._resume, self._last_event_time())
            self._pin_deadline = self._clock() + PIN_TIMEOUT
            log.warning("%s: going on from %r after a lost replay ID: %s", self._topic, self._resume.value, error)
            self._reconnects += 1
            return None
        pause = self._retries.pause_after(error)
        if error.invalidates_token:
            self._source.renew_session()
        if self._clock() + pause >= self._deadline:
            if self._through is None:
                raise error
            return StopReason.MAX_SECONDS
        log.info("%s: resuming in %.1f s after: %s", self._topic, pause, error)
        self._reconnects += 1
        if pause:
            self._sleep(pause)
        return None

    def _overdue(self) -> bool:
        deadline = self._deadline
        if self._resume in UNPINNED:
            deadline = min(deadline, self._pin_deadline)
        return self._clock() >= deadline

    def _last_event_time(self) -> datetime | None:
        """Return the event time of the last stored event, else that of the start position."""
        if self._last is None:
            return self._position_time
        return to_datetime(*self._event_times([self._last[0]], [self._last[1]]))
