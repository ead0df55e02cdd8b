"""Event times over a stream that mixes schemas: each payload is read with the schema that its event names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow.compute as pc

from airflow_provider_sfstream.protocol.event_time import EventTimeReader


class StreamEventTimes:
    """Gives the event times of events of any schema ids.

    :param schema: Returns the Avro schema JSON of a schema id, usually :meth:`EventSource.schema`.
    """

    def __init__(self, schema: Callable[[str], str]) -> None:
        self._schema = schema
        self._readers: dict[str, EventTimeReader] = {}

    def __call__(self, schema_ids: Sequence[str], payloads: Sequence[bytes]) -> list[int | None]:
        """Return the event times of the payloads in milliseconds since the epoch; ``None`` where one tells none.

        :raises SchemaError: if a schema is not usable; and what the schema lookup raises.
        """
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
        reader = self._readers.get(schema_id)
        if reader is None:
            reader = self._readers[schema_id] = EventTimeReader(self._schema(schema_id))
        times: list[int | None] = reader.read_many(payloads).to_pylist()
        return times


class EventTimeBounds:
    """The smallest and largest event time of many events, in milliseconds since the epoch; ``None`` if none is known.

    Payloads are gathered by :meth:`add` and read by :meth:`settle`, thousands in one step, because a step for each
    small batch costs several times as much and holds up the thread that receives the stream.

    :param schema: Returns the Avro schema JSON of a schema id.
    """

    def __init__(self, schema: Callable[[str], str]) -> None:
        self._schema = schema
        self._readers: dict[str, EventTimeReader] = {}
        self._gathered: dict[str, list[bytes]] = {}
        self.first: int | None = None
        self.last: int | None = None

    def add(self, schema_ids: Sequence[str], payloads: Sequence[bytes]) -> None:
        """Gather events, to be read by the next :meth:`settle`."""
        for schema_id in set(schema_ids):
            if schema_id not in self._readers:
                self._readers[schema_id] = EventTimeReader(self._schema(schema_id))
                self._gathered[schema_id] = []
            if schema_ids.count(schema_id) == len(payloads):
                self._gathered[schema_id] += payloads
            else:
                chosen = zip(schema_ids, payloads, strict=True)
                self._gathered[schema_id] += [payload for id_, payload in chosen if id_ == schema_id]

    def settle(self) -> None:
        """Read what was gathered, and forget it."""
        for schema_id, payloads in self._gathered.items():
            if not payloads:
                continue
            bounds = pc.min_max(self._readers[schema_id].read_many(payloads)).as_py()
            if bounds["min"] is not None:
                self.first = bounds["min"] if self.first is None else min(self.first, bounds["min"])
                self.last = bounds["max"] if self.last is None else max(self.last, bounds["max"])
            payloads.clear()
