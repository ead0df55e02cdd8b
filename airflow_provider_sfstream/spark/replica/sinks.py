"""How new rows get into a table, by its format: Parquet files of the touched buckets, or one ``MERGE``."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from airflow_provider_sfstream.spark.replica.files import ReplicaFiles, Rewritten, counted, rewrite_buckets
from airflow_provider_sfstream.spark.replica.formats import MergeTable, check_session, merge_table
from airflow_provider_sfstream.spark.replica.snapshots import TableState
from airflow_provider_sfstream.spark.rows.replica_merge import DROPPED, joined
from airflow_provider_sfstream.spark.rows.replica_rows import BUCKET


class ReplicaSink(Protocol):
    """Reads a table and merges into it."""

    def check(self, table: TableState) -> None:
        """Make sure that the table can be written.

        :raises ConfigurationError: if not; nothing was written.
        """
        ...

    def read(self, name: str, table: TableState) -> Any:
        """Return all rows of a table."""
        ...

    def merge(
        self, name: str, table: TableState, rows: Any, merge: Sequence[Any], *, everything: bool
    ) -> tuple[TableState, Rewritten]:
        """Merge ``rows`` into a table; return the table as it is then.

        Merging the same rows again gives the same table.

        :param rows: rows with ``Id`` (unique) and ``_bucket``, persisted.
        :param merge: the columns of the new row over ``base`` and ``change``, and ``_dropped``.
        :param everything: whether the new rows of records are wanted too that ``rows`` does not have.
        """
        ...


class ParquetSink:
    """Files that a snapshot names. Nothing that readers see has changed until the table's new state is published."""

    def __init__(self, files: ReplicaFiles) -> None:
        self._files = files

    def check(self, table: TableState) -> None:
        """Do nothing: every Spark writes Parquet."""

    def read(self, name: str, table: TableState) -> Any:
        by_bucket = {bucket: list(names) for bucket, names in table.files.items()}
        return self._files.read(name, by_bucket, table.columns.columns)

    def merge(
        self, name: str, table: TableState, rows: Any, merge: Sequence[Any], *, everything: bool
    ) -> tuple[TableState, Rewritten]:
        rewritten = rewrite_buckets(
            self._files,
            name,
            table.files,
            table.columns.columns,
            rows,
            merge,
            uuid.uuid4().hex,
            also=table.files if everything else (),
        )
        files = {bucket: tuple(names) for bucket, names in rewritten.files.items()}
        return replace(table, files=files), rewritten


class MergeSink:
    """Delta Lake and Iceberg tables. A merge is visible at once; merging the same rows again changes nothing."""

    def __init__(self, spark: Any, base: str) -> None:
        self._spark, self._base = spark, base

    def check(self, table: TableState) -> None:
        check_session(self._spark, table.table_format, table.table_prefix)

    def read(self, name: str, table: TableState) -> Any:
        return self._table(name, table).read()

    def merge(
        self, name: str, table: TableState, rows: Any, merge: Sequence[Any], *, everything: bool
    ) -> tuple[TableState, Rewritten]:
        from pyspark.sql import functions as f

        columns = table.columns.columns
        target = self._table(name, table)
        target.prepare(columns)
        parts = None if everything else target.parts_of(rows)
        pairs = joined(target.read(parts), rows)
        if not everything:
            pairs = pairs.where(f.col("change.Id").isNotNull())
        new = pairs.select(BUCKET, *merge).persist()
        try:
            # By a job of its own: how a merge runs its source is its own business, and no observation need see it.
            counts = new.where(~f.col(DROPPED)).agg(*counted()).first().asDict()
            target.upsert(new, columns, parts)
        finally:
            new.unpersist()
        return table, Rewritten({}, **counts)

    def _table(self, name: str, table: TableState) -> MergeTable:
        return merge_table(
            self._spark,
            table.table_format,
            name,
            output=self._base,
            table_prefix=table.table_prefix,
            buckets=table.buckets,
        )
