"""The history of a replica table (SCD type 2): each version that a record had, and when.

Versions that have ended are written once, in the run that ends them, and never change; those that still hold are the
rows of the table itself. A snapshot names the files of both, so history and table are of the same moment.
History is kept in Parquet, for tables in Parquet.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.spark.decode.avro_columns import ColumnType
from airflow_provider_sfstream.spark.replica.reader import read_replica, table_of
from airflow_provider_sfstream.spark.replica.snapshot_store import SnapshotStore
from airflow_provider_sfstream.spark.replica.snapshots import TableState
from airflow_provider_sfstream.spark.rows.history_batches import (
    STEP_ENVELOPE,
    VERSION_ENVELOPE,
    closed_rows,
    version_schema,
)
from airflow_provider_sfstream.spark.rows.replica_merge import DROPPED, Deletes, joined
from airflow_provider_sfstream.spark.storage.hadoop_files import HadoopFiles

log = logging.getLogger(__name__)

HISTORY = "{}__history"
"""Name of the folder of a table's ended versions."""

_FOLDERS = 16
"""So many folders of one tier become one of the next: how many there are grows with the logarithm of the runs."""
_FOLDER = re.compile(r"/_files/(?:t(\d+)-)?([^/]+)/")
_VERSIONS_PER_FILE = 2_000_000


