"""Temporary storage of rows in a file by key, read back one key after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Generic, Self, TypeVar

import pyarrow as pa

Key = TypeVar("Key")
_MEMORY_LIMIT = 16 << 20
"""Bytes of compressed blocks that a task holds in memory."""


class Spool(Generic[Key]):
    """Context manager of a temporary file; the file has no name, and is deleted when it is closed or the process ends.

    :param folder: folder of the file; ``None``: the system's folder for temporary files.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._file = TemporaryFile(dir=folder)  # noqa: SIM115 (closed by the context manager)
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

    def read(self, key: Key) -> Iterator[bytes]:
        """Yield the content added for a key, in order."""
        for offset, size in self._places.get(key, ()):
            self._file.seek(offset)
            yield self._file.read(size)


def packed(rows: pa.Table | pa.RecordBatch) -> pa.Buffer:
    """Return rows as a compressed Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write(rows)
    return sink.getvalue()


def unpacked(content: pa.Buffer | bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of :func:`packed`; only the given columns, if any are given."""
    if columns is None:
        return pa.ipc.open_stream(content).read_all()
    names = pa.ipc.open_stream(content).schema.names
    options = pa.ipc.IpcReadOptions(included_fields=[names.index(name) for name in columns])
    return pa.ipc.open_stream(content, options=options).read_all()


def release_memory() -> None:
    """Return freed memory to the operating system. Arrow's pool holds the columns, the system's pool the events of
    Python and the decoder; both retain freed memory."""
    pa.default_memory_pool().release_unused()
    pa.system_memory_pool().release_unused()


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
