"""What a watch reads from: an interface, so that either API fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from airflow_provider_sfstream.salesforce.events import AsyncResponses, PayloadEncoding, StartFrom
from airflow_provider_sfstream.salesforce.server_time import ServerTime


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
