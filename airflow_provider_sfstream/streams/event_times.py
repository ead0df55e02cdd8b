"""Event times of a stream with mixed schemas: each payload is read with the schema that its event names."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.salesforce.event_time import EventTimeReader, JsonEventTimeReader, to_datetime
from airflow_provider_sfstream.salesforce.events import PayloadEncoding

log = logging.getLogger(__name__)

TimeReader: TypeAlias = EventTimeReader | JsonEventTimeReader
"""Reader of event times from payloads of one encoding and schema."""


def time_reader(encoding: PayloadEncoding, schema: str | None) -> TimeReader:
    """Return the reader of payloads in ``encoding``.

    :param schema: the Avro schema JSON of Avro payloads. JSON payloads need none.
    """
    return JsonEventTimeReader() if encoding == "json" else EventTimeReader(schema or "")


class TimeReaders:
    """Readers of the event times of a stream with mixed schemas, one for each schema ID.

    :param schema: Returns the schema of a schema ID, or ``None`` while it is unavailable. Called for Avro payloads
        only, and not again for an ID whose schema was returned.
    """

    def __init__(self, encoding: PayloadEncoding, schema: Callable[[str], str | None]) -> None:
        self._encoding = encoding
        self._schema = schema
        self._readers: dict[str, TimeReader] = {}

    def reader_of(self, schema_id: str) -> TimeReader | None:
        """Return the reader for events of ``schema_id``; ``None`` while no usable schema is available, because a
        missing schema must not stop the stream."""
        reader = self._readers.get(schema_id)
        if reader is None:
            try:
                schema = self._schema(schema_id) if self._encoding == "avro" else None
                reader = self._readers[schema_id] = time_reader(self._encoding, schema)
            except SalesforceStreamError:
                return None
        return reader

    def times(self, schema_ids: Sequence[str], payloads: Sequence[bytes]) -> list[int | None]:
        """Return the event times of the payloads in milliseconds since the epoch; ``None`` where a payload has no time
        or its schema is unavailable."""
        distinct = set(schema_ids)
        if len(distinct) == 1:
            return self._read(schema_ids[0], payloads)
        times: list[int | None] = [None] * len(payloads)
        for schema_id in distinct:
            indexes = [index for index, id_ in enumerate(schema_ids) if id_ == schema_id]
            for index, time in zip(indexes, self._read(schema_id, [payloads[index] for index in indexes]), strict=True):
                times[index] = time
        return times

    def _read(self, schema_id: str, payloads: Sequence[bytes]) -> list[int | None]:
        reader = self.reader_of(schema_id)
        times: list[int | None] = [None] * len(payloads) if reader is None else reader.read_many(payloads).to_pylist()
        return times


class EventTimeBounds:
    """Smallest and largest event time of many events, in milliseconds since the epoch; ``None`` without a known time.

    :meth:`add` collects payloads and :meth:`settle` reads them, thousands in one step. A step for each small batch
    would cost several times as much and block the thread that receives the stream. If a schema is still unavailable
    when :meth:`settle` is called, its events are skipped, and its ID is added to ``unread``. ``untimed`` counts the
    events without a known time.
    """

    def __init__(self, readers: TimeReaders) -> None:
        self._readers = readers
        self._payloads: dict[str, list[bytes]] = {}
        self.first: int | None = None
        self.last: int | None = None
        self.unread: set[str] = set()
        self.untimed = 0

    def add(self, schema_ids: Sequence[str], payloads: Sequence[bytes]) -> None:
        """Collect events for the next :meth:`settle`."""
        for schema_id in set(schema_ids):
            schema_payloads = self._payloads.setdefault(schema_id, [])
            if schema_ids.count(schema_id) == len(payloads):
                schema_payloads += payloads
            else:
                events = zip(schema_ids, payloads, strict=True)
                schema_payloads += [payload for id_, payload in events if id_ == schema_id]

    def settle(self) -> None:
        """Read the collected events, then discard them."""
        for schema_id, payloads in self._payloads.items():
            if not payloads:
                continue
            reader = self._readers.reader_of(schema_id)
            if reader is None:
                self.unread.add(schema_id)
                self.untimed += len(payloads)
            else:
                self._include(reader.read_many(payloads))
            payloads.clear()

    def _include(self, times: pa.Int64Array) -> None:
        self.untimed += times.null_count
        bounds = pc.min_max(times).as_py()
        if bounds["min"] is not None:
            self.first = bounds["min"] if self.first is None else min(self.first, bounds["min"])
            self.last = bounds["max"] if self.last is None else max(self.last, bounds["max"])


class MisdatedEventWarning:
    """Warning of a drain about stored events that are too far in the future to meet ``until``, logged once."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._is_logged = False

    def stored(self, misdated: int | None) -> None:
        """Log the warning for the first event with such a time, in milliseconds since the epoch."""
        if misdated is None or self._is_logged:
            return
        self._is_logged = True
        time = to_datetime(misdated)
        log.warning(
            "%s: an event has the event time %s, more than a day ahead of the present: its publisher's clock is wrong. "
            "The event was landed and did not end the drain at 'until'. Correct that clock.",
            self._topic,
            f"{misdated} ms (after the year 9999)" if time is None else time.isoformat(),
        )
