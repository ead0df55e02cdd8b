"""Folded rows, and how a table's new row follows from its former one: Spark expressions only, no Python for old rows.

The expressions serve every table format: they say what becomes of a pair of ``base`` (the row, null if missing) and
``change`` (the folded row, null if nothing changed), however the pairs are made.
"""

from __future__ import annotations

from typing import Any, Literal

from airflow_provider_sfstream.spark.decode.avro_columns import ColumnType
from airflow_provider_sfstream.spark.rows.change_fold import folded_rows, folded_schema
from airflow_provider_sfstream.spark.rows.replica_rows import BUCKET, TABLE_ENVELOPE

Deletes = Literal["soft", "hard"]
DROPPED = "_dropped"
"""True for a row that does not stay in the table."""

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


def joined(base: Any, change: Any, partitions: int | None = None) -> Any:
    """Return ``base`` and ``change``, structs of the two sides' columns, by ``_bucket`` and ``Id``.

    Every row of either side comes once, so ``Id`` must be unique in each. Rows of a bucket are in one task.

    :param partitions: how many tasks join; without, as many as the size of the rows makes Spark take.
    """
    from pyspark.sql import functions as f

    def side(rows: Any, name: str) -> Any:
        members = [column for column in rows.columns if column != BUCKET]
        by_bucket = rows.repartition(BUCKET) if partitions is None else rows.repartition(partitions, BUCKET)
        return by_bucket.select(BUCKET, "Id", f.struct(*members).alias(name))

    # The base is streamed past a hash table of the changes: no sort of the wide rows.
    return side(base, "base").join(side(change, "change").hint("shuffle_hash"), [BUCKET, "Id"], "full_outer")


def merged_columns(columns: dict[str, ColumnType], *, deletes: Deletes) -> list[Any]:
    """Return the columns of the table's new row over ``base`` and ``change``, and :data:`DROPPED`.

    1. A change that the row has seen already changes nothing: running a window twice is harmless.
    2. A dirty row, and one fetched after all of these changes (:func:`with_seen`), notes that it has seen them, and no
       more.
    3. Else the columns that the change sets are the change's. The row is dirty after a gap, and if it is new and none
       of its changes has the whole record.
    4. With hard deletes, a row whose record is deleted is dropped, unless a gap came after.
    """
    from pyspark.sql import functions as f

    base, change = f.col("base"), f.col("change")
    false = f.lit(False)
    exists = base["Id"].isNotNull()
    unseen = change["Id"].isNotNull() & ~f.coalesce(base["_sequence"] >= change["_sequence"], false)
    applies = unseen & ~f.coalesce(base["_dirty"], false) & change["_commit_time"].isNotNull()
    gap = change["_dirty_reason"].isNotNull()
    unknown = ~exists & ~change["_full"]

    def changed(new: Any, name: str) -> Any:
        return f.when(applies, new).otherwise(base[name]).alias(name)

    envelope = {
        "Id": f.coalesce(base["Id"], change["Id"]).alias("Id"),
        "_deleted": changed(f.coalesce(change["_deleted"], base["_deleted"], false), "_deleted"),
        "_dirty": changed(gap | unknown, "_dirty"),
        "_dirty_since": changed(
            f.when(gap, change["_dirty_since"]).when(unknown, change["_commit_time"]), "_dirty_since"
        ),
        "_dirty_reason": changed(
            f.when(gap, change["_dirty_reason"]).when(unknown, f.lit("unknown_record")), "_dirty_reason"
        ),
        "_sequence": f.when(unseen, change["_sequence"]).otherwise(base["_sequence"]).alias("_sequence"),
        "_refreshed_at": base["_refreshed_at"].alias("_refreshed_at"),
    }
    for name in ("_replay_id", "_transaction_key"):
        envelope[name] = changed(change[name], name)
    envelope["_commit_time"] = changed(f.greatest(change["_commit_time"], base["_commit_time"]), "_commit_time")
    own = [
        f.when(applies & _is_set(change["_set"], number), change[name]).otherwise(base[name]).alias(name)
        for number, name in enumerate(columns)
    ]
    dropped = f.coalesce(applies & change["_deleted"] & ~gap, false) if deletes == "hard" else false
    return [*(envelope[name] for name in TABLE_ENVELOPE), *own, dropped.alias(DROPPED)]


def _is_set(words: Any, number: int) -> Any:
    from pyspark.sql import functions as f

    return f.getbit(f.get(words, number // 64), f.lit(number % 64)) == 1
