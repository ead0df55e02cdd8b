"""One ManagedSubscribe call: events as in Subscribe, and commits on the same stream.

Source of the protocol facts: the Pub/Sub API guide, "ManagedSubscribe RPC Method", and the proto's comments.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from airflow_provider_sfstream.exceptions import CommitError, CommitFailedError, ServiceUnavailableError
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken, Session
from airflow_provider_sfstream.salesforce.closing import ClosedOnExit
from airflow_provider_sfstream.salesforce.events import EventBatch
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription
from airflow_provider_sfstream.salesforce.pubsub.subscription import Response, Subscription, opening_request
from airflow_provider_sfstream.salesforce.pubsub_api_pb2 import (
    CommitReplayRequest,
    ManagedFetchRequest,
    ManagedFetchResponse,
)
from airflow_provider_sfstream.salesforce.replay_ids import check_replay_id

log = logging.getLogger(__name__)

COMMIT_KEEPALIVE = 600.0
"""Seconds without a commit after which the committed replay ID is committed again. Salesforce ends the stream after
1,800 seconds, and the next keepalive may arrive 270 seconds later."""

_SECONDS_TO_FLUSH = 5.0
_STORED_COMMITS = 1_000
_REFUSED = (
    *("no replay id", "missing", "empty", "required"),
    *("invalid", "malformed", "retention", "expired"),
    *("not delivered", "not been delivered", "older"),
)
"""Words in commit errors about the replay ID; the guide lists the cases, but neither codes nor exact texts."""


def commit_error_from(message: str, *, subscription: ManagedSubscription, replay_id: bytes) -> CommitError:
    """Return the error for a commit that Salesforce answered with an error, ready to raise.

    :class:`CommitError`: the replay ID is missing, invalid, out of retention, not delivered yet or older than the
        committed one; a retry fails too. :class:`CommitFailedError`: any other failure, which may be temporary.
    """
    text = " ".join(message.split())[:500]
    refused = any(part in text.lower() for part in _REFUSED)
    error = CommitError if refused else CommitFailedError
    remedy = (
        "Check for another consumer that commits to it, or for a change of the subscription in Salesforce."
        if refused
        else "Commit again. Until then, Salesforce delivers the events again."
    )
    return error(
        f"{subscription.description}: Salesforce did not commit replay ID {replay_id.hex()} ({text!r}). The "
        f"committed position did not change, and no event is lost. {remedy}"
    )


@dataclass
class _Commit:
    number: int
    replay_id: bytes
    error: CommitError | None = None


@dataclass
class Commits:
    """Commits that were sent on one stream, and the responses. Not safe for concurrent use.

    A response acknowledges its own commit and all commits sent before it (proto, ``CommitReplayResponse``). An error
    concerns its own commit only. The last 1,000 commits are stored.
    """

    subscription: ManagedSubscription
    acknowledged: bytes | None = field(default=None, init=False)
    """The last acknowledged replay ID."""
    _sent: dict[str, _Commit] = field(default_factory=dict, init=False)
    _number: int = field(default=0, init=False)
    _through: int = field(default=0, init=False)

    def sent(self, replay_id: bytes) -> str:
        """Record that a commit of ``replay_id`` is sent, and return its commit request ID."""
        request_id = str(uuid.uuid4())
        self._number += 1
        self._sent[request_id] = _Commit(self._number, replay_id)
        if len(self._sent) > _STORED_COMMITS:
            del self._sent[next(iter(self._sent))]
        return request_id

    def answered(self, request_id: str, error: str | None) -> CommitError | None:
        """Record the response to a commit; return its error, if any. A response to an unknown commit is ignored."""
        commit = self._sent.get(request_id)
        if commit is None:
            return None
        if error is not None:
            commit.error = commit_error_from(error, subscription=self.subscription, replay_id=commit.replay_id)
        elif commit.number > self._through:
            self._through, self.acknowledged = commit.number, commit.replay_id
        return commit.error

    def outcome(self, replay_id: bytes) -> bool:
        """Return whether the last commit of ``replay_id`` is acknowledged; ``False``: no response yet. Raise its error,
        if any."""
        # The last one: a keepalive commits the same replay ID again.
        commit = next((sent for sent in reversed(self._sent.values()) if sent.replay_id == replay_id), None)
        if commit is None:
            raise CommitError(
                f"{self.subscription.description}: replay ID {replay_id.hex()} was not committed on this "
                "stream. The committed position did not change."
            )
        if commit.error is not None:
            raise commit.error
        return commit.number <= self._through

    @property
    def unanswered(self) -> bool:
        """Return whether a response is outstanding."""
        return any(commit.number > self._through and commit.error is None for commit in self._sent.values())


class ManagedStream(Subscription, ClosedOnExit):
    """An open ManagedSubscribe call: an iterator of batches, and a context manager that closes it.

    Events begin after the replay ID committed last, else at the ``defaultReplay`` of the subscription. The iterator
    returns the same values as ``PubSubClient.subscribe``: batches, keepalives as empty batches, and ``None`` after each
    ``idle_timeout`` seconds without either. A response to a commit only counts as neither. A limit ends the iteration,
    but not the stream, so that the caller can commit the events.

    :meth:`commit` and :meth:`wait_for_commit` may be called from any thread, also while another one iterates.

    Salesforce ends a stream on which nothing was committed for 1,800 seconds. So this class commits the last
    acknowledged replay ID again with the first response after ``commit_keepalive`` seconds without a commit. Before the
    first acknowledgement it commits ``recommit``; without that the stream ends, with a retriable error.
    """

    def __init__(
        self,
        open_call: Callable[..., Any],
        session: Session,
        token: AccessToken,
        subscription: ManagedSubscription,
        *,
        limit: int | None,
        idle_timeout: float,
        recommit: bytes | None = None,
        commit_keepalive: float = COMMIT_KEEPALIVE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.subscription = subscription
        self._session = session
        self._remaining = limit
        self._recommit = recommit
        self._commit_keepalive = commit_keepalive
        self._clock = clock
        self._commits = Commits(subscription)
        self._commits_changed = threading.Condition()
        self._last_commit = clock()
        self._commit_timed_out = False
        self._end: Exception | None = None
        self._batches = self.batches(idle_timeout)
        super().__init__(open_call, token, subscription.description, opening_request(subscription), {}, limit)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> EventBatch | None:
        """Return the next batch; see the class."""
        if self._remaining == 0:
            raise StopIteration
        with self._session.using(self._token):
            batch = next(self._batches)
        if batch is not None and self._remaining is not None:
            self._remaining -= len(batch)
        return batch

    @property
    def is_open(self) -> bool:
        """Return whether no end of the stream has been received."""
        return self._end is None

    def allow(self, count: int) -> None:
        """Raise the limit by ``count`` events, in place of events that were delivered and discarded."""
        if self._remaining is not None:
            self._remaining += count
        with self._lock:
            self._credit.allow(count)
            self._request_more()

    def stop_fetching(self) -> None:
        """Request no more events. The stream stays open for commits; events that were requested may still arrive."""
        with self._lock:
            self._credit.stop()

    def commit(self, replay_id: bytes) -> None:
        """Commit ``replay_id``, so that the next stream begins after it. Does not wait for the response.

        :param replay_id: of an event that this stream has delivered, or one that an empty batch with ``pending > 0``
            named.
        :raises ServiceUnavailableError: if the stream has ended. The committed position did not change.
        :raises SalesforceStreamError: the error that ended the stream, if it is not retriable.
        """
        check_replay_id(self._name, replay_id, "The committed position did not change.")
        with self._session.using(self._token), self._commits_changed:
            if self._end is not None:
                raise self._interrupted(replay_id, "was not committed")
            self._send_commit(replay_id)

    def wait_for_commit(self, replay_id: bytes, timeout: float) -> None:
        """Wait until the commit of ``replay_id``, or a later one, is acknowledged.

        :raises CommitError: if the response is an error. The stream continues.
        :raises ServiceUnavailableError: if no response arrives in time, or the stream ends before. The result of the
            commit is unknown until the next stream: its start shows the committed position.
        :raises SalesforceStreamError: the error that ended the stream, if it is not retriable.
        """
        with self._session.using(self._token), self._commits_changed:
            self._commits_changed.wait_for(lambda: self._commits.outcome(replay_id) or self._end is not None, timeout)
            if self._commits.outcome(replay_id):
                return
            if self._end is not None:
                raise self._interrupted(replay_id, "may not be committed")
            self._commit_timed_out = True
            raise ServiceUnavailableError(
                f"{self._name}: Salesforce did not acknowledge within {timeout:g} seconds the commit of replay ID "
                f"{replay_id.hex()}. It may or may not be committed. No event is lost: events after the committed "
                "position are delivered again."
            )

    def close(self) -> None:
        """End the call. Discard received events that were not returned.

        Wait up to five seconds for the response to an outstanding commit, unless an earlier wait for it timed out:
        cancelling the call could lose the commit.
        """
        with self._commits_changed:
            seconds = 0.0 if self._commit_timed_out else _SECONDS_TO_FLUSH
            self._commits_changed.wait_for(lambda: self._end is not None or not self._commits.unanswered, seconds)
            if self._end is None and self._commits.unanswered:
                log.warning(
                    "%s: the stream was closed before Salesforce acknowledged a commit. If it failed, the events after "
                    "the previous commit are delivered again.",
                    self._name,
                )
        super().close()

    def _is_finished(self) -> bool:
        return False  # responses to commits must be read even after the limit

    def _deliver(self, arrival: tuple[int, Response, int]) -> None:
        size, response, _ = arrival
        has_commit_response = isinstance(response, ManagedFetchResponse) and response.HasField("commit_response")
        with self._commits_changed:
            if has_commit_response:
                self._record_commit_response(response)
            self._keep_alive()
        if response.events or not has_commit_response:
            super()._deliver(arrival)
        else:
            with self._lock:
                self._bytes_waiting -= size

    def _deliver_end(self, end: Exception | None) -> None:
        with self._commits_changed:
            self._end = end
            self._commits_changed.notify_all()
        super()._deliver_end(end)

    def _record_commit_response(self, response: Any) -> None:
        answer = response.commit_response
        failure = answer.error.msg or "no reason reported" if answer.HasField("error") else None
        error = self._commits.answered(answer.commit_request_id, failure)
        if error is not None:
            log.warning("%s", error)
            self._recommit = None
        self._commits_changed.notify_all()

    def _keep_alive(self) -> None:
        committed = self._commits.acknowledged or self._recommit
        is_due = self._clock() - self._last_commit >= self._commit_keepalive
        # Not while a commit is outstanding: the response to an older replay ID must not acknowledge a newer one.
        if committed is not None and is_due and not self._commits.unanswered:
            self._send_commit(committed)

    def _send_commit(self, replay_id: bytes) -> None:
        self._commit_timed_out = False
        commit = CommitReplayRequest(commit_request_id=self._commits.sent(replay_id), replay_id=replay_id)
        self._requests.put(ManagedFetchRequest(commit_replay_id_request=commit))
        self._last_commit = self._clock()

    def _interrupted(self, replay_id: bytes, outcome: str) -> Exception:
        """Return the error for a commit that the end of the stream interrupted, of the same class as that end."""
        return type(self._end or RuntimeError())(
            f"{self._name}: replay ID {replay_id.hex()} {outcome}, because the stream ended. No event is lost: "
            f"events after the committed position are delivered again. Cause: {self._end}"
        )
