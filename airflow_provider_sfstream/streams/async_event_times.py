"""How old an event is, by the time that its payload tells; without holding up the event loop."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.salesforce.events import PayloadEncoding

if TYPE_CHECKING:
    from airflow_provider_sfstream.streams.event_times import TimeReader
    from airflow_provider_sfstream.streams.source import AsyncEventSource

log = logging.getLogger(__name__)


class EventTimes:
    """Gives the event time of single events of any schema ids.

    :param source: where they come from.
    """

    def __init__(self, source: AsyncEventSource) -> None:
        self._source = source
        self._readers: dict[str, TimeReader] = {}

    async def read(self, schema_id: str, payload: bytes) -> datetime | None:
        """Return the time of an event, in UTC; ``None`` if it tells none or its schema cannot be had."""
        reader = self._readers.get(schema_id)
        if reader is None:
            try:
                encoding = self._source.payload_encoding
                schema = await self._source.schema(schema_id) if encoding == "avro" else None
                reader = await asyncio.to_thread(_reader, encoding, schema)
            except SalesforceStreamError as error:
                log.info("Schema %s cannot be had, so the event's arrival counts as its time: %s", schema_id, error)
                return None
            self._readers[schema_id] = reader
        return reader.read(payload)


def _reader(encoding: PayloadEncoding, schema: str | None) -> TimeReader:
    # Imported here, and in a thread: the first import takes half a second, in which the event loop must go on.
    from airflow_provider_sfstream.streams.event_times import time_reader

    return time_reader(encoding, schema)
