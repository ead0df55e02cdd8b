"""Interface of a job to its engine, which runs functions over rows: Spark, or the job's own process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, Self, TypeVar

import pyarrow as pa

from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.tables.delta.landed_windows import TextFiles
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.rows.event_batches import Rows

Result = TypeVar("Result")
_TABLES_AT_ONCE = 4
"""Most of the time of a small table is spent waiting for the storage, or on Spark's planning."""


def each_table(work: Callable[[str], Result], names: Iterable[str]) -> dict[str, Result]:
    """Return the result of ``work`` for each table, several tables at a time."""
    names = list(names)
    with ThreadPoolExecutor(max_workers=_TABLES_AT_ONCE) as pool:
        return dict(zip(names, pool.map(work, names), strict=True))


class Frame(Protocol):
    """Lazy rows, computed at each use."""

    def select(self, *columns: str) -> Self:
        """Return the rows with some of their columns."""
        ...

    def map_batches(self, make: Rows, schema: pa.Schema) -> Self:
        """Return the result of a function that receives the rows in batches; each call processes a part of the rows."""
        ...

    def collect(self) -> list[Mapping[str, Any]]:
        """Return the rows."""
        ...


class JobFiles(TextFiles, Protocol):
    """Small files in the storages that the engine reads and writes."""

    def replace_text(self, url: str, text: str) -> None: ...

    def create_text(self, url: str, text: str) -> None: ...

    def folders(self, url: str) -> list[str]: ...

    def file_names(self, url: str) -> list[str]: ...

    def delete(self, url: str) -> None: ...

    def table_location(self, url: str) -> TableLocation: ...


class Engine(Protocol):
    """Engine that runs a job. It accepts only its own frames.

    ``application_id`` names the run in Spark; it is empty elsewhere. ``tasks_at_once`` tasks run in parallel.
    """

    tasks_at_once: int

    @property
    def application_id(self) -> str: ...

    @property
    def landing(self) -> TextFiles:
        """Files of landed windows."""
        ...

    @property
    def files(self) -> JobFiles:
        """Files below the output folder."""
        ...

    def prepare(self, event_counts: Sequence[int]) -> None:
        """Check that a job over windows with these numbers of events can run on this engine.

        :raises ConfigurationError: if they are too large; nothing was written.
        """
        ...

    def landed_rows(self, windows: Sequence[Manifest], *, verify: bool) -> Frame:
        """Return the raw rows of all windows, with the index of each window in the list as ``window`` and the format of
        the payload as ``format``.

        :param verify: whether to compare the files with the SHA-256 in their manifest before any row or derived result
            is returned. A file changed after it landed raises a ``ConfigurationError`` here or then.
        :raises ManifestError: if the files of two windows are in folders of one name.
        """
        ...

    def file_rows(self, url: str, paths: Sequence[str], schema: pa.Schema) -> Frame:
        """Return the rows of Parquet files with these columns; null if a file lacks one.

        :param url: URL of a folder; ``paths``: paths of files in it.
        """
        ...

    def shuffle(self, frames: Sequence[Any], by: Sequence[str], parts: int) -> Frame:
        """Return the rows of frames with the same columns, so that all rows with equal values of ``by`` are in one
        part. In each part, those of the first frame come first.

        :param parts: minimum number of parts.
        """
        ...

    def shuffle_blocks(self, blocks: Any, also: Sequence[int], file_groups: int) -> Any:
        """Return blocks (``shuffle.BLOCK``) so that all blocks of a file group are in one part.

        :param also: numbers of file groups that have a block without rows.
        :param file_groups: number of file groups.
        """
        ...

    def text_rows(self, url: str, paths: Sequence[str], columns: Sequence[str]) -> Frame:
        """Return the objects of JSON lines as rows of texts; null if an object lacks a column.

        :param url: URL of a folder; ``paths``: paths of files in it.
        """
        ...

    def rows_of(self, batch: pa.RecordBatch) -> Frame:
        """Return a few rows of the driver as a frame."""
        ...
