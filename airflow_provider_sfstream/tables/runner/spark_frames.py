"""DataFrames as the frames of a job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa

from airflow_provider_sfstream.tables.rows.event_batches import Rows
from airflow_provider_sfstream.tables.runner.engine import Condition


def union(frames: Iterable[Any]) -> Any:
    """Return the rows of one or more DataFrames of the same columns as one."""
    return reduce(lambda one, other: one.unionByName(other), frames)


def _without_check() -> None:
    pass


@dataclass(frozen=True)
class SparkFrame:
    """A DataFrame.

    :param checked: returns once it is known that the rows are what they should be; till then nothing of them is given.
    """

    rows: Any
    checked: Callable[[], None] = _without_check

    def select(self, *columns: str) -> SparkFrame:
        return self.of(self.rows.select(*columns))

    def where(self, condition: Condition) -> SparkFrame:
        return self.of(self.rows.where(condition(_Columns())))

    def made(self, make: Rows, schema: pa.Schema) -> SparkFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        return self.of(self.rows.mapInArrow(make, from_arrow_schema(schema)))

    def numbered(self, column: str, firsts: Sequence[int]) -> SparkFrame:
        from pyspark.sql import functions as f

        numbers = f.array(*(f.lit(first).cast("bigint") for first in firsts))
        return self.of(self.rows.withColumn(column, f.element_at(numbers, f.col("window") + 1) + f.col("ordinal")))

    def together(self, others: Iterable[SparkFrame] = ()) -> SparkFrame:
        return self.of(union([self.rows, *(other.rows for other in others)]).coalesce(1))

    def counted(self, *columns: str) -> list[Mapping[str, Any]]:
        return self.of(self.rows.groupBy(*columns).count()).collected()

    def collected(self) -> list[Mapping[str, Any]]:
        try:
            rows = self.rows.collect()
        finally:
            self.checked()  # rows that are not what they should be also explain why they cannot be read
        return [row.asDict() for row in rows]

    def of(self, rows: Any) -> SparkFrame:
        """Return a DataFrame that is made of these rows."""
        return replace(self, rows=rows)


class _Columns:
    def one_of(self, column: str, values: Collection[Any]) -> Any:
        from pyspark.sql import functions as f

        known = f.coalesce(f.col(column).isin(sorted(value for value in values if value is not None)), f.lit(False))
        return known | f.col(column).isNull() if None in values else known

    def between(self, column: str, first: int, last: int) -> Any:
        from pyspark.sql import functions as f

        return f.coalesce(f.col(column).between(first, last), f.lit(False))
