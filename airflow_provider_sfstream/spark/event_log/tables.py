"""The tables below one folder, one for each event type, and the quarantine beside them.

``{base}/{event type}/event_date=.../window_id=.../*.parquet``, ``{base}/{event type}/_sfstream/columns.json`` and
``{base}/_quarantine/window_id=.../*.parquet``. One job at a time may write below one folder.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterable
from datetime import date
from typing import Any
from urllib.parse import unquote

from airflow_provider_sfstream.spark.rows.event_batches import ENVELOPE, PARTITIONS
from airflow_provider_sfstream.spark.storage.column_registry import ColumnRegistry, type_of_spark
from airflow_provider_sfstream.spark.storage.frames import union
from airflow_provider_sfstream.spark.storage.hadoop_files import HadoopFiles

log = logging.getLogger(__name__)

QUARANTINE_TABLE = "_quarantine"
_STAGING = ".sfstream-staging-"
Dates = tuple[date, date] | None
Partition = tuple[date, str]
_TABLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")


def check_table_name(name: str) -> str:
    """Return the record name of a schema if it can name a folder.

    :raises ValueError: if not.
    """
    if not _TABLE_NAME.fullmatch(name):
        raise ValueError(f"the record name {name[:80]!r} cannot name a table")
    return name


class EventTables:
    """Reads and replaces window partitions.

    :param spark: a ``SparkSession``.
    :param base: the folder, as Hadoop names it.
    """

    def __init__(self, spark: Any, files: HadoopFiles, base: str) -> None:
        self._spark, self._files, self.base = spark, files, base

    def names(self) -> list[str]:
        """Return the event types that have a table."""
        return [name for name in self._files.folders(self.base) if _TABLE_NAME.fullmatch(name)]

    def partitions(self, table: str, dates: Dates) -> list[Partition]:
        """Return the (event date, window partition) pairs of a table within ``dates``, all if ``None``."""
        found: list[Partition] = []
        for folder in self._files.folders(f"{self.base}/{table}"):
            day = _partition_value(folder, "event_date")
            if day is None or (dates and not dates[0] <= date.fromisoformat(day) <= dates[1]):
                continue
            for inner in self._files.folders(f"{self.base}/{table}/{folder}"):
                window = _partition_value(inner, "window_id")
                if window is not None:
                    found.append((date.fromisoformat(day), window))
        return found

    def keys(self, partitions: dict[str, list[Partition]]) -> Any | None:
        """Return org, topic, replay ID and window partition of all rows in ``partitions``, by table."""
        schema = "_org_id string, _topic string, _replay_id binary, event_date date, window_id string"
        parts = [
            self._spark.read.schema(schema)
            .option("basePath", f"{self.base}/{table}")
            .parquet(*(self._folder(table, partition) for partition in chosen))
            .selectExpr("_org_id org_id", "_topic topic", "_replay_id replay_id", "window_id")
            for table, chosen in partitions.items()
            if chosen
        ]
        return union(parts) if parts else None

    def read_registry(self, table: str) -> ColumnRegistry:
        """Return the column registry of a table; made from the table's files where it was lost.

        :raises ValueError: if it is there and is broken.
        """
        url = self._registry_url(table)
        try:
            return ColumnRegistry.from_json(self._files.read_text(url), url)
        except FileNotFoundError:
            if not any(folder.startswith("event_date=") for folder in self._files.folders(f"{self.base}/{table}")):
                return ColumnRegistry()
        log.warning("%s has no column registry; making it from the table's files.", table)
        stored = self._spark.read.option("mergeSchema", True).parquet(f"{self.base}/{table}").schema
        columns = {item["name"]: type_of_spark(item["type"]) for item in stored.jsonValue()["fields"]}
        return ColumnRegistry({name: t for name, t in columns.items() if name not in ENVELOPE | PARTITIONS})

    def write_registry(self, table: str, registry: ColumnRegistry) -> None:
        self._files.replace_text(self._registry_url(table), registry.to_json())

    def replace(self, table: str, rows: Any, partition_by: Iterable[str] = tuple(PARTITIONS)) -> None:
        """Write rows, replacing just the partitions that they go to."""
        writer = rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy(*partition_by).parquet(f"{self.base}/{table}")

    def local_path(self) -> str | None:
        """Return the path of the folder in a file system, ``None`` if it is in other storage."""
        return self._files.local_path(self.base)

    def stage(self, table: str) -> tuple[str, str]:
        """Make a folder that readers do not see, and return its URL and its path in the file system."""
        inside = f"{table}/{_STAGING}{uuid.uuid4().hex}"
        self._files.make_folder(f"{self.base}/{inside}")
        return f"{self.base}/{inside}", f"{self.local_path()}/{inside}"

    def replace_with_files(self, table: str, staged: str, files: dict[Partition, list[str]]) -> None:
        """Replace partitions by files that lie in the folder ``staged``, and remove that folder."""
        for partition, names in files.items():
            ready = f"{staged}/{partition[0].isoformat()}/{partition[1]}"
            self._files.make_folder(ready)
            for name in names:
                self._files.rename(f"{staged}/{name}", f"{ready}/{name}")
            target = self._folder(table, partition)
            self._files.make_folder(target.rpartition("/")[0])
            self._files.delete(target)
            self._files.rename(ready, target)
        self._files.delete(staged)

    def remove_leftovers(self, table: str) -> None:
        """Remove what a killed job left behind; readers do not see it."""
        for folder in self._files.folders(f"{self.base}/{table}"):
            if folder.startswith((_STAGING, ".spark-staging-", "_temporary")):
                self._files.delete(f"{self.base}/{table}/{folder}")

    def remove(self, table: str, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            log.info("Removing %s, which its window no longer has.", self._folder(table, partition))
            self._files.delete(self._folder(table, partition))

    def remove_quarantine(self, windows: Iterable[str]) -> None:
        for window in windows:
            self._files.delete(f"{self.base}/{QUARANTINE_TABLE}/window_id={window}")

    def _folder(self, table: str, partition: Partition) -> str:
        day, window = partition
        return f"{self.base}/{table}/event_date={day.isoformat()}/window_id={window}"

    def _registry_url(self, table: str) -> str:
        return f"{self.base}/{table}/_sfstream/columns.json"


def _partition_value(folder: str, column: str) -> str | None:
    name, separator, value = folder.partition("=")
    return unquote(value) if separator and name == column and value != "__HIVE_DEFAULT_PARTITION__" else None
