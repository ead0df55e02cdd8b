"""From batches of events to the columns of a row group, at the least cost to the stream that they arrive on.

Python's interpreter lock decides the speed of a drain: whoever holds it keeps the subscription from asking for more.
So values are joined batch by batch, by the thread that has just received them, in a few calls a batch; and what is
left for the writing thread, :meth:`RowGroup.table`, is a handful of calls that let go of the lock. ``pa.array`` is not
among them: it copies with the lock held, and its first call imports pandas where that is installed.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.reading.source import EventBatch

SCHEMA = pa.schema(
    [
        pa.field("ordinal", pa.int64(), nullable=False),
        pa.field("replay_id", pa.binary(), nullable=False),
        pa.field("event_id", pa.string()),
        pa.field("schema_id", pa.string(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("received_at", pa.timestamp("us", "UTC"), nullable=False),
    ]
)
"""The contract of a raw landing."""


class RowGroup:
    """Events that are written together. ``first_ordinal`` is the place of the first one in the window."""

    def __init__(self, first_ordinal: int) -> None:
        self._first_ordinal = first_ordinal
        self._replay_ids = _Values()
        self._event_ids = _Values()
        self._schema_ids = _Values()
        self._payloads = _Values()
        self._received_at: list[int] = []
        self.payload_bytes = 0

    def __len__(self) -> int:
        return len(self._received_at)

    def add(self, batch: EventBatch) -> None:
        """Append the events of ``batch``, which has some. Its values are copied; nothing of it is kept."""
        self._replay_ids.add(batch.replay_ids)
        self._event_ids.add_texts(batch.event_ids)
        self._schema_ids.add_texts(batch.schema_ids)
        self.payload_bytes += self._payloads.add(batch.payloads)
        self._received_at += [batch.received_at // 1000] * len(batch)

    def table(self) -> pa.Table:
        """Return the columns, as :data:`SCHEMA` has them."""
        ordinals = array("q", range(self._first_ordinal, self._first_ordinal + len(self)))
        columns = [
            _fixed_width(ordinals, pa.int64()),
            self._replay_ids.column(pa.binary()),
            self._event_ids.column(pa.string()),
            self._schema_ids.column(pa.string()),
            self._payloads.column(pa.binary()),
            _fixed_width(array("q", self._received_at), SCHEMA.field("received_at").type),
        ]
        return pa.Table.from_arrays(columns, schema=SCHEMA)


class _Values:
    """A column of bytes or texts: the values end to end, their lengths, and the places of nulls."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._lengths = [0]
        self._nulls: list[int] = []

    def add(self, values: Sequence[bytes]) -> int:
        """Append ``values``; return how many bytes they have."""
        chunk = b"".join(values)
        self._chunks.append(chunk)
        self._lengths.extend(map(len, values))
        return len(chunk)

    def add_texts(self, values: Sequence[str | None]) -> None:
        """Append texts, UTF-8 encoded; ``None`` is null."""
        if values.count(values[0]) == len(values):
            self._add_repeated(values[0], len(values))
            return
        if None in values:
            first = len(self._lengths) - 1
            self._nulls += [first + place for place, value in enumerate(values) if value is None]
        self.add([b"" if value is None else value.encode() for value in values])

    def _add_repeated(self, value: str | None, count: int) -> None:
        if value is None:
            first = len(self._lengths) - 1
            self._nulls += range(first, first + count)
        encoded = b"" if value is None else value.encode()
        self._chunks.append(encoded * count)
        self._lengths += [len(encoded)] * count

    def column(self, type_: pa.DataType) -> pa.Array:
        """Return the column. Offsets are added up, and long values joined, without the interpreter."""
        count = len(self._lengths) - 1
        if len(self._nulls) == count:
            return pa.nulls(count, type_)
        offsets = pc.cumulative_sum(_fixed_width(array("i", self._lengths), pa.int32())).buffers()[1]
        data = pa.py_buffer(b"".join(self._chunks))
        return pa.Array.from_buffers(type_, count, [self._validity(count), offsets, data])

    def _validity(self, count: int) -> pa.Buffer | None:
        if not self._nulls:
            return None
        bits = bytearray(b"\xff") * -(-count // 8)
        for place in self._nulls:
            bits[place // 8] &= ~(1 << place % 8)
        return pa.py_buffer(bits)


def _fixed_width(values: array[int], type_: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)])
