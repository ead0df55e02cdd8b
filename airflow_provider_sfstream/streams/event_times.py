"""Event times over a stream that mixes schemas: each payload is read with the schema that its event names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.salesforce.event_time import EventTimeReader, JsonEventTimeReader
from airflow_provider_sfstream.salesforce.events import PayloadEncoding


class TimeReader(Protocol):
    """Reads event times from payloads of one kind."""

    def read(self, payload: bytes) -> datetime | None:
        """Return the time of one event, in UTC; ``None`` if it tells none or is damaged."""
        ...

    def read_many(self, payloads: Sequence[bytes]) -> pa.Int64Array:
        """Return the times in milliseconds since the epoch, null where there is none."""
        ...


def time_reader(encoding: PayloadEncoding, schema: str | None) -> TimeReader:
    """Return the reader of payloads in ``encoding``.

    :param schema: the Avro schema JSON of Avro payloads. JSON payloads need none.
    :raises SchemaError: if Avro payloads have no usable one.
    """
    return JsonEventTimeReader() if encoding == "json" else EventTimeReader(schema or "")


class TimeReaders:
    """The readers of a stream's event times, one for each schema id.

    :param schema: Returns the schema of a schema id, ``None`` while it cannot be had. Asked for Avro payloads only, and
        not again for an id whose schema it has given.
    """

    def __init__(self, encoding: PayloadEncoding, schema: Callable[[str], str | None]) -> None:
        self._encoding = encoding
        self._schema = schema
        self._readers: dict[str, TimeReader] = {}

    def of(self, schema_id: str) -> TimeReader | None:
        """Return the reader for events of ``schema_id``; ``None`` while there is no usable schema: no fault of theirs
        stops a stream."""
        reader = self._readers.get(schema_id)
        if reader is None:
            try:
                schema = self._schema(schema_id) if self._encoding == "avro" else None
                reader = self._readers[schema_id] = time_reader(self._encoding, schema)
            except SalesforceStreamError:
                return None
        return reader


class StreamEventTimes:
    """Gives the event times of events of any schema ids.

    :param readers: Those of the stream.
    """

    def __init__(self, readers: TimeReaders) -> None:
        self._readers = readers

    def __call__(self, schema_ids: Sequence[str], payloads: Sequence[bytes]) -> list[int | None]:
        """Return the event times of the payloads in milliseconds since the epoch; ``None`` where one tells none, or its
        schema cannot be had."""
        distinct = set(schema_ids)
        if len(distinct) == 1:
            return self._read(schema_ids[0], payloads)
        times: list[int | None] = [None] * len(payloads)
        for schema_id in distinct:
            places = [place for place, id_ in enumerate(schema_ids) if id_ == schema_id]
            for place, time in zip(places, self._read(schema_id, [payloads[at] for at in places]), strict=True):
                times[place] = time
        return times

    def _read(self, schema_id: str, payloads: Sequence[bytes]) -> list[int | None]:
        reader = self._readers.of(schema_id)
        times: list[int | None] = [None] * len(payloads) if reader is None else reader.read_many(payloads).to_pylist()
        return times


class EventTimeBounds:
    """The smallest and largest event time of many events, in milliseconds since the epoch; ``None`` if none is known.

    Payloads are gathered by :meth:`add` and read by :meth:`settle`, thousands in one step, because a step for each
    small batch costs several times as much and holds up the thread that receives the stream. Where a schema cannot be
    had by then, they are passed over, and its id is in ``unread``. ``untimed`` counts the events of which no time is
    known.

    :param readers: Those of the stream.
    """

    def __init__(self, readers: TimeReaders) -> None:
        self._readers = readers
        self._gathered: dict[str, list[bytes]] = {}
        self.first: int | None = None
        self.last: int | None = None
        self.unread: set[str] = set()
        self.untimed = 0

    def add(self, schema_ids: Sequence[str], payloads: Sequence[bytes]) -> None:
        """Gather events, to be read by the next :meth:`settle`."""
        for schema_id in set(schema_ids):
            gathered = self._gathered.setdefault(schema_id, [])
            if schema_ids.count(schema_id) == len(payloads):
                gathered += payloads
            else:
                chosen = zip(schema_ids, payloads, strict=True)
                gathered += [payload for id_, payload in chosen if id_ == schema_id]

    def settle(self) -> None:
        """Read what was gathered, and forget it."""
        for schema_id, payloads in self._gathered.items():
            if not payloads:
                continue
            reader = self._readers.of(schema_id)
            if reader is None:
                self.unread.add(schema_id)
                self.untimed += len(payloads)
            else:
                self._take(reader.read_many(payloads))
            payloads.clear()

    def _take(self, times: pa.Int64Array) -> None:
        self.untimed += times.null_count
        bounds = pc.min_max(times).as_py()
        if bounds["min"] is not None:
            self.first = bounds["min"] if self.first is None else min(self.first, bounds["min"])
            self.last = bounds["max"] if self.last is None else max(self.last, bounds["max"])
