"""Tables as folders of Parquet files, written wherever the engine can write.

``{base}/{event type}/event_date=.../window_id=.../*.parquet``, ``{base}/{event type}/_sfstream/columns.json`` and
``{base}/_quarantine/window_id=.../*.parquet``. One job at a time may write below one folder.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from urllib.parse import unquote

from airflow_provider_sfstream.spark.engines.engine import Engine, Frame, TableKeys
from airflow_provider_sfstream.spark.event_log.tables import KEYS, QUARANTINE_TABLE, Dates, Partition
from airflow_provider_sfstream.spark.rows.event_batches import ENVELOPE, PARTITIONS, Rows, TablePlan
from airflow_provider_sfstream.spark.storage.column_registry import ColumnRegistry, type_of_spark

log = logging.getLogger(__name__)


class ParquetTables:
    """Reads and replaces window partitions.

    :param base: the folder, as the engine names it.
    :param names: of the tables that are there.
    :param own: the window partitions that this run writes.
    :param dates: the event dates that its rows can have.
    """

    def __init__(self, engine: Engine, base: str, names: Collection[str], own: Collection[str], dates: Dates) -> None:
        self._engine, self._files, self._base, self._own = engine, engine.files, base, frozenset(own)
        for table in (*names, QUARANTINE_TABLE):
            self._remove_leftovers(table)
        self._partitions = {table: self._find_partitions(table, dates) for table in names}

    def keys(self, tables: Collection[str]) -> TableKeys:
        skipped = self._own if len(self._own) == 1 else frozenset()
        found = []
        for table in tables:
            partitions = [each for each in self._partitions.get(table, ()) if each[1] not in skipped]
            if partitions:
                folders = [_folder(partition) for partition in partitions]
                found.append(self._engine.file_rows(f"{self._base}/{table}", folders, KEYS))
        return TableKeys(found)

    def registry(self, table: str) -> ColumnRegistry:
        """Return the column registry of a table; made from the table's files where it was lost."""
        url = self._registry_url(table)
        try:
            return ColumnRegistry.from_json(self._files.read_text(url), url)
        except FileNotFoundError:
            if not any(folder.startswith("event_date=") for folder in self._files.folders(f"{self._base}/{table}")):
                return ColumnRegistry()
        log.warning("%s has no column registry; making it from the table's files.", table)
        stored = self._engine.stored_schema(f"{self._base}/{table}")
        columns = {item["name"]: type_of_spark(item["type"]) for item in stored["fields"]}
        return ColumnRegistry({name: t for name, t in columns.items() if name not in ENVELOPE | PARTITIONS})

    def write(self, table: str, rows: Frame, decode: Rows, plan: TablePlan) -> int:
        # First the registry: no data file ever has a column that it lacks.
        registry = self.registry(table)
        registry.columns.update(plan.columns)
        self._files.replace_text(self._registry_url(table), registry.to_json())
        return self._replace(table, rows.made(decode, plan.arrow_schema()), tuple(PARTITIONS))

    def write_quarantine(self, outcasts: Sequence[Frame]) -> int:
        counts: dict[str, int] = {}
        if outcasts:
            rows = outcasts[0].together(outcasts[1:]).kept()
            counts = {row["window_id"]: row["count"] for row in rows.counted("window_id")}
            self._replace(QUARANTINE_TABLE, rows, ("window_id",))
        for window in sorted(self._own - counts.keys()):
            self._files.delete(f"{self._base}/{QUARANTINE_TABLE}/window_id={window}")
        return sum(counts.values())

    def remove_rest(self, written: Mapping[str, Collection[Partition]]) -> None:
        for table, partitions in self._partitions.items():
            own = {partition for partition in partitions if partition[1] in self._own}
            for partition in sorted(own.difference(written.get(table, ()))):
                url = f"{self._base}/{table}/{_folder(partition)}"
                log.info("Removing %s, which its window no longer has.", url)
                self._files.delete(url)

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

    def _replace(self, table: str, rows: Frame, partition_by: Sequence[str]) -> int:
        """Write rows, replacing just the partitions that they go to; return how many it is."""
        return self._engine.replace_partitions(f"{self._base}/{table}", rows, partition_by)

    def _remove_leftovers(self, table: str) -> None:
        """Remove what a killed job left behind; readers do not see it."""
        for folder in self._files.folders(f"{self._base}/{table}"):
            if folder.startswith((".sfstream-staging-", ".spark-staging-", "_temporary")):
                self._files.delete(f"{self._base}/{table}/{folder}")

    def _registry_url(self, table: str) -> str:
        return f"{self._base}/{table}/_sfstream/columns.json"


def _folder(partition: Partition) -> str:
    day, window = partition
    return f"event_date={day.isoformat()}/window_id={window}"


def _partition_value(folder: str, column: str) -> str | None:
    name, separator, value = folder.partition("=")
    return unquote(value) if separator and name == column and value != "__HIVE_DEFAULT_PARTITION__" else None
