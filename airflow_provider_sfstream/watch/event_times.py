"""How old an event is, by the time that its payload tells; without holding up the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_provider_sfstream.exceptions import SalesforceStreamError

if TYPE_CHECKING:
    from airflow_provider_sfstream.protocol.event_time import EventTimeReader

log = logging.getLogger(__name__)


class EventTimes:
    """Gives the event time of single events of any schema ids.

    :param schema: returns the Avro schema JSON of a schema id.
    """

    def __init__(self, schema: Callable[[str], Awaitable[str]]) -> None:
        self._schema = schema
        self._readers: dict[str, EventTimeReader] = {}

    async def read(self, schema_id: str, payload: bytes) -> datetime | None:
        """Return the time of an event, in UTC; ``None`` if it tells none or its schema cannot be had."""
        reader = self._readers.get(schema_id)
        if reader is None:
            try:
                reader = await asyncio.to_thread(_reader, await self._schema(schema_id))
            except SalesforceStreamError as error:
                log.info("Schema %s cannot be had, so the event's arrival counts as its time: %s", schema_id, error)
                return None
            self._readers[schema_id] = reader
        return reader.read(payload)


def _reader(schema_json: str) -> EventTimeReader:
    # Imported here, and in a thread: the first import takes half a second, in which the event loop must go on.
    from airflow_provider_sfstream.protocol.event_time import EventTimeReader

    return EventTimeReader(schema_json)
