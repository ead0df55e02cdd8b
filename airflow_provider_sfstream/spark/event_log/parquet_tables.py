"""Tables as folders of Parquet files, written by Spark wherever it can write.

``{base}/{event type}/event_date=.../window_id=.../*.parquet``, ``{base}/{event type}/_sfstream/columns.json`` and
``{base}/_quarantine/window_id=.../*.parquet``. One job at a time may write below one folder.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from typing import Any
from urllib.parse import unquote

from airflow_provider_sfstream.spark.event_log.tables import QUARANTINE_TABLE, Dates, Partition
from airflow_provider_sfstream.spark.rows.event_batches import ENVELOPE, PARTITIONS, Rows, TablePlan
from airflow_provider_sfstream.spark.storage.column_registry import ColumnRegistry, type_of_spark
from airflow_provider_sfstream.spark.storage.frames import union
from airflow_provider_sfstream.spark.storage.hadoop_files import HadoopFiles

log = logging.getLogger(__name__)


class ParquetTables:
    """Reads and replaces window partitions.

    :param spark: a ``SparkSession``.
    :param base: the folder, as Hadoop names it.
    :param names: of the tables that are there.
    :param own: the window partitions that this run writes.
    :param dates: the event dates that its rows can have.
    """

    def __init__(
        self, spark: Any, files: HadoopFiles, base: str, names: Collection[str], own: Collection[str], dates: Dates
    ) -> None:
        self._spark, self._files, self._base, self._own = spark, files, base, frozenset(own)
        # Few partitions are open at a time; sorting wide rows to have only one open costs more than writing them.
        spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", "64")
        for table in (*names, QUARANTINE_TABLE):
            self._remove_leftovers(table)
        self._partitions = {table: self._find_partitions(table, dates) for table in names}

    def keys(self, tables: Collection[str]) -> Any | None:
        schema = "_org_id string, _topic string, _replay_id binary, event_date date, window_id string"
        skipped = self._own if len(self._own) == 1 else frozenset()
        chosen = {
            table: [partition for partition in self._partitions.get(table, ()) if partition[1] not in skipped]
            for table in tables
        }
        parts = [
            self._spark.read.schema(schema)
            .option("basePath", f"{self._base}/{table}")
            .parquet(*(self._folder(table, partition) for partition in partitions))
            .selectExpr("_org_id org_id", "_topic topic", "_replay_id replay_id", "window_id")
            for table, partitions in chosen.items()
            if partitions
        ]
        return union(parts) if parts else None

    def registry(self, table: str) -> ColumnRegistry:
        """Return the column registry of a table; made from the table's files where it was lost."""
        url = self._registry_url(table)
        try:
            return ColumnRegistry.from_json(self._files.read_text(url), url)
        except FileNotFoundError:
            if not any(folder.startswith("event_date=") for folder in self._files.folders(f"{self._base}/{table}")):
                return ColumnRegistry()
        log.warning("%s has no column registry; making it from the table's files.", table)
        stored = self._spark.read.option("mergeSchema", True).parquet(f"{self._base}/{table}").schema
        columns = {item["name"]: type_of_spark(item["type"]) for item in stored.jsonValue()["fields"]}
        return ColumnRegistry({name: t for name, t in columns.items() if name not in ENVELOPE | PARTITIONS})

    def write(self, table: str, rows: Any, decode: Rows, plan: TablePlan) -> int:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f
        from pyspark.sql.pandas.types import from_arrow_schema

        # First the registry: no data file ever has a column that it lacks.
        registry = self.registry(table)
        registry.columns.update(plan.columns)
        self._files.replace_text(self._registry_url(table), registry.to_json())
        observation = Observation()
        decoded = rows.mapInArrow(decode, from_arrow_schema(plan.arrow_schema()))
        self._replace(table, decoded.observe(observation, f.count(f.lit(1)).alias("rows")), tuple(PARTITIONS))
        return int(observation.get["rows"])

    def write_quarantine(self, outcasts: Sequence[Any]) -> int:
        counts: dict[str, int] = {}
        if outcasts:
            rows = union(outcasts).persist()
            counts = {row["window_id"]: row["count"] for row in rows.groupBy("window_id").count().collect()}
            self._replace(QUARANTINE_TABLE, rows.coalesce(1), ("window_id",))
        for window in sorted(self._own - counts.keys()):
            self._files.delete(f"{self._base}/{QUARANTINE_TABLE}/window_id={window}")
        return sum(counts.values())

    def remove_rest(self, written: Mapping[str, Collection[Partition]]) -> None:
        for table, partitions in self._partitions.items():
            own = {partition for partition in partitions if partition[1] in self._own}
            for partition in sorted(own.difference(written.get(table, ()))):
                log.info("Removing %s, which its window no longer has.", self._folder(table, partition))
                self._files.delete(self._folder(table, partition))

    def _find_partitions(self, table: str, dates: Dates) -> list[Partition]:
        found: list[Partition] = []
        for folder in self._files.folders(f"{self._base}/{table}"):
            day = _partition_value(folder, "event_date")
            if day is None or (dates and not dates[0] <= date.fromisoformat(day) <= dates[1]):
                continue
            inner = self._files.folders(f"{self._base}/{table}/{folder}")
            windows = (_partition_value(name, "window_id") for name in inner)
            found += [(date.fromisoformat(day), window) for window in windows if window is not None]
        return found

    def _replace(self, table: str, rows: Any, partition_by: Collection[str]) -> None:
        """Write rows, replacing just the partitions that they go to."""
        writer = rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy(*partition_by).parquet(f"{self._base}/{table}")

    def _remove_leftovers(self, table: str) -> None:
        """Remove what a killed job left behind; readers do not see it."""
        for folder in self._files.folders(f"{self._base}/{table}"):
            if folder.startswith((".sfstream-staging-", ".spark-staging-", "_temporary")):
                self._files.delete(f"{self._base}/{table}/{folder}")

    def _folder(self, table: str, partition: Partition) -> str:
        day, window = partition
        return f"{self._base}/{table}/event_date={day.isoformat()}/window_id={window}"

    def _registry_url(self, table: str) -> str:
        return f"{self._base}/{table}/_sfstream/columns.json"


def _partition_value(folder: str, column: str) -> str | None:
    name, separator, value = folder.partition("=")
    return unquote(value) if separator and name == column and value != "__HIVE_DEFAULT_PARTITION__" else None
