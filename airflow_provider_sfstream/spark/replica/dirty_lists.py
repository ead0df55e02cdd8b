"""The rows of a table that a refresh is to fetch, listed for it: JSON lines of ``Id`` and ``sequence``.

A list has the dirty rows and, where that is wanted, those whose computed columns are to be fetched because an event
changed them. It is written anew in each run that changes it; a snapshot names it.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from airflow_provider_sfstream.spark.replica.snapshots import TableState
from airflow_provider_sfstream.spark.storage.hadoop_files import HadoopFiles

FOLDER = "_sfstream/replica/dirty"
"""Below the output folder."""
_LISTED = "Id string, sequence bigint"


class DirtyLists:
    """The lists below one output folder.

    :param spark: a ``SparkSession``.
    :param base: the output folder, as Hadoop names it.
    """

    def __init__(self, spark: Any, files: HadoopFiles, base: str) -> None:
        self._spark, self._files, self._base = spark, files, base

    def listed(self, table: TableState) -> Any | None:
        """Return the rows that the table's list names (``Id`` and ``sequence``), if it names changed rows too."""
        if not table.computed.on_change:
            return None
        if table.dirty_list is None:
            return self._spark.createDataFrame([], _LISTED)
        return self._spark.read.schema(_LISTED).json(f"{self._base}/{table.dirty_list}")

    def written(self, name: str, table: TableState, rows: Any, at_most: int, changed: Any | None) -> TableState:
        """Return the table with the list of its dirty rows, and of those that an event changed.

        :param rows: of the table; not looked at if none may be dirty and none is changed.
        :param at_most: how many rows may be dirty.
        :param changed: ids and sequences of rows whose computed columns are to be fetched, ``None`` if they are not.
        """
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        if not at_most and changed is None:
            return replace(table, dirty=0, dirty_list=None, computed=replace(table.computed, changed=0))
        rows = rows.where("_dirty").select("Id", f.col("_sequence").alias("sequence"))
        listed = rows.withColumn("dirty", f.lit(True))
        if changed is not None:
            latest = changed.groupBy("Id").agg(f.max("sequence").alias("sequence"))
            listed = listed.union(latest.join(rows, "Id", "left_anti").withColumn("dirty", f.lit(False)))
        counts, place = Observation(), f"{FOLDER}/{name}/{uuid.uuid4().hex}"
        listed = listed.observe(
            counts, f.count_if("dirty").alias("dirty"), f.count_if(~f.col("dirty")).alias("changed")
        )
        listed.drop("dirty").coalesce(1).write.json(f"{self._base}/{place}")
        dirty, also = int(counts.get["dirty"]), int(counts.get["changed"])
        computed = replace(table.computed, changed=also)
        return replace(table, dirty=dirty, dirty_list=place if dirty + also else None, computed=computed)

    def tidy(self, table: str, live: Collection[str]) -> None:
        """Remove the lists of a table that are not in ``live``."""
        for folder in self._files.folders(f"{self._base}/{FOLDER}/{table}"):
            if f"{FOLDER}/{table}/{folder}" not in live:
                self._files.delete(f"{self._base}/{FOLDER}/{table}/{folder}")
