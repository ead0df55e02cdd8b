"""The events that a replica could not read: ``{base}/_replica_quarantine/window_id=.../from_ordinal=.../*.parquet``.

Beside the tables, and not that of an event log, which may be below the same folder.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from airflow_provider_sfstream.spark.replica.landed_changes import LandedChanges
from airflow_provider_sfstream.spark.rows.event_batches import quarantine_schema, refused_rows
from airflow_provider_sfstream.spark.storage.frames import union
from airflow_provider_sfstream.spark.storage.hadoop_files import HadoopFiles
from airflow_provider_sfstream.spark.storage.landed_windows import LandedWindow

log = logging.getLogger(__name__)

REPLICA_QUARANTINE = "_replica_quarantine"
FROM_ORDINAL = "from_ordinal"


def without_schema(changes: LandedChanges, unusable: Iterable[str | None]) -> Any | None:
    """Return the events of schemas that cannot be used, as rows of the quarantine; ``None`` if there are none.

    :param unusable: ids of such schemas, which other events of these windows may have.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    ids = set(unusable)
    if not ids:
        return None
    without = f.col("schema_id").isNull() | f.col("schema_id").isin(sorted(id_ for id_ in ids if id_ is not None))
    rows = changes.rows.where(without)
    if rows.isEmpty():
        return None
    refuse = refused_rows(dict(changes.refused), changes.references)
    return rows.mapInArrow(refuse, from_arrow_schema(quarantine_schema()))


class ReplicaQuarantine:
    """The quarantine below one output folder.

    :param spark: a ``SparkSession``.
    :param base: the output folder, as Hadoop names it.
    """

    def __init__(self, spark: Any, files: HadoopFiles, base: str) -> None:
        self._files, self._base = files, base

    def set_aside(self, changes: LandedChanges, outcasts: Sequence[Any]) -> int:
        """Set aside the events that cannot be read, all of the run at once; return how many they are.

        The events of a window may be applied by several runs, each from where the one before it ended. So that none
        of them replaces what another set aside, and a run that is repeated replaces its own, the rows of each are in a
        partition of the ordinal that it began with.
        """
        from pyspark.sql import functions as f

        begun = changes.begun()
        self._remove(changes.windows, begun)
        if not outcasts:
            return 0
        part = f.lit(0)
        for window_id, ordinal in begun.items():
            part = f.when(f.col("window_id") == window_id, ordinal).otherwise(part)
        rows = union(outcasts).withColumn(FROM_ORDINAL, part).persist()
        try:
            count = int(rows.count())
            log.warning("%d events could not be read; they are in %s.", count, REPLICA_QUARANTINE)
            writer = rows.coalesce(1).write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
            writer.partitionBy("window_id", FROM_ORDINAL).parquet(f"{self._base}/{REPLICA_QUARANTINE}")
        finally:
            rows.unpersist()
        return count

    def _remove(self, windows: Iterable[LandedWindow], begun: Mapping[str, int]) -> None:
        """Remove what a run that was killed has set aside of the events to apply."""
        present = set(self._files.folders(f"{self._base}/{REPLICA_QUARANTINE}"))
        for window in windows:
            if (folder := f"window_id={window.window_id}") in present:
                part = f"{FROM_ORDINAL}={begun.get(window.window_id, 0)}"
                self._files.delete(f"{self._base}/{REPLICA_QUARANTINE}/{folder}/{part}")
