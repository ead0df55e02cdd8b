"""Event log tables as Delta tables: tasks decode landed rows in one pass and write files, the driver commits them.

``{base}/{event type}/event_date=.../{window partition}/part-*.parquet``: a file's folder identifies its window. A run
replaces the partitions of its own windows, as a whole, also in the quarantine: it changes a table from the version that
it has read, in one commit, and only if no other job has written events of the same streams since.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.tables.decode.self_described import WITH_SCHEMA
from airflow_provider_sfstream.tables.delta.column_registry import ColumnRegistry, type_of_spark
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog, TableFile, TableVersion
from airflow_provider_sfstream.tables.delta.table_files import WRITTEN, PartitionFiles, window_of
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.event_log.config import EventLogMetrics
from airflow_provider_sfstream.tables.event_log.tables import KEYS, PARTITION_BY, Dates
from airflow_provider_sfstream.tables.job_config import BATCH_BYTES
from airflow_provider_sfstream.tables.quarantine import QUARANTINE_TABLE, Quarantine
from airflow_provider_sfstream.tables.rows.arrow_rows import NO_PLACES, Numbers, Places, places_of
from airflow_provider_sfstream.tables.rows.event_batches import (
    ENVELOPE,
    PARTITIONS,
    Batches,
    DecodedRows,
    Rows,
    TablePlan,
    WindowReference,
    decode_rows,
    refused_rows,
)
from airflow_provider_sfstream.tables.rows.shuffle import Spool, gathered, packed, small_first, unpacked
from airflow_provider_sfstream.tables.runner.engine import Engine, Frame, each_table

if TYPE_CHECKING:
    from airflow_provider_sfstream.tables.rows.change_batches import ChangePlan

log = logging.getLogger(__name__)

LINES = pa.schema([("table", pa.string()), *WRITTEN, ("counts", pa.map_(pa.string(), pa.int64()))])
"""Result of :func:`write_events`: a line for each file, and one without a file that has counts."""
_OUTSIDE = "outside_interval"
"""Key of ``counts``: events that do not count in the interval. Each other key is a decoder, for the events it read."""
_DECODED_ROWS = 8_192
"""Most landed rows to decode at a time."""
_GATHERED = 2
"""Batches of landed rows that are gathered if they are of several tables: few rows of a table have a high overhead."""
_OPEN_TABLES = 16
"""Tables whose files are written at the same time. Rows of more tables are spooled, so that each has few files."""


@dataclass(frozen=True)
class EventPlan:
    """Decoding plan of one run for landed rows.

    :param tables: plan of each table, by name.
    :param refused: why a schema cannot be used, by schema ID.
    :param own_tables: by number of the window, the table of its self-described events.
    :param duplicates: landed rows that are not written.
    """

    tables: Mapping[str, TablePlan]
    refused: Mapping[str, str]
    windows: tuple[WindowReference, ...]
    own_tables: tuple[str, ...]
    batch_bytes: int = BATCH_BYTES
    duplicates: Places = field(default=NO_PLACES)

    def decode(self, batches: Batches) -> Iterator[tuple[str, DecodedRows]]:
        """Yield decoded rows with the name of their table; for rows whose schema cannot be used, the quarantine's."""
        rows, tables = self._without_duplicates(batches), list(self.tables.items())
        for number, landed in by_table(rows, self.tables, self.batch_bytes, self.own_tables):
            if number == len(tables):
                yield QUARANTINE_TABLE, DecodedRows(quarantined=[refused_rows(landed, self.refused, self.windows)])
            else:
                table, plan = tables[number]
                yield table, decode_rows(landed, plan)

    def _without_duplicates(self, batches: Batches) -> Batches:
        for batch in batches:
            mask = ~self.duplicates.include(places_of(batch)) if len(self.duplicates) else None
            yield batch if mask is None or mask.all() else batch.filter(pa.array(mask))


