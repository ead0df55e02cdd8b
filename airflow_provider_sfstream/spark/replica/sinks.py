"""How what came for a table gets into it, by the table's format: files rewritten in a Delta table, or one ``MERGE``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import pyarrow as pa

from airflow_provider_sfstream.spark.engines.engine import Frame
from airflow_provider_sfstream.spark.engines.spark_frames import SparkFrame
from airflow_provider_sfstream.spark.replica.iceberg import IcebergTable, check_session
from airflow_provider_sfstream.spark.replica.snapshots import TableState
from airflow_provider_sfstream.spark.rows.change_fold import folded_schema
from airflow_provider_sfstream.spark.rows.event_batches import Rows
from airflow_provider_sfstream.spark.rows.merging import DROPPED, Merge
from airflow_provider_sfstream.spark.rows.replica_merge import (
    SETTINGS,
    folded_changes,
    joined,
    merged_pairs,
    merged_schema,
    with_bucket,
    with_seen,
)
from airflow_provider_sfstream.spark.storage.settings import configure


@dataclass(frozen=True)
class Came:
    """What came for a table.

    :param frame: rows, and ``make`` what its rows are made of it, for ``mapInArrow``.
    :param schema: of those rows: change rows if ``are_changes``, in any order; else rows with an ``Id``, each once.
    :param count: about how many they are.
    :param fetched: of changes, when the first may have been committed, if a record may have been fetched after that.
    """

    frame: Frame
    make: Rows
    schema: pa.Schema
    are_changes: bool
    count: int
    fetched: datetime | None = None

    def rows(self) -> Any:
        """Return the rows as a DataFrame of Spark."""
        return self.frame.made(self.make, self.schema).rows  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Rewritten:
    """How many rows were written anew; ``dirty`` and ``deleted`` of them."""

    rows: int
    dirty: int
    deleted: int


class ReplicaSink(Protocol):
    """Reads a table and merges into it."""

    def check(self, name: str, table: TableState) -> None:
        """Make sure that the table can be written.

        :raises ConfigurationError: if not; nothing was written.
        """
        ...

    def read(self, name: str, table: TableState) -> Frame:
        """Return all rows of a table."""
        ...

    def merge(
        self, name: str, table: TableState, came: Came, merge: Merge, *, everything: bool, gone_at: int | None = None
    ) -> tuple[TableState, Rewritten]:
        """Merge what came into a table; return the table as it is then.

        Merging the same again gives the same table.

        :param everything: whether the new rows of records are wanted too for which nothing came.
        :param gone_at: of a refresh, when the version of a row that it drops ends (microseconds since the epoch).
        """
        ...


class MergeSink:
    """Iceberg tables. A merge is visible at once; merging the same rows again changes nothing.

    :param engine: Spark's, once there is such a table.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def check(self, name: str, table: TableState) -> None:
        configure(self._engine.spark, SETTINGS)
        check_session(self._engine.spark, table.table_prefix)

    def read(self, name: str, table: TableState) -> SparkFrame:
        return SparkFrame(self._table(name, table).read())

    def merge(
        self, name: str, table: TableState, came: Came, merge: Merge, *, everything: bool, gone_at: int | None = None
    ) -> tuple[TableState, Rewritten]:
        from pyspark.sql import functions as f
        from pyspark.sql.pandas.types import from_arrow_schema

        target = self._table(name, table)
        target.prepare(merge.columns)
        rows = self._rows(target, came, merge, table.buckets).persist()
        try:
            parts = None if everything else target.parts_of(rows)
            pairs = joined(target.read(parts), rows)
            if not everything:
                pairs = pairs.where(f.col("change.Id").isNotNull())
            change = folded_schema(merge.columns) if came.are_changes else came.schema
            new = pairs.mapInArrow(
                merged_pairs(merge, change), from_arrow_schema(merged_schema(merge.columns))
            ).persist()
            try:
                # By a job of its own: how a merge runs its source is its own business, and no observation need see it.
                counts = new.where(~f.col(DROPPED)).agg(*_counted()).first().asDict()
                target.upsert(new, merge.columns, parts)
            finally:
                new.unpersist()
        finally:
            rows.unpersist()
        return table, Rewritten(**counts)

    def _rows(self, target: IcebergTable, came: Came, merge: Merge, buckets: int) -> Any:
        """Return what came, one row for each record, with its bucket."""
        if not came.are_changes:
            return with_bucket(came.rows(), buckets)
        changes = came.rows()
        if came.fetched is not None:
            from pyspark.sql import functions as f

            fetched = target.read().where(f.col("_refreshed_at") >= f.lit(came.fetched))
            changes = with_seen(changes, fetched.select("Id", "_refreshed_at"))
        tasks = int(self._engine.spark.conf.get("spark.sql.shuffle.partitions"))
        return folded_changes(changes, merge.columns, tasks, buckets)

    def _table(self, name: str, table: TableState) -> IcebergTable:
        return IcebergTable.of(self._engine.spark, name, table.table_prefix, table.buckets)


def _counted() -> list[Any]:
    """Return what is counted of new rows, by the names of :class:`Rewritten`."""
    from pyspark.sql import functions as f

    return [
        f.count(f.lit(1)).alias("rows"),
        f.count_if("_dirty").alias("dirty"),
        f.count_if("_deleted").alias("deleted"),
    ]
