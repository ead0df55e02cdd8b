"""Change rows and table rows as Spark's frames, for formats that Spark itself merges into (``MERGE``)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from airflow_provider_sfstream.spark.decode.avro_columns import ColumnType
from airflow_provider_sfstream.spark.rows.change_fold import folded_rows, folded_schema
from airflow_provider_sfstream.spark.rows.event_batches import Batches, Rows
from airflow_provider_sfstream.spark.rows.merging import DROPPED, Merge, as_table, table_schema
from airflow_provider_sfstream.spark.rows.replica_rows import BUCKET

SETTINGS = {
    # A join on bucket and Id may use what is partitioned by bucket alone.
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    # Wide rows give long methods, and the JVM only interprets those beyond 8,000 bytes: better several shorter ones.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # A task writes a few buckets; sorting wide rows to have only one file open costs more than writing them. More files
    # open at once than this, of a hundred columns each, are more than a small heap holds.
    "spark.sql.maxConcurrentOutputFileWriters": "8",
    # Room for large tables; Spark joins partitions that turn out small, since every task compiles wide rows anew.
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "64",
}
"""What a session must have set for these expressions to be planned well."""


def with_bucket(rows: Any, buckets: int) -> Any:
    """Return rows that have an ``Id`` with their bucket."""
    from pyspark.sql import functions as f

    return rows.withColumn(BUCKET, f.pmod(f.xxhash64("Id"), f.lit(buckets)).cast("int"))


def with_seen(changes: Any, fetched: Any) -> Any:
    """Return change rows with those marked as ``seen`` that were committed before their record was fetched.

    Each is judged by itself, whatever the order of commit times is: the record as fetched has it.

    :param changes: change rows, in any order.
    :param fetched: ``Id`` and ``_refreshed_at`` of records that were, each once.
    """
    from pyspark.sql import functions as f

    both = changes.join(fetched.hint("shuffle_hash"), "Id", "left")
    seen = f.col("_commit_time") < f.col("_refreshed_at")
    operation = f.when(seen, "seen").otherwise(f.col("_operation"))
    return both.withColumn("_operation", operation).select(*changes.columns)


def folded_changes(changes: Any, columns: dict[str, ColumnType], partitions: int, buckets: int) -> Any:
    """Return one folded row with its bucket for each record that has change rows.

    :param changes: change rows, in any order.
    :param columns: the table's columns, in the order of the bits of ``_set``.
    :param partitions: how many tasks fold; a record's changes are all in one.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    ordered = changes.repartition(partitions, "Id").sortWithinPartitions("Id", "_sequence")
    return with_bucket(ordered.mapInArrow(folded_rows(columns), from_arrow_schema(folded_schema(columns))), buckets)


def joined(base: Any, change: Any) -> Any:
    """Return ``base`` and ``change``, structs of the two sides' columns, by ``_bucket`` and ``Id``.

    Every row of either side comes once, so ``Id`` must be unique in each. Rows of a bucket are in one task.
    """
    from pyspark.sql import functions as f

    def side(rows: Any, name: str) -> Any:
        members = [column for column in rows.columns if column != BUCKET]
        return rows.repartition(BUCKET).select(BUCKET, "Id", f.struct(*members).alias(name))

    # The base is streamed past a hash table of the changes: no sort of the wide rows.
    return side(base, "base").join(side(change, "change").hint("shuffle_hash"), [BUCKET, "Id"], "full_outer")


def merged_pairs(merge: Merge, change: pa.Schema) -> Rows:
    """Return a function for ``mapInArrow`` from the rows of :func:`joined` to :func:`merged_schema`.

    :param change: schema of that side. Spark gives times in the session's own time zone.
    """

    def rows(batches: Batches) -> Batches:
        table, schema = table_schema(merge.columns), merged_schema(merge.columns)
        for batch in batches:
            new, dropped = merge(_side(batch.column("base"), table), _side(batch.column("change"), change))
            yield pa.RecordBatch.from_arrays([batch.column(BUCKET), *new.columns, dropped], schema=schema)

    return rows


def _side(rows: pa.StructArray, schema: pa.Schema) -> pa.RecordBatch:
    return as_table(pa.RecordBatch.from_arrays(rows.flatten(), names=rows.type.names), schema)


def merged_schema(columns: dict[str, ColumnType]) -> pa.Schema:
    """Return the Arrow schema of new rows: their bucket, the table's columns, and :data:`DROPPED`."""
    return pa.schema([(BUCKET, pa.int32()), *table_schema(columns), (DROPPED, pa.bool_())])
