"""Transfer of rows to the task that owns their file group of a table.

Rows travel as Arrow, many in one binary value, so that Spark's rows have three columns regardless of the record's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows
from airflow_provider_sfstream.tables.rows.spool import packed, release_memory

BLOCK = pa.schema([("file_group", pa.int32()), ("rows", pa.binary()), ("size", pa.int64())])
"""Number of a file group, its rows as an Arrow stream (null for no rows), and their bytes in memory."""
_GATHERED = 16 << 20
"""Bytes of rows to collect before sending: blocks of few rows have a high overhead."""
_ENOUGH = 8 << 20
"""Bytes of rows of one table to send at a time. A block is in memory up to four times while it is packed."""


class Sender:
    """Sender that packs rows of several tables into blocks. It buffers at most 16 MiB of rows over all tables.

    :param ends: for each table, the last ID of every file group except the last, in order. File groups are numbered
        across all tables.
    """

    def __init__(self, ends: Sequence[Sequence[str]]) -> None:
        self._ends = ends
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
        while self._sizes and (max(self._sizes.values()) > _ENOUGH or sum(self._sizes.values()) > _GATHERED):
            yield from self._send(max(self._sizes, key=lambda number: self._sizes[number]))

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
        del rows
        release_memory()


def block(file_group: int, rows: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """Return rows as a block."""
    content = pa.py_buffer(packed(rows).to_pybytes())  # same size; the packed buffer may have twice the capacity
    offsets = pa.py_buffer(np.array([0, content.size], np.int32))
    binary = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, content])
    return pa.RecordBatch.from_arrays(
        [pa.array([file_group], pa.int32()), binary, pa.array([rows.nbytes])], schema=BLOCK
    )


def blocks(rows: Rows, ends: Sequence[str]) -> Rows:
    """Return a function for ``mapInArrow`` that sends the result of ``rows``, all for one table.

    :param ends: as in :class:`Sender`, for one table.
    """

    def send(batches: Batches) -> Batches:
        sender = Sender([ends])
        for batch in rows(batches):
            yield from sender.add(0, batch)
        yield from sender.rest()

    return send


def combined(schema: pa.Schema, tables: list[pa.Table], order: Sequence[str] = ()) -> pa.RecordBatch:
    """Return the rows of tables as one batch, sorted by some columns, and empty the list. Wide rows are in memory only
    once: each column of the tables is freed when it is part of the result.

    :raises pyarrow.ArrowInvalid: if a column has more than two GiB of text.
    """
    places = None
    if order:
        keys = pa.concat_tables([table.select(list(order)) for table in tables])
        places = pc.sort_indices(keys, [(name, "ascending") for name in order])
        del keys
    columns = []
    for field in schema:
        chunks = [chunk for table in tables for chunk in table[field.name].chunks]
        tables[:] = [table.drop_columns([field.name]) for table in tables]
        column = pa.chunked_array(chunks, field.type).combine_chunks()
        del chunks
        columns.append(column if places is None else column.take(places))
    tables.clear()
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def file_groups_of(ids: pa.Array, ends: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the number of the file group of each ID."""
    if not ends:
        return np.zeros(len(ids), np.int64)
    return np.searchsorted(np.array([end.encode() for end in ends]), _encoded(ids))


def gathered(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Yield rows in batches of about 16 MiB."""
    buffer: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if len(batch):
            buffer.append(batch)
            size += batch.nbytes
        if size > _GATHERED:
            yield from pa.Table.from_batches(buffer).combine_chunks().to_batches()
            buffer, size = [], 0
    if buffer:
        yield from pa.Table.from_batches(buffer).combine_chunks().to_batches()


def split(rows: pa.RecordBatch, numbers: npt.NDArray[Any]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield each distinct number with its rows, in their order."""
    order = np.argsort(numbers, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if len(rows) else ():
        yield int(numbers[places[0]]), rows if len(places) == len(rows) else rows.take(pa.array(places))


def _encoded(ids: pa.Array) -> npt.NDArray[np.bytes_]:
    return np.array(pc.cast(ids, pa.binary()).to_pylist(), dtype=np.bytes_)
