"""Event log tables as Delta tables: tasks write files from Arrow columns, the driver commits them.

``{base}/{event type}/event_date=.../{window partition}/part-*.parquet``: a file's folder identifies its window. A run
replaces the partitions of its own windows, as a whole, also in the quarantine: it changes a table from the version that
it has read, in one commit, and only if no other job has written events of the same streams since.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable

import pyarrow as pa

from airflow_provider_sfstream.tables.delta.column_registry import ColumnRegistry, type_of_spark
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog, TableFile, TableVersion
from airflow_provider_sfstream.tables.delta.table_files import WRITTEN, window_of
from airflow_provider_sfstream.tables.event_log.config import EventLogMetrics
from airflow_provider_sfstream.tables.event_log.decoding import DECODER, LINES, OUTSIDE, EventPlan, write_events
from airflow_provider_sfstream.tables.event_log.tables import KEYS, PARTITION_BY, Dates
from airflow_provider_sfstream.tables.quarantine import QUARANTINE_TABLE, Quarantine
from airflow_provider_sfstream.tables.rows.event_batches import ENVELOPE, PARTITIONS, WindowReference
from airflow_provider_sfstream.tables.runner.engine import Engine, Frame, each_table

log = logging.getLogger(__name__)


class DeltaTables:
    """Tables below one folder, for one run. Its *own* rows are those of the window partitions that it writes.

    :param base: the folder, as the engine names it.
    :param names: names of the tables that may have own rows; a table of them may be missing.
    :param job: name of the run in the history of the tables.
    """

    def __init__(
        self, engine: Engine, base: str, names: Iterable[str], windows: Iterable[WindowReference], job: str
    ) -> None:
        self._engine, self._base, self._job = engine, base, job
        self._location = engine.files.table_location(base)
        self._own = {window.partition for window in windows}
        self._progress = sorted({f"sfstream:{window.org_id}|{window.topic}" for window in windows})
        self._quarantine = Quarantine(engine, base, job, self._progress)
        self._read = each_table(self._version, names)

    def registry(self, table: str) -> ColumnRegistry:
        """Return the columns of the table's schema: a commit adds columns and never removes one."""
        schema = self._before(table).schema_json
        fields = json.loads(schema)["fields"] if schema else []
        columns = {field["name"]: type_of_spark(field["type"]) for field in fields}
        return ColumnRegistry({name: t for name, t in columns.items() if name not in ENVELOPE | PARTITIONS})

    def keys(self, tables: Collection[str], dates: Dates) -> tuple[list[Frame], int]:
        """Return the keys of the tables' rows, and the maximum number of them.

        Rows that the run replaces have their ``window_id``. If the run has one partition they are omitted: they cannot
        affect which rows are duplicates. For all other rows the window is irrelevant, even if it is one of the run:
        then a compaction has merged them with others, so they stay.

        :param dates: event dates that rows of the run can have.
        """
        paths_by_owner: tuple[list[str], list[str]] = ([], [])  # of other runs, of this run
        count = 0
        for table in tables:
            for path, file in self._before(table).files.items():
                day = file.get("partition.event_date")
                is_own = window_of(path) in self._own
                is_relevant = dates is None or day is None or dates[0] <= day <= dates[1]
                if is_relevant and not (is_own and len(self._own) == 1):
                    paths_by_owner[is_own].append(f"{table}/{path}")
                    count += file["num_records"] or 0
        schemas = (KEYS.remove(3), KEYS)
        frames = [
            self._engine.file_rows(self._base, paths, schema)
            for paths, schema in zip(paths_by_owner, schemas, strict=True)
            if paths
        ]
        return frames, count

    def write(self, rows: Frame, plan: EventPlan, metrics: EventLogMetrics) -> None:
        """Write landed rows in place of the run's own rows of all tables, and count them in ``metrics``.

        :raises PositionConflictError: if another job has written events of the same streams meanwhile.
        """
        lines = rows.map_batches(write_events(plan, self._location), LINES).collect()
        files: dict[str, list[TableFile]] = {table: [] for table in (*sorted(plan.tables), QUARANTINE_TABLE)}
        for line in lines:
            if line["path"] is not None:
                files[line["table"]].append(TableFile(**{name: line[name] for name in WRITTEN.names}))
            for name, count in (line["counts"] or {}).items():
                if name == OUTSIDE:
                    metrics.outside_interval += count
                else:
                    decoder = name.removeprefix(DECODER)
                    metrics.decoders[decoder] = metrics.decoders.get(decoder, 0) + count
        quarantined = files.pop(QUARANTINE_TABLE)
        metrics.quarantined = sum(file.rows for file in quarantined)
        metrics.tables |= {table: sum(file.rows for file in added) for table, added in files.items()}
        metrics.rows_written = sum(metrics.tables.values())

        def commit(table: str) -> None:
            schema = plan.tables[table].arrow_schema() if table in files else pa.schema([])
            self._commit(table, schema, files.get(table, ()))

        each_table(commit, [*files, *sorted(self._read.keys() - files.keys())])
        self._quarantine.replace(self._own, quarantined)

    def _log(self, table: str) -> DeltaTableLog:
        return DeltaTableLog(self._location.below(table), self._job)

    def _version(self, table: str) -> TableVersion:
        return self._log(table).version(progress=self._progress)

    def _before(self, table: str) -> TableVersion:
        """Return the table's version that this run read first; the run's changes are based on that version alone."""
        if table not in self._read:
            self._read[table] = self._version(table)
        return self._read[table]

    def _commit(self, table: str, schema: pa.Schema, added: Collection[TableFile]) -> None:
        before = self._before(table)
        removed = [path for path in before.files if window_of(path) in self._own]
        if not added and not removed:
            return
        version = self._log(table).commit(before, schema, added, removed, PARTITION_BY)
        rows = sum(file.rows for file in added)
        message = "%s: committed version %d: %d files with %d rows in place of %d files."
        log.info(message, table, version, len(added), rows, len(removed))