def by_table(
    batches: Batches, plans: Mapping[str, TablePlan | ChangePlan], batch_bytes: int, own_tables: Sequence[str] = ()
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield landed rows, each batch with the number of its table among ``plans``. Rows whose schema cannot be used have
    the number after the last table's.

    :param own_tables: by number of the window, the table of its self-described events.
    """
    pairs = [(id_, number) for number, plan in enumerate(plans.values()) for id_ in plan.schemas]
    schema_ids, tables = pa.array([id_ for id_, _ in pairs], pa.string()), pa.array([n for _, n in pairs], pa.int32())
    own = pc.index_in(pa.array(own_tables, pa.string()), value_set=pa.array(list(plans), pa.string()))
    columns = [*(len(plan.columns) for plan in plans.values()), 0]

    def table_of(batch: pa.RecordBatch) -> Numbers:
        numbers = tables.take(pc.index_in(batch.column("schema_id"), value_set=schema_ids))
        if own_tables:
            has_schema = pc.is_in(batch.column("format"), value_set=pa.array(WITH_SCHEMA))
            numbers = pc.if_else(has_schema, numbers, own.take(batch.column("window")))
        return pc.fill_null(numbers, len(plans)).to_numpy()  # type: ignore[no-any-return]

    for table, rows in gathered(batches, _GATHERED * batch_bytes if len(plans) > 1 else 0, table_of):
        for landed in decoded_at_once(rows, columns[table], batch_bytes):
            yield table, landed


def decoded_at_once(rows: pa.RecordBatch, columns: int, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield landed rows in parts whose values in all columns of their table take about ``batch_bytes`` at most.

    A decoder holds a payload up to four times. A value takes eight bytes, also a null one, and those of its text.

    :param columns: number of the table's columns.
    """
    row_bytes = 4 * rows["payload"].nbytes / max(len(rows), 1) + 8 * columns
    at_once = max(1, min(_DECODED_ROWS, int(batch_bytes / max(row_bytes, 1))))
    for start in range(0, len(rows), at_once):
        yield rows.slice(start, at_once)


def write_events(plan: EventPlan, location: TableLocation) -> Rows:
    """Return a function for ``mapInArrow`` that writes landed rows to files of their tables, and yields :data:`LINES`.

    The files of a failed task are not returned, so they are never committed.
    """

    def write(batches: Batches) -> Batches:
        counts: Counter[str] = Counter()

        def write_table(table: str) -> list[tuple[str, TableFile]]:
            with PartitionFiles(location) as files_of_table:
                for rows in map(unpacked, spool.read(table)):
                    for batch in rows.to_batches():
                        files_of_table.append(table, batch, PARTITION_BY)
                return files_of_table.close()

        with PartitionFiles(location) as files, Spool[str]() as spool:
            for table, decoded in plan.decode(batches):
                for rows in decoded.rows:
                    if len(plan.tables) > _OPEN_TABLES:
                        spool.add(table, packed(rows))
                    else:
                        files.append(table, rows, PARTITION_BY)
                for rows in decoded.quarantined:
                    files.append(QUARANTINE_TABLE, rows, ())
                counts[_OUTSIDE] += decoded.outside_interval
                counts.update(decoded.decoders)
            closed = chain(files.close(), *small_first(write_table, spool.keys, spool.size))
            lines: list[dict[str, Any]] = [{"table": table, **vars(file)} for table, file in closed]
        yield pa.RecordBatch.from_pylist([*lines, {"counts": dict(counts)}], schema=LINES)

    return write


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
        counts: Counter[str] = Counter()
        for line in lines:
            if line["path"] is not None:
                files[line["table"]].append(TableFile(**{name: line[name] for name in WRITTEN.names}))
            counts.update(line["counts"] or {})
        quarantined = files.pop(QUARANTINE_TABLE)
        metrics.outside_interval = counts.pop(_OUTSIDE, 0)
        metrics.decoders = dict(counts)
        metrics.quarantined = sum(file.rows for file in quarantined)
        metrics.tables |= {table: sum(file.rows for file in added) for table, added in files.items()}
        metrics.rows_written = sum(metrics.tables.values())

        def commit(table: str) -> None:
            before, added = self._before(table), files.get(table, [])
            removed = [path for path in before.files if window_of(path) in self._own]
            if not added and not removed:
                return
            schema = plan.tables[table].arrow_schema() if table in files else pa.schema([])
            version = self._log(table).commit(before, schema, added, removed, PARTITION_BY)
            count = sum(file.rows for file in added)
            message = "%s: committed version %d: %d files with %d rows in place of %d files."
            log.info(message, table, version, len(added), count, len(removed))

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
