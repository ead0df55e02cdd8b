"""Managed subscriptions as the event source of a drain, which commits durable events."""

from __future__ import annotations

import random as random_module
import time
from collections.abc import Callable
from contextlib import closing
from typing import Self

from airflow_provider_sfstream.exceptions import ConfigurationError, SalesforceStreamError
from airflow_provider_sfstream.salesforce.events import (
    CONFIRM_TIMEOUT,
    EventBatch,
    PayloadEncoding,
    Responses,
    StartFrom,
)
from airflow_provider_sfstream.salesforce.managed_subscription import ManagedSubscription
from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient
from airflow_provider_sfstream.salesforce.pubsub.managed_stream import ManagedStream
from airflow_provider_sfstream.salesforce.pubsub.subscription import check_amounts, check_topic
from airflow_provider_sfstream.salesforce.server_time import ServerTime
from airflow_provider_sfstream.streams.managed.committer import Committer
from airflow_provider_sfstream.streams.managed.continuation import (
    Comparison,
    DeliveredEvents,
    IsLanded,
    Redelivery,
    without_known,
)
from airflow_provider_sfstream.streams.managed.exclusive_stream import LOOK_SECONDS, ExclusiveStream

BUSY_TIMEOUT = 60.0
"""Seconds to wait for the slot of a managed subscription: enough after a clean end, too few after a lost network."""

_PATIENT_SLICES = 2


def check_start(subscription: ManagedSubscription, topic: str, after: bytes | StartFrom) -> None:
    """Validate the start of a managed subscription, without contacting Salesforce.

    :raises ConfigurationError: if ``after`` is neither a replay ID nor ``COMMITTED``, or the topic is not one of the
        Pub/Sub API.
    """
    check_topic(topic)
    if not isinstance(after, bytes) and after is not StartFrom.COMMITTED:
        raise ConfigurationError(
            f"{subscription.description}: cannot start from {after.value!r}: it starts after its committed replay ID, "
            "or, before its first commit, at its defaultReplay in Salesforce. Nothing was read."
        )


