"""Arrow batches as the frames of a job: made again whenever they are asked for, one at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows
from airflow_provider_sfstream.tables.runner.engine import Condition

Columns = tuple[str, ...] | None
"""Names of the columns that are wanted; ``None``: all."""


@dataclass(frozen=True)
class ArrowFrame:
    """Batches of rows.

    :param batches: makes them, with the columns that are wanted.
    """

    batches: Callable[[Columns], Batches]

    def select(self, *columns: str) -> ArrowFrame:
        return ArrowFrame(lambda wanted: self.batches(wanted or columns))

    def where(self, condition: Condition) -> ArrowFrame:
        return self.filtered(lambda batch: condition(_Columns(batch)))

    def filtered(self, chosen: Callable[[pa.RecordBatch], Any]) -> ArrowFrame:
        """Return the rows for which a function of each batch gives true, in an array of numpy."""

        def some(batches: Batches) -> Batches:
            for batch in batches:
                mask = chosen(batch)
                if mask.all():
                    yield batch
                elif mask.any():
                    yield batch.filter(pa.array(mask))

        return self._through(some)

    def made(self, make: Rows, schema: pa.Schema) -> ArrowFrame:
        return self._through(make)

    def numbered(self, column: str, firsts: Sequence[int]) -> ArrowFrame:
        first = pa.array(firsts, pa.int64())

        def batches(wanted: Columns) -> Batches:
            reads = None if wanted is None else tuple({*wanted, "window", "ordinal"} - {column})
            for batch in self.batches(reads):
                numbers = pc.add(first.take(batch.column("window")), batch.column("ordinal"))
                batch = batch.append_column(column, numbers)
                yield batch if wanted is None else batch.select(list(wanted))

        return ArrowFrame(batches)

    def together(self, others: Iterable[ArrowFrame] = ()) -> ArrowFrame:
        frames = (self, *others)
        return ArrowFrame(lambda wanted: (batch for frame in frames for batch in frame.batches(wanted)))

    def counted(self, *columns: str) -> list[Mapping[str, Any]]:
        found: Counter[tuple[Any, ...]] = Counter()
        for batch in self.select(*columns).batches(None):
            groups = pa.Table.from_batches([batch]).group_by(list(columns)).aggregate([([], "count_all")])
            for row in groups.to_pylist():
                found[tuple(row[name] for name in columns)] += row["count_all"]
        return [{**dict(zip(columns, values, strict=True)), "count": count} for values, count in found.items()]

    def collected(self) -> list[Mapping[str, Any]]:
        return [row for batch in self.batches(None) for row in batch.to_pylist(maps_as_pydicts="strict")]

    def _through(self, make: Rows) -> ArrowFrame:
        def batches(wanted: Columns) -> Batches:
            for batch in make(self.batches(None)):
                yield batch if wanted is None else batch.select(list(wanted))

        return ArrowFrame(batches)


@dataclass(frozen=True)
class ArrowParts:
    """Rows in parts, of which a function is given one in each call."""

    parts: Callable[[], Iterator[Batches]]

    def made(self, make: Rows, schema: pa.Schema) -> ArrowFrame:
        """Return what a function makes of each part."""
        return ArrowFrame(lambda wanted: (batch for part in self.parts() for batch in make(part)))


class _Columns:
    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def one_of(self, column: str, values: Collection[Any]) -> Any:
        found = self._batch.column(column)
        return as_mask(pc.is_in(found, pa.array(list(values), found.type)))

    def between(self, column: str, first: int, last: int) -> Any:
        found = self._batch.column(column)
        return as_mask(pc.and_(pc.greater_equal(found, first), pc.less_equal(found, last)))


def as_mask(chosen: pa.BooleanArray) -> np.ndarray[Any, Any]:
    """Return an array of Arrow as one of numpy; null is false."""
    return pc.fill_null(chosen, False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
