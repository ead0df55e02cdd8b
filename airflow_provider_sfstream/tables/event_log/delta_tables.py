"""Tables as Delta tables: the executors' Python writes files from Arrow columns, the driver commits them.

``{base}/{event type}/event_date=.../{window partition}/part-*.parquet`` and
``{base}/_quarantine/{window partition}/part-*.parquet``: a file's folder tells whose it is. A run changes a table from
the version that it has read, in one commit, and only if no other job has written events of the same streams since.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

import pyarrow as pa

from airflow_provider_sfstream.tables.delta.column_registry import ColumnRegistry, type_of_spark
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog, TableFile, TableVersion
from airflow_provider_sfstream.tables.delta.partition_files import (
    WRITTEN,
    as_they_are,
    files_of,
    window_of,
    write_files,
)
from airflow_provider_sfstream.tables.event_log.tables import KEYS, QUARANTINE_TABLE, Dates, Partition
from airflow_provider_sfstream.tables.rows.event_batches import (
    ENVELOPE,
    PARTITIONS,
    Rows,
    TablePlan,
    WindowReference,
    quarantine_schema,
)
from airflow_provider_sfstream.tables.runner.engine import Engine, Frame, TableKeys

log = logging.getLogger(__name__)

PARTITION_BY = ("event_date",)


class DeltaTables:
    """Reads versions of tables, and commits what replaces the rows of a run's windows.

    :param base: the folder, as the engine names it.
    :param names: of the tables that are there.
    :param windows: those of the run.
    :param dates: the event dates that its rows can have.
    :param job: who commits, as another job's error names it.
    """

    def __init__(
        self,
        engine: Engine,
        base: str,
        names: Iterable[str],
        windows: Iterable[WindowReference],
        dates: Dates,
        job: str,
    ) -> None:
        self._engine, self._base, self._dates, self._job = engine, base, dates, job
        self._location = engine.files.table_location(base)
        self._own = {window.partition for window in windows}
        self._progress = sorted({f"sfstream:{window.org_id}|{window.topic}" for window in windows})
        self._read = {table: self._version(table) for table in (*names, QUARANTINE_TABLE)}

    def keys(self, tables: Collection[str]) -> TableKeys:
        # The windows of rows that stay where they are do not matter, the run's own least of all: a compaction has
        # merged them with others.
        replaced: list[Frame] = []
        others: list[Frame] = []
        for table in tables:
            paths: tuple[list[str], list[str]] = ([], [])
            for path, file in self._before(table).files.items():
                day = file.get("partition.event_date")
                if self._dates is None or day is None or self._dates[0] <= day <= self._dates[1]:
                    paths[window_of(path) not in self._own].append(path)
            for found, frames, schema in ((paths[0], replaced, KEYS), (paths[1], others, KEYS.remove(3))):
                if found:
                    frames.append(self._engine.file_rows(f"{self._base}/{table}", found, schema))
        return TableKeys(replaced if len(self._own) > 1 else (), others)

    def registry(self, table: str) -> ColumnRegistry:
        """Return the columns of the table's schema: what a commit adds to a table it never loses again."""
        schema = self._before(table).schema_json
        fields = json.loads(schema)["fields"] if schema else []
        columns = {field["name"]: type_of_spark(field["type"]) for field in fields}
        return ColumnRegistry({name: t for name, t in columns.items() if name not in ENVELOPE | PARTITIONS})

    def write(self, table: str, rows: Frame, decode: Rows, plan: TablePlan) -> int:
        added = self._write_files(table, rows, decode, PARTITION_BY)
        self._commit(table, plan.arrow_schema(), added, self._own_files(table), PARTITION_BY)
        return sum(file.rows for file in added)

    def write_quarantine(self, outcasts: Sequence[Frame]) -> int:
        """Write rows that could not be decoded in place of the quarantine's own rows; return how many it is.

        Own rows that a compaction has merged with others are taken out of its files, which are written again.
        """
        merged = self._merged_files()
        rows, replaced = list(outcasts), self._own_files(QUARANTINE_TABLE)
        if merged:
            found = self._engine.file_rows(f"{self._base}/{QUARANTINE_TABLE}", merged, quarantine_schema())
            if self._own.intersection(row["window_id"] for row in found.counted("window_id")):
                rows.append(found.where(lambda columns: ~columns.one_of("window_id", self._own)))
                replaced += merged
        together = rows[0].together(rows[1:]) if rows else None
        added = [] if together is None else self._write_files(QUARANTINE_TABLE, together, as_they_are, ())
        self._commit(QUARANTINE_TABLE, quarantine_schema(), added, replaced, ())
        return sum(file.rows for file in added if window_of(file.path) in self._own)

    def remove_rest(self, written: Mapping[str, Collection[Partition]]) -> None:
        for table in sorted(self._read.keys() - written.keys() - {QUARANTINE_TABLE}):
            self._commit(table, pa.schema([]), [], self._own_files(table), PARTITION_BY)

    def _log(self, table: str) -> DeltaTableLog:
        return DeltaTableLog(self._location.below(table), self._job)

    def _version(self, table: str) -> TableVersion:
        return self._log(table).version(progress=self._progress, bounds=False)

    def _before(self, table: str) -> TableVersion:
        """Return the table's version that this run has read first; what it does is decided by that one alone."""
        if table not in self._read:
            self._read[table] = self._version(table)
        return self._read[table]

    def _own_files(self, table: str) -> list[str]:
        return [path for path in self._before(table).files if window_of(path) in self._own]

    def _merged_files(self) -> list[str]:
        return [path for path in self._before(QUARANTINE_TABLE).files if window_of(path) is None]

    def _write_files(self, table: str, rows: Frame, decode: Rows, partition_by: Sequence[str]) -> list[TableFile]:
        write = write_files(decode, self._location.below(table), partition_by)
        return files_of(rows.made(write, WRITTEN).collected())

    def _commit(
        self,
        table: str,
        schema: pa.Schema,
        added: Collection[TableFile],
        removed: Collection[str],
        partition_by: Collection[str],
    ) -> None:
        if not added and not removed:
            return
        version = self._log(table).commit(self._before(table), schema, added, removed, partition_by)
        log.info("%s: version %d has %d new files in place of %d.", table, version, len(added), len(removed))
