"""Bounded drain: read a topic from a position until a limit is met or the stream is caught up, then stop.

Guarantee: the sink receives the events of the stream in order, each once, as an unbroken run from the start position,
however often the subscription breaks. ``through`` never names an event that the sink did not receive. Events are
omitted only in two cases: ``on_invalid_replay`` (reported as a gap), and a fault on a ``LATEST`` start before its first
response (it subscribes to ``LATEST`` again: the guarantee does not cover these events yet).

Silence proves nothing. A drain ends ``caught_up`` with evidence for the end of the stream, ``idle`` if an answer
follows a span without events, and by a limit only if the server has answered at all.
"""

from __future__ import annotations

import logging
import random as random_module
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime, timedelta
from math import inf

from airflow_provider_sfstream.exceptions import (
    ContactError,
    LandingError,
    SalesforceStreamError,
    ServiceUnavailableError,
    StartNotPinnedError,
    SubscriptionBusyError,
)
from airflow_provider_sfstream.salesforce.event_time import TimeReaders, to_datetime
from airflow_provider_sfstream.salesforce.events import CONFIRM_TIMEOUT
from airflow_provider_sfstream.salesforce.streams import Gap
from airflow_provider_sfstream.streams.cursor import PROOF_EVERY, Cursor
from airflow_provider_sfstream.streams.drain.limits import (
    DrainLimits,
    EventTimes,
    MisdatedEventWarning,
    StopReason,
    cut,
)
from airflow_provider_sfstream.streams.drain.result import DrainResult, ProgressReporter
from airflow_provider_sfstream.streams.end_of_stream import TipProbe
from airflow_provider_sfstream.streams.recovery import OnInvalidReplay, ReplayLosses, Retries, check_on_invalid_replay
from airflow_provider_sfstream.streams.source import EventBatch, EventSink, EventSource, StartFrom

log = logging.getLogger(__name__)

CONNECT_TIMEOUT = 120.0
"""Seconds after which the drain stops waiting for a server that has never answered."""
_LONGEST_SLICE = 1.0
_RECENT = timedelta(minutes=1)