def closed_versions(
    base: Any, changes: Any, columns: dict[str, ColumnType], partitions: int, *, deletes: Deletes
) -> Any:
    """Return the versions that a run's changes end.

    Those are the rows as they were before the run, if a change applies to them, and all states in between. The same
    rules say which changes apply as for the table. With hard deletes, the time in which a record is deleted has no
    version.

    :param base: rows of the table before the run: those of the changed records at least.
    :param changes: change rows, in any order.
    :param columns: the record's columns, in the order of the bits of ``_set``.
    :param partitions: how many tasks do it; a record's changes are all in one.
    :return: rows as :data:`VERSION_ENVELOPE` says, and ``columns``.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    names = [*STEP_ENVELOPE, *columns]
    everything = f.array_repeat(f.lit(-1).cast("long"), -(-len(columns) // 64))
    rows = base.join(changes.select("Id").distinct(), "Id", "left_semi").withColumns(
        {
            "_operation": f.lit("base"),
            "_stopped": f.col("_dirty"),
            "_known": f.lit(True),
            "_set": everything,
        }
    )
    nothing = {name: f.lit(None).cast("boolean") for name in ("_stopped", "_known", "_deleted")}
    steps = changes.withColumns({**nothing, "_refreshed_at": f.lit(None).cast("timestamp")})
    steps = rows.select(*names).unionByName(steps.select(*names))
    ordered = steps.repartition(partitions, "Id").sortWithinPartitions(
        "Id", f.when(f.col("_operation") == "base", 0).otherwise(1), "_sequence"
    )
    return ordered.mapInArrow(closed_rows(columns, deletes), from_arrow_schema(version_schema(columns)))


def replaced_versions(
    base: Any, fetched: Any, merge: Sequence[Any], columns: dict[str, ColumnType], partitions: int, gone_at: datetime
) -> Any:
    """Return the versions that a refresh ends.

    A new row that begins when its former one did takes its place, and ends nothing.

    :param base: rows of the table before the refresh, with their bucket.
    :param fetched: what is merged into them, with its bucket.
    :param merge: the columns of the new row over ``base`` and ``change``, and ``_dropped``.
    :param gone_at: when the version of a row ends that is dropped: nobody can tell when the record was deleted.
    :return: rows as :data:`VERSION_ENVELOPE` says, and ``columns``.
    """
    from pyspark.sql import functions as f

    pairs = joined(base, fetched, partitions).where("base.Id IS NOT NULL")
    both = pairs.select("base", f.struct(*merge).alias("new"))
    dropped = f.col(f"new.{DROPPED}")
    ended = both.where(dropped | (_begins("new.") > _begins("base.")))
    ends = f.when(dropped, f.greatest(_begins("base."), f.lit(gone_at))).otherwise(_begins("new."))
    return ended.select("base.*", ends.alias("_valid_to")).select(*_version(columns, f.col("_valid_to")))


def compacted(spark: Any, output_url: str, table: str, state: TableState) -> TableState:
    """Return the table with its ended versions in fewer files, where they are in many; the rows are the same.

    Files that are there stay as they are: other snapshots name them.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    files, tier = tuple(state.history or ()), 0
    while True:
        folders: dict[str, list[str]] = {}
        for name in files:
            if _tier(name) == tier:
                folders.setdefault(name.rpartition("/")[0], []).append(name)
        if len(folders) < _FOLDERS:
            return replace(state, history=files)
        merged = {name for names in folders.values() for name in names}
        base = HadoopFiles(spark).url(output_url)
        schema = from_arrow_schema(version_schema(state.columns.columns))
        versions = spark.read.schema(schema).parquet(*(f"{base}/{name}" for name in sorted(merged)))
        tier += 1
        versions = versions.coalesce(-(-versions.count() // _VERSIONS_PER_FILE) or 1)
        written = write_versions(spark, output_url, table, versions, f"t{tier}-{uuid.uuid4().hex}")
        log.info("%s: %d files of its history became %d.", table, len(merged), len(written))
        files = (*(name for name in files if name not in merged), *written)


def _tier(file: str) -> int:
    folder = _FOLDER.search(file)
    return int(folder[1] or 0) if folder else 0


def write_versions(spark: Any, output_url: str, table: str, versions: Any, folder: str) -> list[str]:
    """Write ended versions into a folder of their own; return the files, relative to the output folder.

    :param output_url: the replica's folder.
    :param folder: a name that was never used for this table's history.
    :raises pyspark.errors.AnalysisException: if it was.
    """
    files = HadoopFiles(spark)
    place = f"{HISTORY.format(table)}/_files/{folder}"
    writer = versions.write.option("compression", "zstd").option("parquet.compression.codec.zstd.level", "1")
    writer = writer.option("maxRecordsPerFile", _VERSIONS_PER_FILE)
    # Version 2, which some clusters have for speed, publishes the files of tasks that did not finish.
    url = f"{files.url(output_url)}/{place}"
    writer.option("mapreduce.fileoutputcommitter.algorithm.version", "1").parquet(url)
    return [f"{place}/{name}" for name in files.files_below(url) if name.endswith(".parquet")]


def read_history(spark: Any, output_url: str, table: str, *, snapshot: int | None = None) -> Any:
    """Return all versions of a table's records as a DataFrame: those that ended and those that hold.

    ``_valid_from`` is inclusive, ``_valid_to`` exclusive and null in the version that holds, for which ``_is_current``
    is true. Versions of one record are in the order of ``_sequence``, then of ``_valid_from``.

    :param spark: a ``SparkSession``.
    :param output_url: the replica's folder.
    :param table: API name of the Salesforce object, for example ``"Account"``.
    :param snapshot: number of the snapshot; ``None`` for the current one.
    :raises ConfigurationError: if there is no such table, it is not kept in Parquet, or it has no history.
    :raises FileNotFoundError: if the snapshot is not kept any longer.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    files = HadoopFiles(spark)
    base = files.url(output_url)
    store = SnapshotStore(files, base)
    chosen = store.current() if snapshot is None else store.read(snapshot)
    state = table_of(chosen, table, output_url)
    if state.history is None:
        raise ConfigurationError(
            f"{table} below {output_url} is kept without a history. Start the job with --history to keep it from then "
            "on; versions that ended before are not known."
        )
    columns = state.columns.columns
    holding = read_replica(spark, output_url, table, snapshot=chosen.number)
    versions = holding.select(*_version(columns, f.lit(None).cast("timestamp")))
    if state.history:
        schema = from_arrow_schema(version_schema(columns))
        versions = versions.unionByName(
            spark.read.schema(schema).parquet(*(f"{base}/{name}" for name in state.history)).select(*versions.columns)
        )
    return versions.select(
        *(name for name in VERSION_ENVELOPE), f.col("_valid_to").isNull().alias("_is_current"), *columns
    )


def _begins(side: str = "") -> Any:
    """Return when the version that a table's row is began: with its last change, or with what was fetched later."""
    from pyspark.sql import functions as f

    return f.greatest(f"{side}_commit_time", f"{side}_refreshed_at")


def _version(columns: dict[str, ColumnType], ends: Any) -> list[Any]:
    """Return the columns of the version that a table's row is."""
    from pyspark.sql import functions as f

    began = (
        f.when(f.col("_dirty"), "unknown")
        .when(f.col("_deleted"), "delete")
        .when(f.coalesce(f.col("_commit_time") < f.col("_refreshed_at"), f.col("_commit_time").isNull()), "refresh")
        .otherwise("upsert")
    )
    made = {"_valid_from": _begins(), "_valid_to": ends, "_operation": began}
    return [made.get(name, f.col(name)).alias(name) for name in VERSION_ENVELOPE] + [f.col(name) for name in columns]
