"""One run that publishes rows: each row is sent until its result is known, and is accepted once."""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from airflow_provider_sfstream.exceptions import (
    LoginUnavailableError,
    PublishError,
    PublishOutcomeUnknownError,
    QuotaExceededError,
    SalesforceStreamError,
    SchemaError,
    ServiceUnavailableError,
    SessionExpiredError,
    ThrottledError,
)
from airflow_provider_sfstream.publishing.evidence import Evidence, find_published
from airflow_provider_sfstream.publishing.ledger import (
    AcceptedEvent,
    PublishLedger,
    RecordedRun,
    SentEvents,
    result_line,
)
from airflow_provider_sfstream.publishing.rows import EventIds, Row, Summary
from airflow_provider_sfstream.salesforce.pubsub.publishing import (
    MOST_EVENT_BYTES,
    EventEncoder,
    OutgoingEvent,
    PublishedEvent,
    grouped,
    size_of,
)
from airflow_provider_sfstream.streams.recovery import Retries

if TYPE_CHECKING:
    from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient

log = logging.getLogger(__name__)

OnUnknownOutcome = Literal["fail", "publish_again", "skip"]
_MOST_FAULTS = 8
"""Maximum of consecutive faults without an accepted event between them."""
_FAILURES_OF_A_FILE = 1_000
_NOTHING_SENT = (ThrottledError, SessionExpiredError, LoginUnavailableError)
"""Temporary errors with which Salesforce refuses a request before it executes any part of it."""


@dataclass(frozen=True)
class _Pending:
    number: int
    row: Row
    event: OutgoingEvent


