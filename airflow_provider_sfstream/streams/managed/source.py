"""Managed subscriptions as event sources: of a drain, which commits durable events, and of a watch, which does not."""

from __future__ import annotations

from contextlib import aclosing, closing
from typing import Any

from airflow_provider_sfstream.exceptions import ConfigurationError, SalesforceStreamError, ServiceUnavailableError
from airflow_provider_sfstream.salesforce.closing import ClosedOnExit
from airflow_provider_sfstream.salesforce.events import (
    CONFIRM_TIMEOUT,
    AsyncResponses,
    Credit,
    EventBatch,
    PayloadEncoding,
    Responses,
    StartFrom,
    check_amounts,
)
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription
from airflow_provider_sfstream.salesforce.pubsub.async_client import AsyncPubSubClient
from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient
from airflow_provider_sfstream.salesforce.pubsub.managed_stream import ManagedStream
from airflow_provider_sfstream.salesforce.pubsub.subscription import check_topic
from airflow_provider_sfstream.salesforce.replay_ids import is_later
from airflow_provider_sfstream.streams.managed.committer import Committer
from airflow_provider_sfstream.streams.managed.continuation import (
    Comparison,
    DeliveredEvents,
    IsLanded,
    Redelivery,
    without_known,
)
from airflow_provider_sfstream.streams.managed.exclusive_stream import LOOK_SECONDS, ExclusiveStream

_PATIENT_SLICES = 20
"""Slices of a drain's wait, usually of a second: a managed stream that is slower delivers the topic's events again."""


def _check_arguments(
    subscription: ManagedSubscription, topic: str, after: bytes | StartFrom, limit: int | None, **seconds: float
) -> None:
    """Raise :class:`ConfigurationError` for the first invalid argument of a subscription. Contact nothing."""
    check_topic(topic)
    if not isinstance(after, bytes) and after is not StartFrom.COMMITTED:
        raise ConfigurationError(
            f"{subscription.description}: cannot start from {after.value!r}: it starts after its committed replay ID, "
            "or, before its first commit, at its defaultReplay in Salesforce. Nothing was read."
        )
    check_amounts(subscription.description, limit, **seconds)


class ManagedSource(ClosedOnExit):
    """One managed subscription as an :class:`~airflow_provider_sfstream.streams.source.EventSource`. Not thread-safe.

    With a replay ID as start, the position that Salesforce stores is not trusted: Salesforce can drop it, and others
    can move it. Events are read from an ordinary subscription to the topic until the managed stream is found to
    continue with the same event (:class:`Comparison`). ``COMMITTED`` begins where Salesforce continues.

    Salesforce delivers events again that were not committed. Those that the reader already has are skipped:
    ``subscribe`` with a replay ID that this object has yielded yields the events after it. Before the first yield, the
    events for which ``is_landed`` is true are skipped, and the last of them is committed, because they are durable.

    From ``COMMITTED``, while nothing was yielded since the last commit, it also commits the position that an empty
    response confirms, before it yields that response. No event lies before that position. Without this commit, a
    subscription that never committed (``defaultReplay`` LATEST) would miss events after an interruption. It never
    commits an event that it has yielded: :meth:`commit` does, when the event is durable.

    A closed ``subscribe`` requests no more events and leaves the stream open for :meth:`commit`. The next ``subscribe``
    and :meth:`close` end it.

    :param is_landed: see :data:`IsLanded`; ``None``: no event is known to be landed.
    :param commits: ``False`` to commit nothing, as a sensor needs.
    :param stream_options: of :class:`ExclusiveStream`: ``busy_timeout``, ``is_topic_proven``, and a clock.
    """

    payload_encoding: PayloadEncoding = "avro"
    confirms_positions = True

    def __init__(
        self,
        client: PubSubClient,
        subscription: ManagedSubscription,
        *,
        is_landed: IsLanded | None = None,
        commits: bool = True,
        **stream_options: Any,
    ) -> None:
        self.subscription = subscription
        self.schema, self.renew_session = client.schema, client.renew_session
        self.latest, self.server_time, self.prove_contact = client.latest, client.server_time, client.prove_contact
        self._is_landed, self._commits = is_landed, commits
        self._stream = ExclusiveStream(client, subscription, **stream_options)
        self._delivered = DeliveredEvents()
        self._committer = Committer(self._stream, self._delivered, is_landed)
        self._comparison: Comparison | None = None
        self._is_lost = False

    def close(self) -> None:
        """End the open stream, so that the next consumer can use the subscription. The client stays open."""
        self._stream.close()

    @property
    def stream(self) -> ManagedStream | None:
        """Return the open stream, if any."""
        return self._stream.open_stream

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

        :param after: ``COMMITTED``: where Salesforce continues; or a replay ID up to which, itself included, every
            event is stored. After a lost position also ``EARLIEST``, or ``LATEST``, which then means ``COMMITTED``.
        :raises ConfigurationError: immediately, if an argument is invalid; or if the subscription has another topic.
        :raises ReplayIdLostError: if ``after`` is a position that can no longer be read.
        :raises CommitError: if Salesforce refuses to commit durable events.
        :raises SalesforceStreamError: if the stream ends for any other reason.
        """
        if self._is_lost and after is StartFrom.LATEST:
            after = StartFrom.COMMITTED
        start = StartFrom.COMMITTED if self._is_lost and after is StartFrom.EARLIEST else after
        _check_arguments(self.subscription, topic, start, limit, idle_timeout=idle_timeout)
        self._stream.topic = topic
        return self._read(after, limit, idle_timeout)

    @property
    def differs(self) -> bool:
        """Return whether Salesforce continues at another position than after the events that were read."""
        return self._comparison is not None and self._comparison.differs

    def commit(self, replay_id: bytes, timeout: float = CONFIRM_TIMEOUT) -> bool:
        """Commit ``replay_id``, up to which every event is durable, and wait until Salesforce continues after it.

        Uses the open stream if that has delivered ``replay_id``; else it reads a new one, without storing events, until
        ``replay_id`` is delivered again (if this has yielded nothing: as ``is_landed`` decides, else until caught up).
        It stops without a commit if Salesforce is past it: an earlier commit was carried out, and only its
        acknowledgement was lost. Retriable faults are retried.

        :param timeout: seconds before it fails; if the position had moved, seconds without an event.
        :returns: ``False`` if Salesforce has not shown that it continues after ``replay_id``. Nothing is lost: the next
            drain compares again.
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
        )
        for response in self._in_slices(comparison.responses(), idle_timeout):
            if response is not None and response.confirms_position and not comparison.differs:
                self._delivered.confirm(response.latest_replay_id)
            yield response
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
            last = self._stream.clock()
            for response in responses:
                if response is None and self._stream.clock() - last < idle_timeout:
                    continue
                last = self._stream.clock()
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
        if response.confirms_position:
            redelivery.last = None  # the events up to here need no commit; those after it may be landed too
            if self._delivered.first is None:
                self._commit_durable(response.latest_replay_id)
            self._delivered.confirm(response.latest_replay_id)

    def _commit_durable(self, replay_id: bytes) -> None:
        """Commit a replay ID up to which no reader needs events: nothing was yielded since the last commit."""
        if self._commits:
            self._stream.commit(replay_id, self._stream.clock() + CONFIRM_TIMEOUT)


