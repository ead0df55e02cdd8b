"""Parquet parts: row groups in, files with size and SHA-256 out, nothing read back."""

from __future__ import annotations

import hashlib
import io
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_sfstream.landing.columns import SCHEMA
from airflow_provider_sfstream.landing.manifest import WindowFile
from airflow_provider_sfstream.landing.storage import discard, is_local, make_folder, sync

_BUFFER_BYTES = 2**20


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
        self._buffered: Any = None
        self._writer: Any = None
        self.finished = False

    def write(self, rows: pa.Table) -> None:
        """Write a row group, with the columns of :data:`SCHEMA`, behind those before it."""
        if self._file is not None and self._buffered.tell() >= self._part_bytes:
            self._end_part()
        if self._file is None:
            self._begin_part()
        self._writer.write_table(rows, row_group_size=len(rows))
        self._rows += len(rows)

    def finish(self) -> tuple[WindowFile, ...]:
        """Close the last part and return all of them."""
        if self._file is not None:
            self._end_part()
        self.finished = True
        return tuple(self._files)

    def abandon(self) -> None:
        """Close what is open and remove every part of this attempt, as far as the storage still allows it."""
        if self._file is not None:
            with suppress(Exception):
                self._file.discard()
            with suppress(Exception):
                self._writer.close()  # after the file, which then takes its last words for nothing
        with suppress(Exception):  # a storage that does not answer is not waited for once more with each part
            for name in self._begun:
                with suppress(FileNotFoundError):
                    self._filesystem.rm_file(f"{self._folder}/{name}")

    def _begin_part(self) -> None:
        name = f"part-{len(self._begun):05d}-{self._attempt}.parquet"
        make_folder(self._filesystem, self._folder)
        self._begun.append(name)
        self._file = _CountedFile(self._filesystem.open(f"{self._folder}/{name}", "wb"))
        # Parquet is written in many small pieces. Each would wait for the interpreter, which the stream keeps busy.
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
        self._files.append(WindowFile(self._begun[-1], self._rows, file.size, file.digest.hexdigest()))
        self._writer = self._buffered = self._file = None


class _CountedFile(io.RawIOBase):
    """A file opened for writing that knows the size and the SHA-256 of what passed through it."""

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
        """Throw away what was written, and from now on what is still to come."""
        self._discarded = True
        discard(self.raw)

    def close(self) -> None:
        if not self.closed:
            super().close()
            if not self._discarded:
                self.raw.close()
