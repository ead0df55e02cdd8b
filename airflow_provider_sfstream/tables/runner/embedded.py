"""Engine that runs a job in this process: the functions of Spark's tasks, one row group after another."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.delta.landed_windows import LandedWindow, check_folders
from airflow_provider_sfstream.tables.rows.event_batches import Batches
from airflow_provider_sfstream.tables.rows.merging import as_table
from airflow_provider_sfstream.tables.rows.shuffle import BLOCK
from airflow_provider_sfstream.tables.runner.arrow_frames import (
    ArrowFrame,
    Columns,
    copy_part,
    numbered,
    part_batches,
)
from airflow_provider_sfstream.tables.runner.engine import JobFiles

_LINES = 4_096
"""JSON objects to parse at a time."""


class EmbeddedFiles(JobFiles, Protocol):
    """Files that this process can also read in binary."""

    def open(self, url: str) -> BinaryIO: ...


class EmbeddedEngine:
    """Engine that runs a job's functions one after another.

    :param landing: the files of landed windows; ``files``: those below the output folder.
    :param folder: a temporary folder. Landed files are copied to it once, and read from it.
    :param max_events: maximum number of events in the windows of a run; ``None``: unlimited.
    :param elsewhere: name of the alternative for larger runs, for an error.
    """

    application_id = ""
    tasks_at_once = tables_at_once = 1

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

    def prepare(self, windows: Sequence[LandedWindow]) -> None:
        count = sum(window.event_count for window in windows)
        if self._max_events is not None and count > self._max_events:
            raise ConfigurationError(
                f"{len(windows)} windows have {count:,} events, more than max_events={self._max_events:,}, the limit "
                f"of a run on this worker. Nothing was written, and no event is lost. Use {self._elsewhere}, which "
                "writes the same tables, or pass fewer windows to each run."
            )

    def landed_rows(self, windows: Sequence[LandedWindow], *, verify: bool) -> ArrowFrame:
        with_rows = {number: window for number, window in enumerate(windows) if window.files}
        check_folders(with_rows.values())
        copies = [
            (self._copy(url, sum_ if verify else None), window, number)
            for number, window in with_rows.items()
            for url, sum_ in zip(window.files, window.sums, strict=True)
        ]

        def batches(requested: Columns) -> Batches:
            for copy, window, number in copies:
                for batch in part_batches(copy, requested and ["schema_id", *requested]):
                    yield numbered(batch, window, number, requested)

        return ArrowFrame(batches)

    def file_rows(self, url: str, paths: Sequence[str], schema: pa.Schema) -> ArrowFrame:
        location = self.files.table_location(url)

        def batches(requested: Columns) -> Batches:
            filesystem = location.filesystem()
            for path in paths:
                with filesystem.open_input_file(path) as file:
                    for batch in part_batches(file, schema.names):
                        rows = as_table(batch, schema)
                        yield rows if requested is None else rows.select(list(requested))

        return ArrowFrame(batches)

    def shuffle(self, frames: Sequence[ArrowFrame], by: Sequence[str], parts: int) -> ArrowFrame:
        """Return the rows of all frames, as one part."""
        return ArrowFrame(lambda requested: (batch for frame in frames for batch in frame.batches(requested)))

    def shuffle_blocks(self, blocks: ArrowFrame, also: Sequence[int], file_groups: int) -> ArrowFrame:
        empty = pa.RecordBatch.from_pylist([{"file_group": number} for number in also], schema=BLOCK)
        return ArrowFrame(lambda _: chain(blocks.batches(None), [empty]))

    def text_rows(self, url: str, paths: Sequence[str], columns: Sequence[str]) -> ArrowFrame:
        schema = pa.schema([(name, pa.string()) for name in columns])

        def batches(requested: Columns) -> Batches:
            for path in paths:
                with self.files.open(f"{url}/{path}") as file:
                    lines = iter(file)
                    while chunk := list(islice(lines, _LINES)):
                        texts = [json.loads(line, parse_int=str, parse_float=str) for line in chunk]
                        rows = pa.RecordBatch.from_pylist(texts, schema=schema)
                        yield rows if requested is None else rows.select(list(requested))

        return ArrowFrame(batches)

    def rows_of(self, batch: pa.RecordBatch) -> ArrowFrame:
        return ArrowFrame(lambda requested: iter([batch if requested is None else batch.select(list(requested))]))

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
