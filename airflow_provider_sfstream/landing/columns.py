"""From batches of events to the columns of a row group, at the least cost to the stream that they arrive on.

Python's interpreter lock decides the speed of a drain: whoever holds it keeps the subscription from asking for more.
So values are joined batch by batch, by the thread that has just received them, in a few calls a batch; and what is
left for the writing thread, :meth:`RowGroup.table`, is a handful of calls that let go of the lock. ``pa.array`` is not
among them: it copies with the lock held, and its first call imports pandas where that is installed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from airflow_provider_sfstream.streams.source import EventBatch

_OF_EVENTS: Mapping[pa.Field, Callable[[EventBatch], Sequence[Any]]] = {
    pa.field("replay_id", pa.binary(), nullable=False): attrgetter("replay_ids"),
    pa.field("event_id", pa.string()): attrgetter("event_ids"),
    pa.field("schema_id", pa.string(), nullable=False): attrgetter("schema_ids"),
    pa.field("payload", pa.binary(), nullable=False): attrgetter("payloads"),
}
"""The columns with a value for each event, and what of a batch they hold: bytes, or texts and null."""
SCHEMA = pa.schema(
    [
        pa.field("ordinal", pa.int64(), nullable=False),
        *_OF_EVENTS,
        pa.field("received_at", pa.timestamp("us", "UTC"), nullable=False),
    ]
)
"""The contract of a raw landing."""


class RowGroup:
    """Events that are written together. ``first_ordinal`` is the place of the first one in the window."""

    def __init__(self, first_ordinal: int) -> None:
        self._first_ordinal = first_ordinal
        self._values = [_Values(field.type) for field in _OF_EVENTS]
        self._received_at: list[int] = []
        self.payload_bytes = 0

    def __len__(self) -> int:
        return len(self._received_at)

    def add(self, batch: EventBatch) -> None:
        """Append the events of ``batch``, which has some. Its values are copied; nothing of it is kept."""
        for values, of in zip(self._values, _OF_EVENTS.values(), strict=True):
            values.add(of(batch))
        self._received_at += [batch.received_at // 1000] * len(batch)
        self.payload_bytes += sum(map(len, batch.payloads))

    def table(self) -> pa.Table:
        """Return the columns, as :data:`SCHEMA` has them."""
        ordinals = array("q", range(self._first_ordinal, self._first_ordinal + len(self)))
        columns = [
            _fixed_width(ordinals, pa.int64()),
            *(values.column() for values in self._values),
            _fixed_width(array("q", self._received_at), SCHEMA.field("received_at").type),
        ]
        return pa.Table.from_arrays(columns, schema=SCHEMA)


class _Values:
    """A column of bytes or texts: the values end to end, their lengths, and the places of nulls."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._chunks: list[bytes] = []
        self._lengths = [0]
        self._nulls: list[int] = []

    def add(self, values: Sequence[Any]) -> None:
        """Append ``values``: bytes, or texts, which are UTF-8 encoded, and nulls."""
        if self._type == pa.binary():
            self._add_bytes(values)
        else:
            self._add_texts(values)

    def _add_bytes(self, values: Sequence[bytes]) -> None:
        self._chunks.append(b"".join(values))
        self._lengths.extend(map(len, values))

    def _add_texts(self, values: Sequence[str | None]) -> None:
        if values.count(values[0]) == len(values):
            self._add_repeated(values[0], len(values))
            return
        if None in values:
            first = len(self._lengths) - 1
            self._nulls += [first + place for place, value in enumerate(values) if value is None]
        self._add_bytes([b"" if value is None else value.encode() for value in values])

    def _add_repeated(self, value: str | None, count: int) -> None:
        if value is None:
            first = len(self._lengths) - 1
            self._nulls += range(first, first + count)
        encoded = b"" if value is None else value.encode()
        self._chunks.append(encoded * count)
        self._lengths += [len(encoded)] * count

    def column(self) -> pa.Array:
        """Return the column. Offsets are added up, and long values joined, without the interpreter."""
        count = len(self._lengths) - 1
        if len(self._nulls) == count:
            return pa.nulls(count, self._type)
        offsets = pc.cumulative_sum(_fixed_width(array("i", self._lengths), pa.int32())).buffers()[1]
        data = pa.py_buffer(b"".join(self._chunks))
        return pa.Array.from_buffers(self._type, count, [self._validity(count), offsets, data])

    def _validity(self, count: int) -> pa.Buffer | None:
        if not self._nulls:
            return None
        bits = bytearray(b"\xff") * -(-count // 8)
        for place in self._nulls:
            bits[place // 8] &= ~(1 << place % 8)
        return pa.py_buffer(bits)


def _fixed_width(values: array[int], type_: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)])
