"""Interfaces of event sources and event sinks, which let drains and watches work with either API and any landing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from airflow_provider_sfstream.salesforce.events import (
    AsyncResponses,
    EventBatch,
    PayloadEncoding,
    Responses,
    StartFrom,
)
from airflow_provider_sfstream.salesforce.server_time import ServerTime

__all__ = ["EventBatch", "EventSink", "EventSource", "PayloadEncoding", "Responses", "StartFrom"]


class _Source(Protocol):
    @property
    def payload_encoding(self) -> PayloadEncoding:
        """Return the encoding of the payloads in its batches."""
        ...

    @property
    def confirms_positions(self) -> bool:
        """Return whether its empty responses name a replay ID, so that the position of a quiet topic can advance."""
        ...

    def renew_session(self) -> None:
        """Discard the access token that was refused last, so that the next call logs in again."""
        ...


class EventSource(_Source, Protocol):
    """Source of subscriptions to one topic: the client of the Pub/Sub API, or that of the Streaming API.

    ``subscribe`` yields batches in stream order, first those strictly after ``after`` when it is a replay ID. It
    requests at most ``limit`` events over its lifetime (``None``: no limit), so that a bounded drain does not spend
    delivery allocation on events that it will not store. It ends when all of them have been yielded. It yields ``None``
    whenever ``idle_timeout`` seconds have passed without a response: that proves nothing. An empty batch is an answer;
    with ``pending`` and ``latest_replay_id`` it names a position from which reading can continue. ``answer_within`` is
    the longest time between requests for an answer, in seconds, where the API supports that (``None``: the server
    decides). A fault ends the iteration with a :class:`SalesforceStreamError`; closing the iterator ends the
    subscription.
    """

    def subscribe(
        self,
        topic: str,
        after: bytes | StartFrom,
        *,
        limit: int | None,
        idle_timeout: float,
        answer_within: float | None = None,
    ) -> Responses: ...

    def latest(self, topic: str, *, idle_timeout: float) -> Responses:
        """Open an ordinary subscription to ``topic`` at ``LATEST``, for one event, independent of any other.

        Only for sources that confirm positions. Yields the same items as :meth:`subscribe`.
        """
        ...

    def server_time(self, clock: Callable[[], float]) -> ServerTime | None:
        """Return Salesforce's time, measured now with ``clock``; ``None``, with a warning, if it cannot be measured."""
        ...

    def prove_contact(self, topic: str) -> None:
        """Return after Salesforce has answered a request on the connection of the subscription.

        Every response sent before that answer has then arrived, or is on its way to the consumer.

        :raises ContactError: if Salesforce does not answer in time.
        :raises SalesforceStreamError: if Salesforce answers with a fault.
        """
        ...

    def schema(self, schema_id: str) -> str | None:
        """Return the Avro schema JSON of ``schema_id``; ``None`` for JSON payloads, which need no schema."""
        ...


class EventSink(Protocol):
    """Destination of drained events. ``append`` may return before it stores the batch; keeps order, bounds memory."""

    def append(self, batch: EventBatch) -> None: ...


class AsyncEventSource(_Source, Protocol):
    """Source of subscriptions to one topic for an event loop: the asyncio client of either API.

    ``subscribe`` is the async form of :meth:`EventSource.subscribe`; a keepalive is an empty batch. A source that
    confirms no positions yields one as soon as the subscription is established. It requests no more events while its
    consumer is busy, so that memory is bounded. After ``silence_timeout`` seconds without any response, keepalives
    included, it raises :class:`ServiceUnavailableError`. Cancelling a task that waits for it leaks no resources.
    """

    def subscribe(
        self, topic: str, after: bytes | StartFrom, *, limit: int | None, silence_timeout: float
    ) -> AsyncResponses: ...

    async def server_time(self, clock: Callable[[], float]) -> ServerTime | None:
        """Return Salesforce's time, measured now with ``clock``; ``None``, with a warning, if it cannot be measured."""
        ...

    async def schema(self, schema_id: str) -> str | None:
        """Return the Avro schema JSON of ``schema_id``; ``None`` for JSON payloads, which need no schema."""
        ...