class ManagedSource:
    """One managed subscription as an :class:`~airflow_provider_sfstream.streams.source.EventSource`. Not thread-safe.

    With a replay ID as start, the position that Salesforce stores is not trusted: Salesforce can drop it, and others
    can move it. Events are read from an ordinary subscription to the topic until the managed stream is found to
    continue with the same event; see :class:`~airflow_provider_sfstream.streams.managed.continuation.Comparison`.
    ``COMMITTED`` begins where Salesforce continues.

    Salesforce delivers events again that were not committed. Those that the reader already has are skipped:
    ``subscribe`` with a replay ID that this object has yielded yields the events after it. Before the first yield, the
    events for which ``is_landed`` is true are skipped at the beginning, and the last of them is committed, because they
    are durable.

    From ``COMMITTED``, while nothing was yielded since the last commit, it also commits the position that an empty
    response confirms, before it yields that response. No event lies before that position. Without this commit, a
    subscription that never committed (``defaultReplay`` LATEST) would miss events after an interruption. It never
    commits an event that it has yielded: :meth:`commit` does, when the event is durable.

    A closed ``subscribe`` requests no more events and leaves the stream open, so that :meth:`commit` can use it. The
    next ``subscribe`` and :meth:`close` end it.

    :param is_landed: returns whether the event with a replay ID is in a landed window; landed windows are an unbroken
        run of the stream. Called for a few events of each response, until one is not. ``None``: none is known.
    :param busy_timeout: seconds to wait while another stream holds the subscription. 960 outlast a lost connection.
    :param commits: ``False`` to commit nothing, as a sensor needs.
    :param is_topic_proven: the record of the subscription names the topic that is read.
    :param clock: monotonic seconds. ``random`` is a number in ``[0, 1)``.
    """

    payload_encoding: PayloadEncoding = "avro"
    confirms_positions = True

    def __init__(
        self,
        client: PubSubClient,
        subscription: ManagedSubscription,
        *,
        is_landed: IsLanded | None = None,
        busy_timeout: float = BUSY_TIMEOUT,
        commits: bool = True,
        is_topic_proven: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        self.subscription = subscription
        self._client = client
        self._is_landed = is_landed
        self._commits = commits
        self._clock = clock
        self._stream = ExclusiveStream(
            client,
            subscription,
            busy_timeout=busy_timeout,
            is_topic_proven=is_topic_proven,
            clock=clock,
            sleep=sleep,
            random=random,
        )
        self._delivered = DeliveredEvents()
        self._committer = Committer(self._stream, self._delivered, is_landed, clock=clock, sleep=sleep, random=random)
        self._comparison: Comparison | None = None
        self._is_lost = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the open stream, so that the next consumer can use the subscription. The client stays open."""
        self._stream.close()

    @property
    def stream(self) -> ManagedStream | None:
        """Return the open stream, if any."""
        return self._stream.open_stream

    def schema(self, schema_id: str) -> str:
        """Return the Avro schema JSON of ``schema_id``."""
        return self._client.schema(schema_id)

    def renew_session(self) -> None:
        """Discard the access token that was refused last, so that the next call logs in again."""
        self._client.renew_session()

    def latest(self, topic: str, *, idle_timeout: float) -> Responses:
        """Open an ordinary subscription to ``topic`` at ``LATEST``, for one event."""
        return self._client.latest(topic, idle_timeout=idle_timeout)

    def server_time(self, clock: Callable[[], float]) -> ServerTime | None:
        """Return Salesforce's time, measured now; see the client's method."""
        return self._client.server_time(clock)

    def prove_contact(self, topic: str) -> None:
        """Return after Salesforce has answered a request on the same connection; see the client's method."""
        self._client.prove_contact(topic)

    def subscribe(
        self,
        topic: str,
        after: bytes | StartFrom,
        *,
        limit: int | None,
        idle_timeout: float,
        answer_within: float | None = None,
    ) -> Responses:
        """Yield batches in stream order; see the class.

        :param topic: the topic of the subscription.
        :param after: ``COMMITTED``: where Salesforce continues; or a replay ID up to which, itself included, every
            event is stored. After a lost position also ``EARLIEST``, or ``LATEST``, which then means ``COMMITTED``.
        :param limit: number of events to yield. Skipped events do not count.
        :raises ConfigurationError: immediately, if an argument is invalid; or if the subscription has another topic.
        :raises SubscriptionBusyError: if another stream holds it for longer than ``busy_timeout``.
        :raises ReplayIdLostError: if ``after`` is a position that can no longer be read.
        :raises CommitError: if Salesforce refuses to commit durable events.
        :raises SalesforceStreamError: if the stream ends for any other reason.
        """
        if self._is_lost and after is StartFrom.LATEST:
            after = StartFrom.COMMITTED
        if not (self._is_lost and after is StartFrom.EARLIEST):
            check_start(self.subscription, topic, after)
        check_amounts(self.subscription.description, limit, idle_timeout=idle_timeout)
        self._stream.topic = topic
        return self._read(after, limit, idle_timeout)

    @property
    def differs(self) -> bool:
        """Return whether Salesforce continues at another position than after the events that were read."""
        return self._comparison is not None and self._comparison.differs

    def commit(self, replay_id: bytes, timeout: float = CONFIRM_TIMEOUT) -> bool:
        """Commit ``replay_id``, up to which every event is durable, and wait until Salesforce continues after it.

        Uses the open stream if that has delivered ``replay_id``. Otherwise it reads a new one, without storing events,
        until ``replay_id`` is delivered again, and commits there. It stops without a commit if Salesforce is past it:
        then an earlier commit was carried out and only its acknowledgement was lost. Retriable faults are retried.

        A source that has yielded nothing uses ``is_landed``. Without that it reads until it is caught up.

        :param timeout: seconds before it fails; if the position had moved, seconds without an event.
        :returns: ``False`` if Salesforce continues at another position, and that could not be changed. Nothing is lost:
            the next drain compares again.
        :raises CommitError: if Salesforce refuses the commit.
        :raises SubscriptionBusyError: if another stream holds it for longer than ``busy_timeout``.
        :raises SubscriptionMovedError: if ``replay_id`` was yielded, and only events before it are delivered again.
        :raises ServiceUnavailableError: if it did not succeed in time. The events will be delivered again.
        """
        return self._committer.commit(replay_id, self._comparison, timeout)

    def _read(self, after: bytes | StartFrom, limit: int | None, idle_timeout: float) -> Responses:
        redelivery = self._delivered.begin(after, self._is_landed)
        try:
            if after is StartFrom.COMMITTED:
                self._comparison = None
                yield from self._read_committed(redelivery, limit, idle_timeout)
            else:
                yield from self._read_compared(after, redelivery, limit, idle_timeout)
        except SalesforceStreamError as error:
            self._is_lost = self._is_lost or error.replay_lost
            self.close()
            raise
        finally:
            self._stream.stop_fetching()

    def _read_committed(self, redelivery: Redelivery, limit: int | None, idle_timeout: float) -> Responses:
        for response in self._responses(limit, idle_timeout):
            if response is None:
                yield None
            elif len(response):
                batch = self._without_known(response, redelivery)
                self._delivered.add(batch)
                yield batch
            else:
                self._confirm(response, redelivery)
                yield response

    def _read_compared(
        self, after: bytes | StartFrom, redelivery: Redelivery, limit: int | None, idle_timeout: float
    ) -> Responses:
        comparison = self._comparison = Comparison(
            self._stream,
            self._new_events(redelivery, limit, min(LOOK_SECONDS, idle_timeout)),
            after=after,
            limit=limit,
            patience=_PATIENT_SLICES * idle_timeout,
            clock=self._clock,
        )
        yield from self._in_slices(comparison.responses(), idle_timeout)
        if not comparison.agrees:
            return
        for response in self._in_slices(comparison.rest(), idle_timeout):
            if response is not None and len(response):
                self._delivered.add(response)
            elif response is not None and response.confirms_position:
                self._delivered.confirm(response.latest_replay_id)
            yield response

    def _in_slices(self, responses: Responses, idle_timeout: float) -> Responses:
        """Yield ``responses``, but ``None`` only after ``idle_timeout`` without one: single reads wait for less."""
        with closing(responses):
            last = self._clock()
            for response in responses:
                if response is None and self._clock() - last < idle_timeout:
                    continue
                last = self._clock()
                yield response

    def _new_events(self, redelivery: Redelivery, limit: int | None, idle_timeout: float) -> Responses:
        """Yield the responses of a new stream without the events that were delivered before."""
        has_begun = False
        for response in self._responses(limit, idle_timeout):
            if response is not None and len(response):
                if not has_begun and self._delivered.first not in (None, response.replay_ids[0]):
                    self._delivered.forget()  # its position moved: the yielded events are not delivered again
                    redelivery = Redelivery()
                has_begun = True
                response = self._without_known(response, redelivery)
            elif response is not None and response.confirms_position:
                self._commit_redelivered(redelivery)
            yield response

    def _commit_redelivered(self, redelivery: Redelivery) -> None:
        """Commit the last landed event that was delivered again: no reader needs it."""
        last = redelivery.last
        if last is not None and self._delivered.first is None and last != self._stream.committed:
            self._commit_durable(last)

    def _responses(self, limit: int | None, idle_timeout: float) -> Responses:
        return self._stream.responses(limit, idle_timeout, self._committer.position if self._commits else None)

    def _without_known(self, response: EventBatch, redelivery: Redelivery) -> EventBatch:
        """Return the new events of a response. Commit the last event before them, once all redelivered ones arrived."""
        was_over, redelivered = redelivery.is_over, redelivery.known(response.replay_ids)
        self._stream.allow(redelivered)
        if redelivery.is_over and not was_over:
            self._commit_redelivered(redelivery)
        return without_known(response, redelivered)

    def _confirm(self, response: EventBatch, redelivery: Redelivery) -> None:
        """Record that the stream is caught up, if the empty response confirms a position."""
        if not response.confirms_position:
            return
        redelivery.is_over = True
        if self._delivered.first is None:
            self._commit_durable(response.latest_replay_id)
        self._delivered.confirm(response.latest_replay_id)

    def _commit_durable(self, replay_id: bytes) -> None:
        """Commit a replay ID up to which no reader needs events: nothing was yielded since the last commit."""
        if self._commits:
            self._stream.commit(replay_id, self._clock() + CONFIRM_TIMEOUT)
