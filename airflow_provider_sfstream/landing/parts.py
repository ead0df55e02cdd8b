"""Parquet parts: row groups in, files with size and SHA-256 out, nothing read back."""

from __future__ import annotations

import hashlib
import io
from array import array
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_sfstream.drain.source import EventBatch
from airflow_provider_sfstream.landing.manifest import WindowFile
from airflow_provider_sfstream.landing.storage import is_local, make_folder, sync

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


@dataclass(frozen=True)
class RowGroup:
    """Batches that are written together; ``first_ordinal`` is the place of their first event in the window."""

    batches: list[EventBatch]
    first_ordinal: int


class PartWriter:
    """Writes row groups to ``part-00000-<attempt>.parquet`` and on, a new part once one has ``part_bytes`` bytes."""

    def __init__(self, filesystem: Any, folder: str, attempt: str, part_bytes: int) -> None:
        self._filesystem = filesystem
        self._folder = folder
        self._attempt = attempt
        self._part_bytes = part_bytes
        self._files: list[WindowFile] = []
        self._begun: list[str] = []
        self._rows = 0
        self._file: _CountedFile | None = None
        self._writer: Any = None
        self.finished = False

    def write(self, group: RowGroup) -> tuple[list[str], list[bytes]]:
        """Write ``group``; return its schema ids and payloads."""
        if self._file is not None and self._file.size >= self._part_bytes:
            self._end_part()
        if self._file is None:
            self._begin_part()
        schema_ids = list(chain.from_iterable(batch.schema_ids for batch in group.batches))
        payloads = list(chain.from_iterable(batch.payloads for batch in group.batches))
        received_at = array("q")
        for batch in group.batches:
            received_at.extend(array("q", (batch.received_at // 1000,)) * len(batch))
        columns = [
            _fixed_width(array("q", range(group.first_ordinal, group.first_ordinal + len(payloads))), pa.int64()),
            _binary(list(chain.from_iterable(batch.replay_ids for batch in group.batches)), pa.binary()),
            _text(list(chain.from_iterable(batch.event_ids for batch in group.batches))),
            _text(list(schema_ids)),
            _binary(payloads, pa.binary()),
            _fixed_width(received_at, SCHEMA.field("received_at").type),
        ]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=SCHEMA), row_group_size=len(payloads))
        self._rows += len(payloads)
        return schema_ids, payloads

    def finish(self) -> tuple[WindowFile, ...]:
        """Close the last part and return all of them."""
        if self._file is not None:
            self._end_part()
        self.finished = True
        return tuple(self._files)

    def abandon(self) -> None:
        """Close what is open and remove every part of this attempt, as far as the storage still allows it."""
        for closable in (self._writer, self._file):
            if closable is not None:
                with suppress(Exception):
                    closable.close()
        for name in self._begun:
            with suppress(Exception):
                self._filesystem.rm_file(f"{self._folder}/{name}")

    def _begin_part(self) -> None:
        name = f"part-{len(self._begun):05d}-{self._attempt}.parquet"
        make_folder(self._filesystem, self._folder)
        self._begun.append(name)
        self._file = _CountedFile(self._filesystem.open(f"{self._folder}/{name}", "wb"))
        self._rows = 0
        self._writer = pq.ParquetWriter(
            self._file,
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
        if is_local(self._filesystem):
            sync(file.raw)
        file.close()
        self._files.append(WindowFile(self._begun[-1], self._rows, file.size, file.digest.hexdigest()))
        self._writer = self._file = None


# pa.array would copy large values with the interpreter locked, and so stall the stream (joining lets go of it); and its
# first call imports pandas where that is installed.


def _binary(values: list[bytes], type_: pa.DataType, valid: pa.Buffer | None = None) -> pa.Array:
    offsets = array("i", accumulate(map(len, values), initial=0))
    return pa.Array.from_buffers(type_, len(values), [valid, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))])


def _text(values: list[str | None]) -> pa.Array:
    nulls = values.count(None)
    if nulls == len(values):
        return pa.nulls(nulls, pa.string())
    valid = None
    if nulls:
        bits = "".join("0" if value is None else "1" for value in reversed(values))
        valid = pa.py_buffer(int(bits, 2).to_bytes(-(-len(bits) // 8), "little"))
    return _binary([b"" if value is None else value.encode() for value in values], pa.string(), valid)


def _fixed_width(values: array[int], type_: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)])


class _CountedFile(io.RawIOBase):
    """A file opened for writing that knows the size and the SHA-256 of what passed through it."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self.size = 0
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.digest.update(data)
        self.raw.write(data)
        length = len(data) if isinstance(data, bytes) else memoryview(data).nbytes
        self.size += length
        return length

    def tell(self) -> int:
        return self.size

    def close(self) -> None:
        if not self.closed:
            super().close()
            self.raw.close()