class AsyncManagedSource:
    """One managed subscription as an :class:`~airflow_provider_sfstream.streams.source.AsyncEventSource`.

    It commits nothing, so each stream begins with the same events until another client commits. After a fault, the
    events that this object has already yielded are skipped if the new stream begins with the first of them. If it
    begins with another event, another client has committed since, and every event is new.

    It holds the only slot of the subscription. Salesforce ends a stream without a commit after 1,800 seconds.
    """

    payload_encoding: PayloadEncoding = "avro"
    confirms_positions = True

    def __init__(self, client: AsyncPubSubClient, subscription: ManagedSubscription) -> None:
        self.subscription = subscription
        self.schema, self.renew_session = client.schema, client.renew_session
        self._client, self._delivered = client, DeliveredEvents()

    def subscribe(
        self, topic: str, after: bytes | StartFrom, *, limit: int | None, silence_timeout: float
    ) -> AsyncResponses:
        """Yield responses in stream order; a keepalive is an empty batch.

        :param after: ``COMMITTED``; or a replay ID. Reading continues after it if this object has yielded it.
        :raises ConfigurationError: immediately, if an argument is invalid.
        :raises SalesforceStreamError: if the stream ends, for example because another stream holds the subscription.
        """
        _check_arguments(self.subscription, topic, after, limit, silence_timeout=silence_timeout)
        return self._read(after, Credit(limit), silence_timeout)

    async def _read(self, after: bytes | StartFrom, credit: Credit, silence_timeout: float) -> AsyncResponses:
        redelivery, has_begun = self._delivered.begin(after, None), False
        responses = self._client.managed_subscribe(self.subscription, limit=credit, silence_timeout=silence_timeout)
        async with aclosing(responses):
            async for response in responses:
                if response.confirms_position and is_later(redelivery.through or b"", response.latest_replay_id):
                    response = without_known(response, 0)  # the stream still seeks the events that it delivers again
                elif response.confirms_position:
                    self._confirm(response, redelivery)
                elif len(response):
                    if not has_begun and response.replay_ids[0] != self._delivered.first:
                        self._delivered.forget()
                        redelivery = Redelivery()
                    has_begun = True
                    redelivered = redelivery.known(response.replay_ids)
                    credit.allow(redelivered)
                    response = without_known(response, redelivered)
                    self._delivered.add(response)
                yield response

    def _confirm(self, response: EventBatch, redelivery: Redelivery) -> None:
        if not redelivery.is_over:
            self._delivered.forget()
            redelivery.is_over = True
            if redelivery.last is not None:
                raise ServiceUnavailableError(
                    f"{self.subscription.description}: only some of the events that were delivered before were "
                    "delivered again. All events are read again, so that none is missed."
                )
        self._delivered.confirm(response.latest_replay_id)
