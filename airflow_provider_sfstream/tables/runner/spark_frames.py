"""DataFrames as the frames of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa

from airflow_provider_sfstream.tables.rows.event_batches import Rows


def union(frames: Iterable[Any]) -> Any:
    """Return the rows of one or more DataFrames with the same columns as one."""
    return reduce(lambda one, other: one.unionByName(other), frames)


def _without_check() -> None:
    pass


@dataclass(frozen=True)
class SparkFrame:
    """DataFrame as a frame.

    :param checked: returns when the rows are verified; until then no row is returned.
    """

    rows: Any
    checked: Callable[[], None] = _without_check

    def select(self, *columns: str) -> SparkFrame:
        return self.with_rows(self.rows.select(*columns))

    def map_batches(self, make: Rows, schema: pa.Schema) -> SparkFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        return self.with_rows(self.rows.mapInArrow(make, from_arrow_schema(schema)))

    def collect(self) -> list[Mapping[str, Any]]:
        try:
            rows = self.rows.collect()
        finally:
            self.checked()  # a failed verification also explains why rows cannot be read
        return [row.asDict() for row in rows]

    def with_rows(self, rows: Any) -> SparkFrame:
        """Return a frame for a DataFrame derived from these rows."""
        return replace(self, rows=rows)
