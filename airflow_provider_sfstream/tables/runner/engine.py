"""What a job asks of what runs its functions over rows: Spark, or the process that it is in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

import pyarrow as pa

from airflow_provider_sfstream.tables.delta.landed_windows import LandedWindow, TextFiles
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.rows.event_batches import Rows


class Frame(Protocol):
    """Rows that are made whenever they are asked for."""

    def select(self, *columns: str) -> Self:
        """Return the rows with some of their columns."""
        ...

    def made(self, make: Rows, schema: pa.Schema) -> Self:
        """Return what a function makes of the rows, a batch of them at a time, and a part of them in each call."""
        ...

    def collected(self) -> list[Mapping[str, Any]]:
        """Return the rows."""
        ...


class JobFiles(TextFiles, Protocol):
    """Small files, wherever the engine reads and writes."""

    def replace_text(self, url: str, text: str) -> None: ...

    def create_text(self, url: str, text: str) -> None: ...

    def folders(self, url: str) -> list[str]: ...

    def file_names(self, url: str) -> list[str]: ...

    def delete(self, url: str) -> None: ...

    def table_location(self, url: str) -> TableLocation: ...


class Engine(Protocol):
    """Runs a job. The frames that it is given are its own.

    ``application_id`` names the run in Spark; it is empty elsewhere. ``tasks_at_once`` and ``tables_at_once`` say what
    is worked on side by side, ``rows_at_once`` for how many rows with all their columns there is room; ``None``: any.
    """

    tasks_at_once: int
    tables_at_once: int
    rows_at_once: int | None

    @property
    def application_id(self) -> str: ...

    @property
    def landing(self) -> TextFiles:
        """The files of landed windows."""
        ...

    @property
    def files(self) -> JobFiles:
        """The files below the output folder."""
        ...

    def prepare(self, windows: Sequence[LandedWindow]) -> None:
        """Make sure that a job over these windows can run here.

        :raises ConfigurationError: if they are too large; nothing was written.
        """
        ...

    def landed_rows(self, windows: Sequence[LandedWindow], *, verify: bool) -> Frame:
        """Return the raw rows of all windows, with the number of each window in the list as ``window`` and what the
        payload is as ``format``.

        :param verify: whether to compare the files with the SHA-256 of their manifest before any row, or what comes of
            it, is given: if one was changed after it landed, that is a ``ConfigurationError`` here or then.
        :raises ManifestError: if the files of two windows are in folders of one name.
        """
        ...

    def file_rows(self, url: str, paths: Sequence[str], schema: pa.Schema) -> Frame:
        """Return the rows of Parquet files with these columns; null where a file lacks one.

        :param url: of a folder, and ``paths`` of files in it.
        """
        ...

    def shuffled(self, frames: Sequence[Any], by: Sequence[str], parts: int) -> Frame:
        """Return the rows of frames of the same columns so that all with the same values of ``by`` are in one part. In
        each part those of the first frame come first.

        :param parts: into how many parts they are divided at least.
        """
        ...

    def routed(self, parcels: Any, also: Sequence[int], pieces: int) -> Any:
        """Return parcels (``routing.PARCEL``) so that all of a piece are in one part.

        :param also: numbers of pieces that have a parcel without rows.
        :param pieces: how many there are.
        """
        ...

    def text_rows(self, url: str, paths: Sequence[str], columns: Sequence[str]) -> Frame:
        """Return objects of JSON lines as rows of texts; null where an object lacks a column.

        :param url: of a folder, and ``paths`` of files in it.
        """
        ...

    def rows_of(self, batch: pa.RecordBatch) -> Frame:
        """Return a few rows of the driver as a frame."""
        ...