@dataclass
class Drain:
    """Drain of the events of ``topic`` after ``after`` into ``sink``, until the first of ``limits``, caught up or idle.

    Idle: no event for ``limits.idle_timeout`` seconds, followed by an answer of the server. Caught up: evidence of a
    second subscription (:mod:`~airflow_provider_sfstream.streams.end_of_stream`), which is opened only if ``limits``
    require a confirmation and the API can confirm. A retriable fault resumes from the last event passed to the sink,
    after a jittered, doubling pause; the span without events continues over it.

    :param gap: A gap that was accepted before ``after``. It ends at the first event of the drain.
    :param loss_reason: Reason of an accepted loss of ``after``, for its gap. Default: the policy.
    :param position_time: Time at which ``after`` was the end of the stream, if known; for messages and the gap.
    :param event_times: Returns the event times of payloads; by default read with the topic's own schemas.
    :param max_failures: Consecutive faults, without an event or an answer between them, before the drain fails.
    :param clock: Monotonic seconds. ``now`` is the time of day, ``random`` a number in ``[0, 1)``.
    """

    source: EventSource
    sink: EventSink
    topic: str
    after: bytes | StartFrom
    limits: DrainLimits
    _: KW_ONLY
    on_invalid_replay: OnInvalidReplay = "fail"
    gap: Gap | None = None
    loss_reason: str | None = None
    position_time: datetime | None = None
    event_times: EventTimes | None = None
    max_failures: int = 8
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = random_module.random

    def __post_init__(self) -> None:
        check_on_invalid_replay(self.on_invalid_replay)
        confirms = self.source.confirms_positions and (self.limits.to_the_end or self.limits.confirm_timeout > 0)
        self.cursor = cursor = Cursor(self.after, self.clock)
        self.retries = Retries(self.topic, self.max_failures, self.random)
        self.losses = ReplayLosses(
            self.topic, self.on_invalid_replay, lambda: cursor.latest_time() or self.now(), self.gap, self.loss_reason
        )
        self.end = TipProbe(self.source, self.topic, self.clock) if confirms else None
        self.reporter = ProgressReporter(self.topic, self.clock, self.now)
        self._event_times = self.event_times or TimeReaders(self.source.payload_encoding, self.source.schema).times
        self._is_time_measured = False
        self._event_count = self._payload_bytes = self._reconnects = 0
        self._last_event: tuple[str, bytes] | None = None
        self._misdated = MisdatedEventWarning(self.topic)
        self._began_at = self.clock()
        self._deadline = inf if self.limits.max_seconds is None else self.clock() + self.limits.max_seconds
        self._pin_deadline = self.clock() + CONFIRM_TIMEOUT
        # The wait is cut into slices, so that limits and proofs of contact are on time on a quiet topic too.
        self._slice = min(_LONGEST_SLICE, self.limits.least_idle / 4, self.limits.max_seconds or inf)
        self._idle_since: float | None = None

    def run(self) -> DrainResult:
        """Drain once.

        :raises ReplayIdLostError: the position can no longer be read and ``on_invalid_replay`` is ``"fail"``.
        :raises ContactError: the server has not answered within :data:`CONNECT_TIMEOUT`.
        :raises ServiceUnavailableError: the faults did not end, or a ``LATEST`` or ``COMMITTED`` start received no
            replay ID in time.
        :raises LandingError: the sink failed.
        :raises SalesforceStreamError: any other fault that a retry cannot resolve.
        """
        stop: StopReason | None = None
        try:
            while stop is None:
                try:
                    self._measure_time()
                    stop = self._read()
                except (LandingError, SubscriptionBusyError):  # the source has already waited for its slot
                    raise
                except SalesforceStreamError as error:
                    stop = self._recover(error)
        finally:
            if self.end is not None:
                self.end.close()
        cursor = self.cursor
        end = self.end if stop is StopReason.CAUGHT_UP else None
        contact_times = [cursor.contact_at, None if end is None else end.answered_at]
        if not cursor.is_pinned:
            raise StartNotPinnedError(
                f"{self.topic}: the drain ended ({stop}) before it received a replay ID that pins its start. "
                "Nothing was recorded, because the next run could start later and skip events. "
                f"Increase max_seconds above {CONFIRM_TIMEOUT:.0f}, or start from 'earliest' or a replay ID."
            )
        return DrainResult(
            stop_reason=stop,
            through=cursor.through,
            event_count=self._event_count,
            payload_bytes=self._payload_bytes,
            gap=self.losses.gap,
            reconnects=self._reconnects,
            pinned=cursor.pinned,
            contact_at=max((time for time in contact_times if time is not None), default=None),
            confirmed_at=None if end is None else end.opened_at,
            pinned_at=cursor.pinned_at,
            began_at=None if cursor.server_time is None else cursor.server_time.earliest(self._began_at),
        )

    def _measure_time(self) -> None:
        """Measure Salesforce's time, once, before the first subscription that needs it as evidence."""
        if not self._is_time_measured:
            self.cursor.server_time = self.source.server_time(self.clock)
            self._is_time_measured = True
            self._began_at = self.clock()  # the time limit of the connection excludes this measurement

    def _read(self) -> StopReason | None:
        """Read one subscription until the drain must stop. A fault ends it with an error."""
        max_events = self.limits.max_events
        if self.end is not None:
            self.end.open(self.cursor.server_time)
        self.cursor.opened()
        responses = self.source.subscribe(
            self.topic,
            self.cursor.after,
            limit=None if max_events is None else max_events - self._event_count,
            idle_timeout=self._slice,
            # A little longer than the idle timeout, so that one answer proves contact after all of it, but earlier than
            # the next proof is due: a drain would wait for that past ``max_seconds``.
            answer_within=None if self._confirm_timeout() else min(1.1 * self.limits.idle_timeout, PROOF_EVERY),
        )
        with closing(responses):
            for response in responses:
                if response is None:
                    stop = self._wait()
                elif len(response) == 0:
                    stop = self._advance(response)
                else:
                    stop = self._store(response)
                if stop is None and self._overdue():
                    stop = self._out_of_time()
                if stop is not None:
                    return stop
                self.reporter.update(self._event_count, self._last_event_time)
        raise ServiceUnavailableError(f"{self.topic}: the subscription ended without a status.")

    def _wait(self) -> StopReason | None:
        """Handle a wait without a response: stop, prove contact if it is due, or continue to wait."""
        seconds = self._idle_timeout()
        if self.end is not None:
            self.end.reopen(self.cursor.server_time)
            self.end.read_available()
            if self._is_caught_up():
                return StopReason.CAUGHT_UP
        if self.cursor.is_pinned and self.cursor.is_idle(seconds):
            if self._idle_since is None:
                self._idle_since = self.clock() - seconds
            if self.clock() >= self._idle_since + self._confirm_timeout():
                return StopReason.IDLE
        if self.cursor.wants_proof(seconds):
            self._prove_contact()  # then read once more: events may have arrived before the answer
        return None

    def _idle_timeout(self) -> float:
        """Return the seconds without an event after which the drain is idle, fewer after a recent event.

        If these are too few, the next run reads the rest: no run is behind by more than :data:`_RECENT`.
        """
        longest, seconds = self.limits.idle_timeout, self.cursor.first_event_after
        if not self.limits.ends_sooner or self.end is not None or seconds is None or self._last_event is None:
            return longest
        time, received_at = self._event_time(self._last_event), self.cursor.last_event_at or self.now()
        is_recent = time is not None and abs(received_at - time) <= _RECENT
        return min(longest, max(self.limits.least_idle, 3 * seconds)) if is_recent else longest

    def _confirm_timeout(self) -> float:
        """Return the seconds to wait, from the first idle moment on, for evidence of the end of the stream."""
        waits = self.end is not None and (self._event_count == 0 or self.limits.wait_for_confirmation)
        return self.limits.confirm_timeout if waits else 0.0

    def _prove_contact(self) -> None:
        self.source.prove_contact(self.topic)
        self.cursor.answered()
        self.retries.progressed()

    def _out_of_time(self) -> StopReason:
        """Stop with ``max_seconds``, also without an event: so the server must have answered."""
        if not self.cursor.is_answered:
            self._prove_contact()
        return StopReason.MAX_SECONDS

    def _advance(self, response: EventBatch) -> StopReason | None:
        """Move to the position that an empty response names. It may also be evidence for the end of the stream."""
        self.cursor.answered()
        self.cursor.advance(response)
        self.retries.progressed()
        if self.end is not None:
            self.end.answered(response)
        return self._wait()

    def _store(self, batch: EventBatch) -> StopReason | None:
        """Pass the part of ``batch`` within the limits to the sink, and move to its last event."""
        cursor = self.cursor
        cursor.answered()
        if known := cursor.known(batch.replay_ids):
            batch = batch.part(known, len(batch))
        if len(batch) == 0:
            return None
        if (contact := cursor.contact_nanoseconds) is not None:  # time of the response that carried this batch
            batch = replace(batch, received_at=contact)
        cursor.events_came(batch.replay_ids[0])
        self.losses.resumed(batch.replay_ids[0])
        now = cursor.latest_time() or self.now()
        part = cut(batch, self.limits, self._event_count, self._payload_bytes, self._event_times, now=now)
        events = part.batch
        if len(events):
            self.sink.append(events)
            cursor.took(events.replay_ids[-1])
            self._last_event = events.schema_ids[-1], events.payloads[-1]
            self._event_count += len(events)
            self._payload_bytes += part.payload_bytes
            self.retries.progressed()
            self._misdated.stored(part.misdated)
        if self.end is not None:
            self.end.took(events.replay_ids)
        return part.stop or (StopReason.CAUGHT_UP if self._is_caught_up() else None)

    def _is_caught_up(self) -> bool:
        return self.end is not None and self.end.is_reached and self.cursor.is_pinned

    def _recover(self, error: SalesforceStreamError) -> StopReason | None:
        """Prepare the next subscription after ``error``, or raise; return a reason if no time remains for it."""
        cursor = self.cursor
        if error.replay_lost:
            cursor.restart_at(self.losses.accept(error, cursor.after, self._last_event_time()))
            if self.end is not None:
                self.end.discard()
            self._pin_deadline = self.clock() + CONFIRM_TIMEOUT
            self._reconnects += 1
            return None
        never_reached = isinstance(error, ContactError) and not cursor.is_answered
        if never_reached and self.clock() - self._began_at >= CONNECT_TIMEOUT:
            raise error
        pause = self.retries.pause_after(error)
        if error.invalidates_token:
            self.source.renew_session()
        if self.clock() + pause >= self._deadline:
            if cursor.through is None:
                raise error
            return StopReason.MAX_SECONDS
        log.info("%s: resuming in %.1f s after: %s", self.topic, pause, error)
        self._reconnects += 1
        if pause:
            self.sleep(pause)
        return None

    def _overdue(self) -> bool:
        deadline = self._deadline if self.cursor.is_pinned else min(self._deadline, self._pin_deadline)
        return self.clock() >= deadline

    def _last_event_time(self) -> datetime | None:
        """Return the event time of the last stored event, else that of the start position.

        Event times can be wrong; an event cannot occur after it was received.
        """
        if self._last_event is None:
            return self.position_time
        time = self._event_time(self._last_event)
        return time and min(time, self.now())

    def _event_time(self, event: tuple[str, bytes]) -> datetime | None:
        return to_datetime(*self._event_times([event[0]], [event[1]]))
