"""Rows set aside in a temporary file by a key, and read back one key after another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Generic, Self, TypeVar

import pyarrow as pa

Key = TypeVar("Key")


class Spool(Generic[Key]):
    """A context manager; the file has no name, and is gone when it is closed, or with the process.

    :param folder: of the file; ``None``: the system's folder for temporary files.
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
        """The keys, in the order in which they came."""
        return list(self._places)

    def read(self, key: Key) -> Iterator[bytes]:
        """Yield what was added for a key, in order."""
        for offset, size in self._places.get(key, ()):
            self._file.seek(offset)
            yield self._file.read(size)


def packed(rows: pa.Table | pa.RecordBatch) -> pa.Buffer:
    """Return rows as a compressed Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write(rows)
    return sink.getvalue()


def unpacked(content: pa.Buffer | bytes) -> pa.Table:
    """Return the rows of :func:`packed`."""
    return pa.ipc.open_stream(content).read_all()
