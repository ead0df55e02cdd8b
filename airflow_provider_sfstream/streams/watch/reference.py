"""The second subscription of a wait for the end of a stream, on an event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime

from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.salesforce.events import StartFrom
from airflow_provider_sfstream.salesforce.server_time import ServerTime
from airflow_provider_sfstream.streams.async_source import AsyncEventSource
from airflow_provider_sfstream.streams.end_of_stream import EndOfStream

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reference:
    """Evidence of a second subscription at ``LATEST``, which was requested at ``opened_at`` or later.

    ``opened_at`` is a lower bound of Salesforce's time.
    """

    evidence: EndOfStream
    opened_at: datetime


@asynccontextmanager
async def reference(
    source: AsyncEventSource,
    topic: str,
    server_time: ServerTime | None,
    *,
    silence_timeout: float,
    clock: Callable[[], float],
) -> AsyncIterator[Reference | None]:
    """Read a second subscription to ``topic`` in the background, for as long as the context lasts.

    ``None`` where nothing can be confirmed: the API names no positions, or Salesforce's time was not measured. A fault
    of the subscription is logged, and ends it.

    :param server_time: Salesforce's time, measured with ``clock``.
    """
    if server_time is None or not source.confirms_positions:
        yield None
        return
    found = Reference(EndOfStream(), server_time.earliest(clock()))

    async def read() -> None:
        subscription = source.subscribe(topic, StartFrom.LATEST, limit=1, silence_timeout=silence_timeout)
        try:
            async with aclosing(subscription) as responses:
                async for response in responses:
                    found.evidence.reference_answered(response)
        except SalesforceStreamError as error:
            log.info("%s: the subscription that looks for the end of the stream failed: %s", topic, error)

    reading = asyncio.create_task(read())
    try:
        yield found
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
