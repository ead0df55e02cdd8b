"""Row groups of landed events: from batches to columns, at the least cost to the stream, and into Parquet parts with
size and SHA-256, without reading them back.

Python's interpreter lock determines the speed of a drain: the thread that holds it blocks the requests of the
subscription. The receiving thread therefore joins values batch by batch, with a few calls per batch. The writing thread
executes only :meth:`RowGroup.table`, a few calls that release the lock. ``pa.array`` is not among them: it copies while
it holds the lock, and its first call imports pandas if that is installed.
"""

from __future__ import annotations

import hashlib
import io
from array import array
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_sfstream.landing.manifest import WindowFile
from airflow_provider_sfstream.landing.storage import discard, is_local, make_folder, sync
from airflow_provider_sfstream.salesforce.events import EVENT_COLUMNS, EventBatch

_EVENT_FIELDS = [pa.field(name, pa.type_for_alias(type_), nullable) for name, type_, nullable in EVENT_COLUMNS.values()]
SCHEMA = pa.schema(
    [
        pa.field("ordinal", pa.int64(), nullable=False),
        *_EVENT_FIELDS,
        pa.field("received_at", pa.timestamp("us", "UTC"), nullable=False),
    ]
)
"""Schema contract of a raw landing."""


class RowGroup:
    """Events of one row group. ``first_ordinal`` is the place of the first one in the window."""

    def __init__(self, first_ordinal: int) -> None:
        self._first_ordinal = first_ordinal
        self._values = [_Values(field.type) for field in _EVENT_FIELDS]
        self._received_at: list[int] = []
        self.payload_bytes = 0

    def __len__(self) -> int:
        return len(self._received_at)

    def add(self, batch: EventBatch) -> None:
        """Append the events of ``batch``, which must not be empty. Its values are copied; the batch can be freed."""
        for values, name in zip(self._values, EVENT_COLUMNS, strict=True):
            values.add(getattr(batch, name))
        self._received_at += [batch.received_at // 1000] * len(batch)
        self.payload_bytes += sum(map(len, batch.payloads))

    def table(self) -> pa.Table:
        """Return the events as a table with :data:`SCHEMA`."""
        ordinals = array("q", range(self._first_ordinal, self._first_ordinal + len(self)))
        columns = [
            _fixed_width(ordinals, pa.int64()),
            *(values.column() for values in self._values),
            _fixed_width(array("q", self._received_at), SCHEMA.field("received_at").type),
        ]
        return pa.Table.from_arrays(columns, schema=SCHEMA)


class _Values:
    """Column of bytes or texts: the concatenated values, their lengths, and the places of nulls."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._chunks: list[bytes] = []
        self._lengths = [0]
        self._nulls: list[int] = []

    def add(self, values: Sequence[Any]) -> None:
        """Append ``values``: bytes, or texts, which are encoded as UTF-8, and nulls."""
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
        """Return the column. Offsets are summed, and long values joined, outside of the interpreter lock."""
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


_BUFFER_BYTES = 2**20


class PartWriter:
    """Writer of row groups to ``part-00000-<attempt>.parquet`` and later parts of about ``part_bytes`` bytes each."""

    def __init__(self, filesystem: Any, folder: str, attempt: str, part_bytes: int) -> None:
        self._filesystem = filesystem
        self._folder = folder
        self._attempt = attempt
        self._part_bytes = part_bytes
        self._files: list[WindowFile] = []
        self._part_names: list[str] = []
        self._rows = 0
        self._file: _CountedFile | None = None
        self._buffered: Any = None
        self._writer: Any = None
        self.finished = False

    def write(self, rows: pa.Table) -> None:
        """Append a row group with the columns of :data:`SCHEMA`."""
        if self._file is not None and self._buffered.tell() >= self._part_bytes:
            self._end_part()
        if self._file is None:
            self._begin_part()
        self._writer.write_table(rows, row_group_size=len(rows))
        self._rows += len(rows)

    def finish(self) -> tuple[WindowFile, ...]:
        """Close the last part and return all parts."""
        if self._file is not None:
            self._end_part()
        self.finished = True
        return tuple(self._files)

    def abandon(self) -> None:
        """Close open files and remove every part of this attempt, as far as the storage allows it."""
        if self._file is not None:
            with suppress(Exception):
                self._file.discard()
            with suppress(Exception):
                self._writer.close()  # after the file is discarded, so that the footer is not written
        with suppress(Exception):  # after one failure, do not wait for an unresponsive storage with each part
            for name in self._part_names:
                with suppress(FileNotFoundError):
                    self._filesystem.rm_file(f"{self._folder}/{name}")

    def _begin_part(self) -> None:
        name = f"part-{len(self._part_names):05d}-{self._attempt}.parquet"
        make_folder(self._filesystem, self._folder)
        self._part_names.append(name)
        self._file = _CountedFile(self._filesystem.open(f"{self._folder}/{name}", "wb"))
        # Parquet is written in many small pieces. Each would wait for the interpreter lock, which the stream uses.
        self._buffered = pa.BufferedOutputStream(pa.PythonFile(self._file, mode="w"), _BUFFER_BYTES)
        self._rows = 0
        self._writer = pq.ParquetWriter(
            self._buffered,
            SCHEMA,
            compression="zstd",
            compression_level=1,
            use_dictionary=["schema_id"],
            write_statistics=["ordinal", "received_at"],
        )

    def _end_part(self) -> None:
        writer, file = self._writer, self._file
        if file is None:
            return
        writer.close()
        self._buffered.flush()
        if is_local(self._filesystem):
            sync(file.raw)
        file.close()
        self._files.append(WindowFile(self._part_names[-1], self._rows, file.size, file.digest.hexdigest()))
        self._writer = self._buffered = self._file = None


class _CountedFile(io.RawIOBase):
    """File opened for writing, with the size and the SHA-256 of the written data."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self.size = 0
        self.digest = hashlib.sha256()
        self._discarded = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        length = len(data) if isinstance(data, bytes) else memoryview(data).nbytes
        if not self._discarded:
            self.digest.update(data)
            self.raw.write(data)
            self.size += length
        return length

    def tell(self) -> int:
        return self.size

    def discard(self) -> None:
        """Discard the written data, and ignore all later writes."""
        self._discarded = True
        discard(self.raw)

    def close(self) -> None:
        if not self.closed:
            super().close()
            if not self._discarded:
                self.raw.close()
