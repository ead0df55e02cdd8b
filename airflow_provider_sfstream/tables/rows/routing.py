"""What runs on executors: rows on their way to the task that has the part of the table which they belong to.

They travel as Arrow, many in one binary value, so that Spark's rows have two columns however many a record has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows
from airflow_provider_sfstream.tables.rows.merging import as_table
from airflow_provider_sfstream.tables.rows.spool import packed, unpacked

PARCEL = pa.schema([("piece", pa.int32()), ("rows", pa.binary())])
"""The number of a piece, and rows for it: an Arrow stream; null stands for no row."""
_GATHERED = 16 << 20
"""Bytes of rows that are gathered before they are sent: parcels of few rows are mostly overhead."""


def parcels(rows: Rows, ends: Sequence[str]) -> Rows:
    """Return a function for ``mapInArrow`` that sends what ``rows`` gives, each row to the piece that its ``Id`` is in.

    :param ends: the last id of every piece but the last one, in order.
    """

    def send(batches: Batches) -> Batches:
        for table in gathered(rows(batches)):
            yield from _sent(table, ends)

    return send


def received(schema: pa.Schema, sent: list[pa.Buffer], order: Sequence[str] = ()) -> pa.RecordBatch:
    """Return the rows of parcels, sorted by some columns, and empty the list. Wide rows are held once: a column of
    theirs goes when it is part of the result.

    :raises pyarrow.ArrowInvalid: if a column has more than two GiB of text.
    """
    tables = [schema.empty_table(), *map(unpacked, sent)]
    sent.clear()
    places = None
    if order:
        keys = pa.concat_tables([table.select(list(order)) for table in tables])
        places = pc.sort_indices(keys, [(name, "ascending") for name in order])
        del keys
    columns = []
    for field in schema:
        chunks = [chunk for table in tables for chunk in table[field.name].chunks]
        tables = [table.drop_columns([field.name]) for table in tables]
        column = pa.chunked_array(chunks, field.type).combine_chunks()
        del chunks
        columns.append(column if places is None else column.take(places))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def pieces_of(ids: pa.Array, ends: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the number of the piece that each id is in."""
    if not ends:
        return np.zeros(len(ids), np.int64)
    return np.searchsorted(np.array([end.encode() for end in ends]), _encoded(ids))


def columns_of(rows: Rows, names: Sequence[str]) -> Rows:
    """Return a function for ``mapInArrow`` that gives only some columns of what ``rows`` gives."""
    return lambda batches: (batch.select(list(names)) for batch in rows(batches))


def sampled(rows: Rows, names: Sequence[str], fraction: float) -> Rows:
    """Return a function for ``mapInArrow`` that gives some columns of what ``rows`` gives of a part of the rows that
    come, chosen at random."""

    def some(batches: Batches) -> Batches:
        for batch in batches:
            yield batch.filter(pa.array(np.random.default_rng().random(len(batch)) < fraction))

    return lambda batches: columns_of(rows, names)(some(batches))


def shaped(schema: pa.Schema) -> Rows:
    """Return a function for ``mapInArrow`` that gives what comes with just the columns and types of a schema."""
    return lambda batches: (as_table(batch, schema) for batch in batches)


def _encoded(ids: pa.Array) -> npt.NDArray[np.bytes_]:
    return np.array(pc.cast(ids, pa.binary()).to_pylist() or [b""], dtype=np.bytes_)[: len(ids)]


def gathered(batches: Batches) -> Iterator[pa.Table]:
    """Yield rows in tables of about 16 MiB."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if len(batch):
            held.append(batch)
            size += batch.nbytes
        if size > _GATHERED:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _sent(rows: pa.Table, ends: Sequence[str]) -> Iterable[pa.RecordBatch]:
    numbers = pieces_of(rows["Id"].combine_chunks(), ends)
    for number in np.unique(numbers):
        mine = numbers == number
        own = rows if mine.all() else rows.filter(pa.array(mine))
        content = packed(own)
        offsets = pa.py_buffer(np.array([0, content.size], np.int32))
        parcel = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, content])
        yield pa.RecordBatch.from_arrays([pa.array([number], pa.int32()), parcel], schema=PARCEL)
