"""Transfer of rows to the task that owns their file group of a table, and their storage in that task.

Rows travel as Arrow, many in one binary value, so that Spark's rows have three columns regardless of the record's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, chain
from tempfile import TemporaryFile
from threading import Lock
from typing import Any, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.tables.job_config import BATCH_BYTES
from airflow_provider_sfstream.tables.rows.arrow_rows import as_batch, split
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows

Key = TypeVar("Key")
Result = TypeVar("Result")
SMALL = 256 << 10
"""Maximum bytes of a table's or a file group's rows that :func:`small_first` processes beside others."""
_AT_ONCE = 4
_RELEASED = 8 << 20
"""Bytes of rows after which :func:`small_first` returns memory to the system; for fewer, that takes too long."""
_MEMORY_LIMIT = 16 << 20
"""Bytes of compressed blocks that a task holds in memory."""


class Spool(Generic[Key]):
    """Context manager of a temporary file without a name, deleted when it is closed or the process ends."""

    def __init__(self) -> None:
        self._file = TemporaryFile()  # noqa: SIM115 (closed by the context manager)
        self._reading = Lock()
        self._places: dict[Key, list[tuple[int, int]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, key: Key, content: Any) -> None:
        """Add bytes, or a buffer of them."""
        self._places.setdefault(key, []).append((self._file.tell(), self._file.write(content)))

    @property
    def keys(self) -> list[Key]:
        """Keys, in the order of their first insertion."""
        return list(self._places)

    def size(self, key: Key) -> int:
        """Return the bytes added for a key."""
        return sum(size for _, size in self._places.get(key, ()))

    def read(self, key: Key) -> Iterator[bytes]:
        """Yield the content added for a key, in order. Several threads can read."""
        for offset, size in self._places.get(key, ()):
            with self._reading:
                self._file.seek(offset)
                content = self._file.read(size)
            yield content


def packed(rows: pa.Table | pa.RecordBatch) -> pa.Buffer:
    """Return rows as a compressed Arrow stream."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write(rows)
    return sink.getvalue()