class Publication:
    """Publisher of the rows of one run.

    The order of rows is preserved, except that an event with a temporary refusal follows those accepted with it.

    :param on_unknown_outcome: action for events that are in doubt: neither a response nor the bus shows their result.
    """

    def __init__(
        self,
        client: PubSubClient,
        encoder: EventEncoder,
        ids: EventIds,
        ledger: PublishLedger,
        recorded: RecordedRun,
        *,
        on_unknown_outcome: OnUnknownOutcome = "fail",
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client, self._encoder, self._ids = client, encoder, ids
        self._ledger, self.recorded, self._on_unknown_outcome = ledger, recorded, on_unknown_outcome
        self._sleep = sleep
        self._topic = ids.topic
        self._attempt = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"
        consequence = "The accepted events are recorded; the next try publishes the remaining rows."
        self._retries = Retries(self._topic, _MOST_FAULTS, random.random, consequence)
        self._failures: list[dict[str, Any]] = []
        self._failure_files = 0
        self.summary = Summary()

    @property
    def failures_url(self) -> str | None:
        """The folder of the rows that this try could not publish; ``None`` if there are none."""
        return self._ledger.failures_url(self._attempt) if self.summary.failed else None

    def run(self, rows: Iterable[Row]) -> Summary:
        """Publish the rows that no earlier try has published, and return the counts of all rows.

        :raises PublishOutcomeUnknownError: if events are in doubt and ``on_unknown_outcome`` is ``"fail"``.
        :raises QuotaExceededError: if the hourly allocation is used up.
        :raises PositionConflictError: if another try of the task is running.
        :raises LandingError: if the ledger cannot be read or written.
        :raises SalesforceStreamError: any other fault that is not about a single event.
        """
        try:
            in_doubt = self._resolve_earlier_tries()
            for group in grouped(self._pending(rows, in_doubt), lambda pending: size_of(pending.event)):
                self._publish(group)
        finally:
            self._write_failures()
        return self.summary

    def _pending(self, rows: Iterable[Row], in_doubt: set[str]) -> Iterator[_Pending]:
        """Yield the events to publish; count the other rows."""
        row_ids: set[bytes] = set()
        for number, row in enumerate(rows):
            event_id = self._ids.id_of(row.identity)
            if row.problem is not None:
                self._fail(number, row, "SchemaError", row.problem)
            elif UUID(event_id).bytes in row_ids:
                self._fail(number, row, "ConfigurationError", "another row of this run has the same key")
            elif self.recorded.has_accepted(event_id):
                self.summary.already_published += 1
            elif event_id in in_doubt and self._on_unknown_outcome == "skip":
                self.summary.in_doubt += 1
            elif (event := self._encode(number, row, event_id)) is not None:
                yield _Pending(number, row, event)
            row_ids.add(UUID(event_id).bytes)

    def _encode(self, number: int, row: Row, event_id: str) -> OutgoingEvent | None:
        try:
            event = self._encoder.encode(row.values, event_id)
        except SchemaError as error:
            self._fail(number, row, type(error).__name__, str(error))
            return None
        if size_of(event) > MOST_EVENT_BYTES:
            self._fail(number, row, "PublishError", f"the event has {size_of(event):,} bytes, more than 1 MB")
            return None
        return event

    def _publish(self, group: Sequence[_Pending]) -> None:
        """Send events until each is accepted, permanently refused, or in doubt."""
        waiting = list(group)
        while waiting:
            number = self._begin(waiting)
            try:
                results = self._client.publish(self._topic, [pending.event for pending in waiting])
            except SalesforceStreamError as error:
                # A PublishError here is a response that does not identify its events.
                if isinstance(error, _NOTHING_SENT) or not (error.retriable or isinstance(error, PublishError)):
                    self._finish(number, waiting, [PublishedEvent("", None, error)] * len(waiting))
                    self._pause(error)
                else:
                    waiting = self._in_doubt(number, waiting, error)
                continue
            waiting = self._record_response(number, waiting, results)

    def _begin(self, waiting: Sequence[_Pending]) -> int:
        number = self.recorded.next_number
        self._ledger.begin(number, self._attempt, _recorded_events(waiting))
        self.recorded.next_number += 1
        return number

    def _finish(self, number: int, sent: Sequence[_Pending], results: Sequence[PublishedEvent]) -> None:
        lines = [
            result_line(pending.number, pending.row.key, pending.event.correlation_key, result.replay_id, result.error)
            for pending, result in zip(sent, results, strict=True)
        ]
        self._ledger.finish(number, lines)

    def _record_response(self, number: int, sent: list[_Pending], results: Sequence[PublishedEvent]) -> list[_Pending]:
        """Record the response; return the events to send again."""
        self._finish(number, sent, results)
        resend: list[_Pending] = []
        temporary: SalesforceStreamError | None = None
        for pending, result in zip(sent, results, strict=True):
            if result.replay_id is not None:
                self.recorded.accept(AcceptedEvent(pending.event.correlation_key, result.replay_id))
                self.summary.published += 1
                self._retries.progressed()
            elif result.error is not None and (result.error.retriable or isinstance(result.error, QuotaExceededError)):
                resend.append(pending)
                temporary = result.error if temporary is None or temporary.retriable else temporary
            else:
                self._fail(pending.number, pending.row, type(result.error).__name__, str(result.error))
        if temporary is not None:
            self._pause(temporary)
        return resend

    def _pause(self, error: SalesforceStreamError) -> None:
        """Wait until a request can be sent again; raise permanent errors."""
        if isinstance(error, QuotaExceededError):
            raise QuotaExceededError(
                f"{error.happened} {self.summary.published} events of this try were published and recorded. Clear the "
                "task when the allocation is available again: it then publishes the remaining rows."
            )
        seconds = self._retries.pause_after(error)
        log.warning("%s: retrying in %.1f s after: %s", self._topic, seconds, error)
        if error.invalidates_token:
            self._client.renew_session()
        self._sleep(seconds)

    def _resolve_earlier_tries(self) -> set[str]:
        """Resolve the events in doubt of earlier tries; return the IDs of those that stay in doubt."""
        unknown: set[str] = set()
        unanswered = {
            number: [event for event in events if not self.recorded.has_accepted(event[0])]
            for number, events in self.recorded.unanswered.items()
        }
        in_doubt = {event_id for events in unanswered.values() for event_id, _, _ in events}
        evidence = self._search(self.recorded.trail, in_doubt)
        for number, events in unanswered.items():
            unknown |= self._resolve(number, events, evidence)
        self._check_on_unknown_outcome(unknown, "an earlier try ended before it recorded a response")
        return unknown

    def _in_doubt(self, number: int, sent: Sequence[_Pending], error: SalesforceStreamError) -> list[_Pending]:
        """Resolve the events of a request without a response; return the events to send (again)."""
        log.warning("%s: it is unknown whether %d events were published: %s", self._topic, len(sent), error)
        self._pause(error if error.retriable else ServiceUnavailableError(str(error)))
        events = _recorded_events(sent)
        evidence = self._search(self.recorded.latest, {event_id for event_id, _, _ in events})
        unknown = self._resolve(number, events, evidence)
        self._check_on_unknown_outcome(unknown, f"the request failed with: {error.happened}")
        self.summary.published += len(evidence.found)
        if self._on_unknown_outcome == "skip":
            self.summary.in_doubt += len(unknown)
            sent = [pending for pending in sent if pending.event.correlation_key not in unknown]
        return [pending for pending in sent if not self.recorded.has_accepted(pending.event.correlation_key)]

    def _search(self, trail: Iterable[AcceptedEvent], in_doubt: Collection[str]) -> Evidence:
        """Read the bus, with retries after temporary errors; an unreadable topic is no evidence."""
        while True:
            try:
                # The events of a request may arrive within this time after it.
                arrival = 2 * self._client.call_timeout
                return find_published(self._client, self._topic, tuple(trail), in_doubt, latest_arrival=arrival)
            except SalesforceStreamError as error:
                if not error.retriable:
                    log.warning("%s: the topic cannot be read for events in doubt: %s", self._topic, error)
                    return Evidence()
                self._pause(error)

    def _resolve(self, number: int, events: SentEvents, evidence: Evidence) -> set[str]:
        """Record the events on the bus as accepted, and the results of a request if all of them are known.

        :return: the IDs of the events that stay in doubt.
        """
        ids = {event_id for event_id, _, _ in events}
        unknown = set() if evidence.others_are_absent else ids - evidence.found.keys()
        if not unknown:
            absent = PublishError(f"{self._topic}: the request was not answered, and the event is not on the bus.")
            found = [(row, key, event_id, evidence.found.get(event_id)) for event_id, row, key in events]
            self._ledger.finish(number, [result_line(*event, None if event[3] else absent) for event in found])
        on_bus = ids & evidence.found.keys()
        for event_id in on_bus:
            self.recorded.accept(AcceptedEvent(event_id, evidence.found[event_id]))
        if ids:
            text = "%s: %d of %d events in doubt are on the bus, %d remain in doubt."
            log.info(text, self._topic, len(on_bus), len(ids), len(unknown))
        return unknown

    def _check_on_unknown_outcome(self, unknown: set[str], cause: str) -> None:
        if unknown and self._on_unknown_outcome == "fail":
            raise PublishOutcomeUnknownError(
                f"{self._topic}: it is unknown whether {len(unknown)} events were published: {cause.rstrip('.')}. The "
                f"bus does not show it either. All other accepted events are recorded below {self._ledger.url}. Check "
                "whether subscribers received the events in doubt, then clear the task with "
                "on_unknown_outcome='publish_again' (subscribers may receive them twice, with the same event ID) or "
                "on_unknown_outcome='skip' (they may be missing)."
            )

    def _fail(self, number: int, row: Row, error: str, text: str) -> None:
        self.summary.failed += 1
        self.summary.problems[error] += 1
        self._failures.append({"row": number, "key": row.key, "error": error, "text": text, "values": dict(row.values)})
        if len(self._failures) == _FAILURES_OF_A_FILE:
            self._write_failures()

    def _write_failures(self) -> None:
        if self._failures:
            self._ledger.fail(self._attempt, self._failure_files, self._failures)
            self._failures, self._failure_files = [], self._failure_files + 1


def _recorded_events(sent: Sequence[_Pending]) -> list[tuple[str, int, str | None]]:
    return [(pending.event.correlation_key, pending.number, pending.row.key) for pending in sent]
