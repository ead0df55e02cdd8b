"""Engine that runs a job in this process: the functions of Spark's tasks, one row group after another."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.landing.row_groups import SCHEMA
from airflow_provider_sfstream.tables.decode.arrow_columns import as_table
from airflow_provider_sfstream.tables.delta.landed_windows import changed, check_folders, payload_formats
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows
from airflow_provider_sfstream.tables.rows.shuffle import BLOCK
from airflow_provider_sfstream.tables.runner.engine import JobFiles

Columns = tuple[str, ...] | None
"""Names of the needed columns; ``None``: all."""


@dataclass(frozen=True)
class ArrowFrame:
    """Lazy sequence of record batches.

    :param batches: creates the batches, with the needed columns and possibly others.
    """

    batches: Callable[[Columns], Batches]

    def select(self, *columns: str) -> ArrowFrame:
        return ArrowFrame(lambda _: (batch.select(list(columns)) for batch in self.batches(columns)))

    def map_batches(self, make: Rows, schema: pa.Schema) -> ArrowFrame:
        return ArrowFrame(lambda _: make(self.batches(None)))

    def collect(self) -> list[Mapping[str, Any]]:
        return [row for batch in self.batches(None) for row in batch.to_pylist(maps_as_pydicts="strict")]


_ROWS = 8_192
"""Maximum rows of a batch: a row group of a landing has no more."""
_COPIED = 1 << 20
"""Bytes of a file to read at a time."""


def copy_part(source: BinaryIO, target: BinaryIO, url: str, sha256: str | None) -> None:
    """Copy the landed file at ``url``, and compare it with its SHA-256 if that is not ``None``.

    :raises ConfigurationError: if it was changed after it landed.
    """
    checksum = hashlib.sha256()
    while content := source.read(_COPIED):
        checksum.update(content)
        target.write(content)
    if sha256 is not None and checksum.hexdigest() != sha256:
        raise ConfigurationError(changed(url, checksum.hexdigest()))


def part_batches(source: Any, columns: Sequence[str] | None) -> Batches:
    """Yield the rows of a Parquet file, a part of a row group at a time, with the ``columns`` that the file has."""
    file = pq.ParquetFile(source, buffer_size=_COPIED)
    columns = columns and list(dict.fromkeys(columns))
    for number in range(file.num_row_groups):  # in one call, a batch would contain the rows of many small groups
        yield from file.iter_batches(_ROWS, row_groups=[number], columns=columns)


def landed_batches(source: Any, manifest: Manifest, number: int, columns: Columns) -> Batches:
    """Yield the rows of a landed file, with the number of their window and the format of their payloads.

    A column that did not exist when the file was landed is null, as in Spark.
    """
    json_schema_ids, other = payload_formats(manifest)
    schema = pa.schema([field for field in SCHEMA if columns is None or field.name in ("schema_id", *columns)])
    for batch in part_batches(source, schema.names):
        batch = as_table(batch, schema)
        is_json = pc.fill_null(pc.is_in(batch["schema_id"], pa.array(json_schema_ids, pa.string())), False)
        batch = batch.append_column("window", pa.array(np.full(len(batch), number, np.int32)))
        yield batch.append_column("format", pc.if_else(is_json, pa.scalar("json"), pa.scalar(other)))


_LINES = 4_096
"""JSON objects to parse at a time."""


class EmbeddedFiles(JobFiles, Protocol):
    """Files that this process can also read in binary."""

    def open(self, url: str) -> BinaryIO: ...


class EmbeddedEngine:
    """Engine that runs a job's functions in this process.

    :param landing: the files of landed windows; ``files``: those below the output folder.
    :param folder: a temporary folder. Landed files are copied to it once, and read from it.
    :param max_events: maximum number of events in the windows of a run; ``None``: unlimited.
    :param elsewhere: name of the alternative for larger runs, for an error.
    """

    application_id = ""
    tasks_at_once = 1

    def __init__(
        self,
        landing: EmbeddedFiles,
        files: EmbeddedFiles,
        folder: str | Path,
        *,
        max_events: int | None = None,
        elsewhere: str = "",
    ) -> None:
        self.landing, self.files = landing, files
        self._folder, self._max_events, self._elsewhere = Path(folder), max_events, elsewhere

    def prepare(self, event_counts: Sequence[int]) -> None:
        count = sum(event_counts)
        if self._max_events is not None and count > self._max_events:
            raise ConfigurationError(
                f"{len(event_counts)} windows have {count:,} events, more than max_events={self._max_events:,}, the "
                f"limit of a run on this worker. Nothing was written, and no event is lost. Pass fewer windows to each "
                "run, or, if one window is too large: increase max_events, which needs more memory, or use "
                f"{self._elsewhere}, which writes the same tables."
            )

    def landed_rows(self, windows: Sequence[Manifest], *, verify: bool) -> ArrowFrame:
        with_rows = {number: manifest for number, manifest in enumerate(windows) if manifest.window.event_count}
        check_folders(with_rows.values())
        copies = [
            (self._copy(url, sum_ if verify else None), manifest, number)
            for number, manifest in with_rows.items()
            for url, sum_ in manifest.file_sums().items()
        ]

        def batches(columns: Columns) -> Batches:
            for copy, manifest, number in copies:
                yield from landed_batches(copy, manifest, number, columns)

        return ArrowFrame(batches)

    def file_rows(self, url: str, paths: Sequence[str], schema: pa.Schema) -> ArrowFrame:
        location = self.files.table_location(url)

        def batches(columns: Columns) -> Batches:
            needed = pa.schema([schema.field(name) for name in columns or schema.names])
            filesystem = location.filesystem()
            for path in paths:
                with filesystem.open_input_file(path) as file:
                    for batch in part_batches(file, needed.names):
                        yield as_table(batch, needed)

        return ArrowFrame(batches)

    def shuffle(self, frames: Sequence[ArrowFrame], by: Sequence[str], parts: int) -> ArrowFrame:
        """Return the rows of all frames, as one part."""
        return ArrowFrame(lambda columns: chain.from_iterable(frame.batches(columns) for frame in frames))

    def shuffle_blocks(self, blocks: ArrowFrame, also: Sequence[int], file_groups: int) -> ArrowFrame:
        empty = pa.RecordBatch.from_pylist([{"file_group": number} for number in also], schema=BLOCK)
        return ArrowFrame(lambda _: chain(blocks.batches(None), [empty]))

    def text_rows(self, url: str, paths: Sequence[str], columns: Sequence[str]) -> ArrowFrame:
        schema = pa.schema([(name, pa.string()) for name in columns])

        def batches(_: Columns) -> Batches:
            for path in paths:
                with self.files.open(f"{url}/{path}") as file:
                    lines = iter(file)
                    while chunk := list(islice(lines, _LINES)):
                        texts = [json.loads(line, parse_int=str, parse_float=str) for line in chunk]
                        yield pa.RecordBatch.from_pylist(texts, schema=schema)

        return ArrowFrame(batches)

    def rows_of(self, batch: pa.RecordBatch) -> ArrowFrame:
        return ArrowFrame(lambda _: iter([batch]))

    def _copy(self, url: str, sha256: str | None) -> Path:
        """Return a copy of a landed file, after comparing it with the checksum if there is one."""
        copy = self._folder / f"{hashlib.sha256(url.encode()).hexdigest()}.parquet"
        if copy.exists():
            return copy
        partial = copy.with_suffix(".partial")  # a name that no reader uses until the checksum is verified
        try:
            with self.landing.open(url) as source, partial.open("wb") as target:
                copy_part(source, target, url, sha256)
        except FileNotFoundError:
            raise ConfigurationError(f"Files of windows are missing: {url}. Nothing was written.") from None
        shutil.move(partial, copy)
        return copy
