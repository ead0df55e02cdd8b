"""What a job asks of what runs its functions over rows: Spark, or the process that it is in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import pyarrow as pa

from airflow_provider_sfstream.tables.delta.landed_windows import LandedWindow, TextFiles
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.rows.event_batches import Rows, WindowReference

PLACES = 1 << 40
"""More rows than a window can hold. ``window * PLACES + ordinal`` is the place of a landed row: a 64-bit number for
four million windows."""


class Columns(Protocol):
    """Tells of each row whether it is wanted. What is returned knows ``&``, ``|`` and ``~``, and is never null."""

    def one_of(self, column: str, values: Collection[Any]) -> Any:
        """Tell whether a value is one of ``values``, among which may be ``None`` for null."""
        ...

    def between(self, column: str, first: int, last: int) -> Any: ...


Condition = Callable[[Columns], Any]


class Frame(Protocol):
    """Rows that are made whenever they are asked for."""

    def select(self, *columns: str) -> Self:
        """Return the rows with some of their columns."""
        ...

    def where(self, condition: Condition) -> Self:
        """Return those of the rows that meet a condition."""
        ...

    def made(self, make: Rows, schema: pa.Schema) -> Self:
        """Return what a function makes of the rows, a batch of them at a time, and a part of them in each call."""
        ...

    def numbered(self, column: str, firsts: Sequence[int]) -> Self:
        """Return landed rows with the number of each: its ordinal, counted on from the ``firsts`` of its window."""
        ...

    def together(self, others: Iterable[Self] = ()) -> Self:
        """Return these rows and those of others of the same columns, as one part."""
        ...

    def counted(self, *columns: str) -> list[Mapping[str, Any]]:
        """Return the combinations of values of some columns, each with its ``count`` of rows."""
        ...

    def collected(self) -> list[Mapping[str, Any]]:
        """Return the rows."""
        ...


class Tally(Protocol):
    """Counts that functions add up beside the rows they make."""

    value: Counter[Any]

    def add(self, counted: Counter[Any]) -> None: ...


class Duplicates(Protocol):
    """Landed rows that must not be written, ``count`` of them, as others are the same events."""

    @property
    def count(self) -> int: ...

    def remove_from(self, rows: Any) -> Any:
        """Return the landed rows without the duplicates."""
        ...


@dataclass(frozen=True)
class TableKeys:
    """Rows that tables have already: frames of ``_org_id``, ``_topic`` and ``_replay_id``.

    :param with_window: with ``window_id`` too, the partition that they are in.
    :param others: of partitions that this run does not write.
    """

    with_window: Sequence[Any] = ()
    others: Sequence[Any] = ()


class JobFiles(TextFiles, Protocol):
    """Small files, wherever the engine reads and writes."""

    def replace_text(self, url: str, text: str) -> None: ...

    def create_text(self, url: str, text: str) -> None: ...

    def folders(self, url: str) -> list[str]: ...

    def file_names(self, url: str) -> list[str]: ...

    def delete(self, url: str) -> None: ...

    def table_location(self, url: str) -> TableLocation: ...


LISTED = pa.schema([("Id", pa.string()), ("_sequence", pa.int64())])
"""A record, and the last event that its row has seen."""


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

    def find_duplicates(
        self,
        rows: Any,
        keys: TableKeys,
        windows: tuple[WindowReference, ...],
        unreadable: Callable[[Any], list[Any]],
    ) -> Duplicates:
        """Find the landed rows that must not be written, so that of each event one stays that can be read, if any can.

        Of each replay ID the rows stay that follow each other in one window: that which the table already has them
        from, so that running windows again, alone or together, changes nothing; else the first, in the order of
        ``landed_windows.reading_order``, and there the lowest ordinal. Those of which none can be decoded stay only if
        no others in these windows can.

        :param keys: of rows that the tables have already.
        :param unreadable: returns those of some landed rows that cannot be decoded, as rows of the quarantine.
        :raises ValueError: if a landed row has no replay ID.
        """
        ...

    def routed(self, parcels: Any, also: Sequence[int], pieces: int) -> Any:
        """Return parcels (``routing.PARCEL``) so that all of a piece are in one part.

        :param also: numbers of pieces that have a parcel without rows.
        :param pieces: how many there are.
        """
        ...

    def listed_rows(self, url: str | None) -> Frame:
        """Return :data:`LISTED` of a list that :meth:`write_list` has written; none of none."""
        ...

    def write_list(self, url: str, rows: Any, changed: Any | None) -> tuple[int, int]:
        """Write a list, JSON lines of ``Id`` and ``sequence``: the rows that are dirty and, of records that are
        ``changed``, the last sequence of each that is not. Return how many each are.

        :param rows: ``Id``, ``_sequence`` and ``_dirty``.
        :param changed: :data:`LISTED`.
        """
        ...

    def tally(self) -> Tally: ...
