"""Arrow row functions that several tasks share, and places of landed rows: a number for each row of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Numbers = np.ndarray[Any, np.dtype[Any]]

_SLICE, _SLICES, _MOST_SORTED = 8_192, 16, 1 << 30
""":func:`distinct` first omits repeated IDs in so many slices of so many IDs; most bytes of IDs that it sorts then."""


def each_once(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return one row of each record ID."""
    ids = pc.unique(rows["Id"])
    return rows if len(ids) == len(rows) else rows.take(pc.index_in(ids, value_set=rows["Id"]))


def are_equal(one: pa.RecordBatch, other: pa.RecordBatch, names: Iterable[str]) -> pa.BooleanArray:
    """Return a mask of the rows that are equal in the given columns; null equals null. Structs and lists, which no
    query returns, are equal if both are null."""
    equal = pa.array(np.ones(len(one), bool))
    for name in names:
        both_null = pc.and_(one[name].is_null(), other[name].is_null())
        if not pa.types.is_nested(one[name].type):
            both_null = pc.or_(both_null, pc.fill_null(pc.equal(one[name], other[name]), False))
        equal = pc.and_(equal, both_null)
    return equal


def replaced(rows: pa.RecordBatch, chosen: pa.BooleanArray, new: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with the ``chosen`` ones replaced by ``new``, in the same order."""
    places = np.arange(len(rows))
    places[chosen.to_numpy(zero_copy_only=False)] = len(rows) + np.arange(len(new))
    order, arrays = pa.array(places), []
    for former, value in zip(rows.columns, new.columns, strict=True):
        if pa.types.is_nested(former.type):  # not supported by replace_with_mask
            arrays.append(pa.concat_arrays([former, value]).take(order))
        else:
            arrays.append(pc.replace_with_mask(former, chosen, value))
    return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)


def rows_at_once(rows: pa.RecordBatch, batch_bytes: int) -> int:
    """Return the number of these rows in ``batch_bytes``."""
    return max(1, len(rows) * batch_bytes // max(int(rows.nbytes), 1))


def distinct(ids: Iterable[pa.Array | pa.ChunkedArray]) -> pa.Array:
    """Return unique IDs, sorted. They stay in Arrow, because Python strings need three times the memory.

    Arrow's hash table needs four times the memory of the IDs, so it has all of them only if many are repeated.
    """
    columns = (
        chunk for column in ids for chunk in (column.chunks if isinstance(column, pa.ChunkedArray) else [column])
    )
    slices = (chunk[start : start + _SLICE] for chunk in columns for start in range(0, len(chunk), _SLICE))
    count, parts = 0, list[pa.Array]()
    while part := list(islice(slices, _SLICES)):
        count += sum(map(len, part))
        parts.append(pc.unique(pa.chunked_array(part, pa.string())))
    found = pa.chunked_array(parts, pa.string())
    del parts
    is_hashed = 2 * len(found) < count or found.nbytes > _MOST_SORTED
    found = pc.unique(found) if is_hashed else found.combine_chunks()
    found = found.take(pc.array_sort_indices(found))
    if is_hashed or len(found) < 2:
        return found
    is_new = pc.not_equal(found[1:], found[:-1])
    return found if pc.all(is_new).as_py() else found.filter(pa.concat_arrays([pa.array([True]), is_new]))


def is_between(ids: pa.Array, after: str | None, through: str | None) -> pa.BooleanArray:
    chosen = pa.array(np.ones(len(ids), bool)) if after is None else pc.greater(ids, after)
    return chosen if through is None else pc.and_(chosen, pc.less_equal(ids, through))


def as_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def split(rows: pa.RecordBatch, numbers: Numbers) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield each distinct number with its rows, in their order."""
    if len(rows) and (numbers == numbers[0]).all():
        yield int(numbers[0]), rows
        return
    order = np.argsort(numbers, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if len(rows) else ():
        yield int(numbers[places[0]]), rows.take(pa.array(places))


def is_true(column: pa.Array) -> Numbers:
    """Return a mask of the values that are true; null is false."""
    return pc.fill_null(column, False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def is_valid(column: pa.Array) -> Numbers:
    """Return a mask of the values that are not null."""
    return column.is_valid().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


PLACES = 1 << 40
"""More than the maximum rows of a window. A place is ``window * PLACES + ordinal``, unique in a run: 64 bits are enough
for four million windows."""


@dataclass(frozen=True, eq=False)
class Places:
    """Set of places, stored as ranges of consecutive places: ``[starts, ends)``."""

    starts: Numbers
    ends: Numbers

    @classmethod
    def from_numbers(cls, places: Numbers) -> Places:
        """Return a set of unique places, given in any order."""
        ordered = np.sort(places)
        begins = np.diff(ordered, prepend=-2) != 1
        last = np.append(begins[1:], True)
        return cls(ordered[begins], ordered[last] + 1) if len(ordered) else NO_PLACES

    def __len__(self) -> int:
        return int((self.ends - self.starts).sum())

    def numbers(self) -> Numbers:
        """Return the individual places, in order."""
        return np.concatenate([np.arange(*run) for run in zip(self.starts, self.ends, strict=True)] or [self.starts])

    def include(self, places: Numbers) -> Numbers:
        """Return a mask of the ``places`` that are in the set."""
        if not len(self.starts):
            return np.zeros(len(places), bool)
        run = np.searchsorted(self.starts, places, side="right") - 1
        return (run >= 0) & (places < self.ends[run])


NO_PLACES = Places(np.array([], np.int64), np.array([], np.int64))


def places_of(batch: pa.RecordBatch) -> Numbers:
    """Return the places of landed rows, which have ``window`` and ``ordinal``."""
    window = batch.column("window").to_numpy().astype(np.int64)
    return window * PLACES + batch.column("ordinal").to_numpy()  # type: ignore[no-any-return]
