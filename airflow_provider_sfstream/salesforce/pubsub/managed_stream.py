"""One ManagedSubscribe call: events as in Subscribe, and commits on the same stream."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Self

from airflow_provider_sfstream.exceptions import InvalidReplayIdError, ServiceUnavailableError
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken, Session
from airflow_provider_sfstream.salesforce.events import EventBatch
from airflow_provider_sfstream.salesforce.managed_subscription import Commits, ManagedSubscription
from airflow_provider_sfstream.salesforce.pubsub.subscription import Response, Subscription
from airflow_provider_sfstream.salesforce.pubsub_api_pb2 import (
    CommitReplayRequest,
    ManagedFetchRequest,
    ManagedFetchResponse,
)
from airflow_provider_sfstream.salesforce.replay_ids import LONGEST

log = logging.getLogger(__name__)

COMMIT_KEEPALIVE = 600.0
"""Seconds without a commit after which the committed replay ID is committed again. Salesforce ends the stream after
1,800 seconds, and the next keepalive may arrive 270 seconds later."""

_SECONDS_TO_FLUSH = 5.0


def opening_request(subscription: ManagedSubscription) -> ManagedFetchRequest:
    """Return the request that opens a stream, without a number of events. Later requests do not name the stream."""
    return ManagedFetchRequest(developer_name=subscription.developer_name, subscription_id=subscription.subscription_id)


class ManagedStream(Subscription):
    """An open ManagedSubscribe call: an iterator of batches, and a context manager that closes it.

    Events begin after the replay ID committed last, else at the ``defaultReplay`` of the subscription. The iterator
    returns the same values as ``PubSubClient.subscribe``: batches, keepalives as empty batches, and ``None`` after each
    ``idle_timeout`` seconds without either. A response to a commit only counts as neither. A limit ends the iteration,
    but not the stream, so that the caller can commit the events.

    :meth:`commit` and :meth:`wait_for_commit` may be called from any thread, also while another one iterates.

    Salesforce ends a stream on which nothing was committed for 1,800 seconds. So this class commits the last
    acknowledged replay ID again with the first response after ``commit_keepalive`` seconds without a commit. Before the
    first acknowledgement it commits ``recommit``; without that the stream ends, with a retriable error.

    :param limit: events to request in total; ``None``: no limit.
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> EventBatch | None:
        """Return the next batch; see the class.

        :raises StopIteration: when the events that the limit allows have been returned.
        :raises SalesforceStreamError: when the stream has ended for another reason.
        """
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
        if not 0 < len(replay_id) <= LONGEST:
            raise InvalidReplayIdError(
                f"{self._name}: invalid replay ID: expected 1 to {LONGEST} bytes, got {len(replay_id)}. The committed "
                "position did not change."
            )
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
