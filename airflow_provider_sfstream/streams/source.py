"""What drains and watches read from, and what drains write to: interfaces, so that either API and any landing fit."""

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


class EventSource(Protocol):
    """A place to subscribe to one topic: the client of the Pub/Sub API, or that of the Streaming API.

    ``subscribe`` yields batches in stream order, first those strictly after ``start`` when it is a replay ID. It asks
    for at most ``limit`` events over its lifetime (``None``: no limit), so that a bounded drain does not spend
    delivery allocation on events that it will not store, and ends when all of them have been yielded. It yields
    ``None`` whenever ``idle_timeout`` seconds have passed without a response: that shows nothing. An empty batch is an
    answer; with ``pending`` and ``latest_replay_id`` it names a position from which reading can continue.
    ``answer_within`` requests an answer at least so often, in seconds, where the API allows that (``None``: as the
    server likes). A fault ends the iteration with a :class:`SalesforceStreamError`; closing the iterator ends the
    subscription.
    """

    @property
    def payload_encoding(self) -> PayloadEncoding:
        """What the payloads of its batches are."""
        ...

    @property
    def confirms_positions(self) -> bool:
        """Whether its empty responses name a replay ID, so that a quiet topic's position can move."""
        ...

    def subscribe(
        self,
        topic: str,
        start: bytes | StartFrom,
        *,
        limit: int | None,
        idle_timeout: float,
        answer_within: float | None = None,
    ) -> Responses: ...

    def latest(self, topic: str, *, idle_timeout: float) -> Responses:
        """Open an ordinary subscription to ``topic`` at ``LATEST``, for one event, beside any other.

        Only for sources that confirm positions. It yields as :meth:`subscribe` does.
        """
        ...

    def server_time(self, clock: Callable[[], float]) -> ServerTime | None:
        """Return Salesforce's time, measured now with ``clock``; ``None``, with a warning, if it cannot be measured.

        :param clock: monotonic seconds.
        """
        ...

    def prove_contact(self, topic: str) -> None:
        """Return once Salesforce has answered something on the connection that the subscription uses.

        Whatever it had sent before is here then, or on its way to the consumer.

        :raises ContactError: if it does not answer in time.
        :raises SalesforceStreamError: if it answers with a fault.
        """
        ...

    def schema(self, schema_id: str) -> str | None:
        """Return the Avro schema JSON of ``schema_id``; ``None`` where JSON payloads have to speak for themselves."""
        ...

    def renew_session(self) -> None:
        """Forget the access token, so that the next call logs in again."""
        ...


class EventSink(Protocol):
    """Where drained events go. ``append`` may return before the batch is stored, but keeps order and bounds memory."""

    def append(self, batch: EventBatch) -> None: ...


class AsyncEventSource(Protocol):
    """A place to subscribe to one topic from an event loop: the asyncio client of either API.

    ``subscribe`` is an async generator of responses in stream order, the first strictly after ``start`` when it is a
    replay ID; a keepalive is an empty batch. A source that confirms no positions yields one as soon as the subscription
    stands. It asks for at most ``limit`` events over its lifetime (``None``: no
    limit) and ends when all of them have been yielded. It never asks for more while its consumer is busy, so that
    memory is bounded. After ``silence_timeout`` seconds without any response, keepalives included, it ends with
    :class:`ServiceUnavailableError`. A fault ends it with a :class:`SalesforceStreamError`; closing it ends the
    subscription. Cancelling a task that waits for it leaks nothing.
    """

    @property
    def payload_encoding(self) -> PayloadEncoding:
        """What the payloads of its batches are."""
        ...

    @property
    def confirms_positions(self) -> bool:
        """Whether its empty responses name a replay ID, so that a quiet topic's position can move."""
        ...

    def subscribe(
        self, topic: str, start: bytes | StartFrom, *, limit: int | None, silence_timeout: float
    ) -> AsyncResponses: ...

    async def server_time(self, clock: Callable[[], float]) -> ServerTime | None:
        """Return Salesforce's time, measured now with ``clock``; ``None``, with a warning, if it cannot be measured.

        :param clock: monotonic seconds.
        """
        ...

    async def schema(self, schema_id: str) -> str | None:
        """Return the Avro schema JSON of ``schema_id``; ``None`` where JSON payloads have to speak for themselves."""
        ...

    def renew_session(self) -> None:
        """Forget the access token that was refused last, so that the next call logs in again."""
        ...