def unpacked(content: pa.Buffer | bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of :func:`packed`; only the given columns, if any are given."""
    options = pa.ipc.IpcReadOptions(use_threads=False)  # most blocks are small: threads double the time
    if columns is not None:
        names = pa.ipc.open_stream(content).schema.names
        options.included_fields = [names.index(name) for name in columns]
    return pa.ipc.open_stream(content, options=options).read_all()


def release_memory() -> None:
    """Return freed memory to the operating system. Arrow's pool holds the columns, the system's pool the events of
    Python and the decoder; both retain freed memory."""
    pa.default_memory_pool().release_unused()
    pa.system_memory_pool().release_unused()


def small_first(work: Callable[[Key], Result], keys: Iterable[Key], size: Callable[[Key], int]) -> Iterator[Result]:
    """Yield the results of ``work``: first of small keys, several at a time because most of their time is spent waiting
    for the storage, then of the others one by one.

    :param size: returns the bytes of a key's rows.
    """
    keys = list(keys)
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        yield from pool.map(work, (key for key in keys if size(key) <= SMALL))
    used = 0
    for key in keys:
        if size(key) > SMALL:
            if used > _RELEASED:
                release_memory()
                used = 0
            used += size(key)
            yield work(key)
    release_memory()


class ShuffleBlocks:
    """Context manager of a task's blocks by file group: in memory, or in a temporary file above a size limit."""

    def __init__(self) -> None:
        self._in_memory: dict[int, list[pa.Buffer]] = {}  # memory of the batches: no block is copied
        self._sizes: dict[int, int] = {}
        self._bytes_in_memory = 0
        self._spool: Spool[int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._spool is not None:
            self._spool.__exit__()

    def add(self, batch: pa.RecordBatch) -> None:
        """Store blocks with the schema ``shuffle.BLOCK``."""
        columns = batch.column("file_group").to_pylist(), batch.column("rows"), batch.column("size").to_pylist()
        for file_group, content, size in zip(*columns, strict=True):
            self._sizes[file_group] = self._sizes.get(file_group, 0) + (size or 0)
            buffers = self._in_memory.setdefault(file_group, [])
            if content.is_valid:
                buffers.append(content.as_buffer())
                self._bytes_in_memory += buffers[-1].size
        if self._bytes_in_memory > _MEMORY_LIMIT:
            self._spool = self._spool or Spool()
            for file_group, buffers_of_group in self._in_memory.items():
                for content in buffers_of_group:
                    self._spool.add(file_group, content)
                buffers_of_group.clear()
            self._bytes_in_memory = 0

    def file_groups(self) -> list[int]:
        """Return the numbers of the file groups."""
        return list(self._in_memory)

    def size(self, file_group: int) -> int:
        """Return the bytes of a file group's rows in memory."""
        return self._sizes[file_group]

    def read(self, file_group: int) -> Iterator[Any]:
        """Yield the contents of a file group's blocks."""
        if self._spool is not None:
            yield from self._spool.read(file_group)
        yield from self._in_memory.get(file_group, ())

    def forget(self, file_group: int) -> None:
        """Free the memory of a file group's blocks. Those in the file can be read again."""
        self._in_memory[file_group] = []


BLOCK = pa.schema([("file_group", pa.int32()), ("rows", pa.binary()), ("size", pa.int64())])
"""Number of a file group, its rows as an Arrow stream (null for no rows), and their bytes in memory."""


class Sender:
    """Sender that packs rows of several tables into blocks. It buffers rows up to ``batch_bytes`` over all tables, and
    sends those of one table from half of that: blocks of few rows have a high overhead, and a block is in memory up to
    four times while it is packed.

    :param ends: for each table, the last ID of every file group except the last, in order. File groups are numbered
        across all tables.
    """

    def __init__(self, ends: Sequence[Sequence[str]], batch_bytes: int = BATCH_BYTES) -> None:
        self._ends, self._batch_bytes = ends, batch_bytes
        self._first_groups = list(accumulate((len(table_ends) + 1 for table_ends in ends), initial=0))
        self._buffers: dict[int, list[pa.RecordBatch]] = {}
        self._sizes: dict[int, int] = {}

    def add(self, table: int, rows: pa.RecordBatch) -> Batches:
        """Buffer rows for the file group that contains their ``Id``; yield blocks as soon as there are enough rows.

        :param table: number of the table.
        """
        if len(rows):
            self._buffers.setdefault(table, []).append(rows)
            self._sizes[table] = self._sizes.get(table, 0) + rows.nbytes
        most = self._batch_bytes
        if self._sizes and (self._sizes.get(table, 0) > most // 2 or sum(self._sizes.values()) > most):
            while sum(self._sizes.values()) > most // 2:
                yield from self._send(max(self._sizes, key=lambda number: self._sizes[number]))
            release_memory()

    def rest(self) -> Batches:
        """Yield blocks of all buffered rows."""
        for table in list(self._buffers):
            yield from self._send(table)

    def _send(self, table: int) -> Batches:
        rows = pa.Table.from_batches(self._buffers.pop(table))
        del self._sizes[table]
        numbers = file_groups_of(rows["Id"].combine_chunks(), self._ends[table])
        for number in np.unique(numbers):
            in_group = numbers == number
            yield block(
                self._first_groups[table] + int(number), rows if in_group.all() else rows.filter(pa.array(in_group))
            )


def block(file_group: int, rows: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """Return rows as a block."""
    content = pa.py_buffer(packed(rows).to_pybytes())  # same size; the packed buffer may have twice the capacity
    offsets = pa.py_buffer(np.array([0, content.size], np.int32))
    binary = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, content])
    return pa.RecordBatch.from_arrays(
        [pa.array([file_group], pa.int32()), binary, pa.array([rows.nbytes])], schema=BLOCK
    )


def blocks(rows: Rows, ends: Sequence[str], batch_bytes: int = BATCH_BYTES) -> Rows:
    """Return a function for ``mapInArrow`` that sends the result of ``rows``, all for one table.

    :param ends: as in :class:`Sender`, for one table, like ``batch_bytes``.
    """

    def send(batches: Batches) -> Batches:
        sender = Sender([ends], batch_bytes)
        for batch in rows(batches):
            yield from sender.add(0, batch)
        yield from sender.rest()

    return send


def combined(schema: pa.Schema, tables: list[pa.Table], order: Sequence[str] = ()) -> pa.RecordBatch:
    """Return the rows of tables as one batch, sorted by some columns, and empty the list. Wide rows are in memory only
    once: each column of the tables is freed when it is part of the result.

    :raises pyarrow.ArrowInvalid: if a column has more than two GiB of text.
    """
    parts = {
        field.name: pa.chunked_array([chunk for table in tables for chunk in table[field.name].chunks], field.type)
        for field in schema
    }
    tables.clear()
    places = None
    if order:
        places = pc.sort_indices(
            pa.table({name: parts[name] for name in order}), [(name, "ascending") for name in order]
        )
    columns = []
    for name in schema.names:
        column = parts.pop(name).combine_chunks()
        columns.append(column if places is None else column.take(places))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def file_groups_of(ids: pa.Array, ends: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the number of the file group of each ID."""
    if not ends:
        return np.zeros(len(ids), np.int64)
    encoded_ids = np.array(pc.cast(ids, pa.binary()).to_pylist(), dtype=np.bytes_)
    return np.searchsorted(np.array([end.encode() for end in ends]), encoded_ids)


def _zeros(rows: pa.RecordBatch) -> npt.NDArray[Any]:
    return np.zeros(len(rows), np.int64)


def gathered(
    batches: Batches, most: int, number_of: Callable[[pa.RecordBatch], npt.NDArray[Any]] = _zeros
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield each number with its rows, in their order, after about ``most`` bytes of rows of all numbers.

    :param number_of: returns the number of each row.
    """
    parts: dict[int, list[pa.RecordBatch]] = {}
    size = 0
    for batch in chain(batches, [None]):
        if batch is not None:
            size += batch.nbytes
            for number, rows in split(batch, number_of(batch)):
                parts.setdefault(number, []).append(rows)
        if batch is None or size > most:
            size = 0
            for number in sorted(parts):  # each is freed as soon as it is processed
                yield number, as_batch(pa.Table.from_batches(parts.pop(number)))
