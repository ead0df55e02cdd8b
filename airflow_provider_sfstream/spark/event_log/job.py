"""The ``event_log`` job: landed windows in, typed tables, quarantine and metrics out."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.spark.decode.avro_decoding import DecoderChoice
from airflow_provider_sfstream.spark.decode.payload_formats import WITH_SCHEMA, Format, table_of_topic
from airflow_provider_sfstream.spark.event_log.deduplication import Duplicates, find_duplicates, places_of
from airflow_provider_sfstream.spark.event_log.field_survey import FoundFields, survey_fields
from airflow_provider_sfstream.spark.event_log.formats import find_tables, open_tables
from airflow_provider_sfstream.spark.event_log.table_plans import (
    TableSources,
    place_columns,
    read_schemas,
    sources_by_table,
)
from airflow_provider_sfstream.spark.event_log.tables import (
    QUARANTINE_TABLE,
    Dates,
    EventTables,
    Partition,
    TableFormat,
)
from airflow_provider_sfstream.spark.rows.event_batches import (
    TablePlan,
    WindowReference,
    quarantine_rows,
    quarantine_schema,
    refused_rows,
    table_rows,
)
from airflow_provider_sfstream.spark.storage.counting import CounterParam
from airflow_provider_sfstream.spark.storage.frames import union
from airflow_provider_sfstream.spark.storage.hadoop_files import HadoopFiles
from airflow_provider_sfstream.spark.storage.landed_windows import LandedWindow, read_rows, read_windows
from airflow_provider_sfstream.spark.storage.settings import configure

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EventLogOptions:
    """What the job is asked to do.

    With bounds, only events that count in ``[event_time_from, event_time_to)`` are written: an event counts at its
    event time, but not before its window's ``covered_from``, and not after it was received. Of ``whole_windows``, which
    the run of that interval landed itself, all events are written: some may have come late for theirs.

    ``table_format`` is ``"delta"``, or ``"parquet"`` for folders of files; all tables below one output have one format.
    ``job`` names this run in the tables' history and to another job that loses against it; by default it is the Spark
    application's id. ``verify_files`` compares landed files with their SHA-256 first.
    """

    manifests: tuple[str, ...]
    output: str
    decoder: DecoderChoice = "auto"
    table_format: TableFormat = "delta"
    event_time_from: datetime | None = None
    event_time_to: datetime | None = None
    whole_windows: tuple[str, ...] = ()
    metrics_file: str | None = None
    verify_files: bool = True
    job: str = ""

    def partition_of(self, window: LandedWindow) -> str:
        """Return the window's partition. A part of a window has its own, so that it never replaces the whole."""
        if self.event_time_from is None or self.event_time_to is None or window.window_id in self.whole_windows:
            return window.window_id
        return f"{window.window_id}.{self.event_time_from:%Y%m%dT%H%M%S.%fZ}-{self.event_time_to:%Y%m%dT%H%M%S.%fZ}"


@dataclass
class EventLogMetrics:
    """What became of the landed rows: every one was written, or is counted under the reason why not."""

    windows: list[str]
    rows_in: int = 0
    rows_written: int = 0
    duplicates: int = 0
    quarantined: int = 0
    outside_interval: int = 0
    tables: dict[str, int] = field(default_factory=dict)
    decoders: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    application_id: str = ""

    def check(self) -> None:
        """Compare what was read with what was written.

        :raises RuntimeError: if they do not add up.
        """
        accounted = self.rows_written + self.duplicates + self.quarantined + self.outside_interval
        if accounted != self.rows_in or self.rows_written != sum(self.tables.values()):
            raise RuntimeError(
                f"Rows do not add up: {vars(self)}. The landed files are untouched; run the job again, and report this."
            )


def run(spark: Any, options: EventLogOptions) -> EventLogMetrics:
    """Write the windows' events to their tables.

    Safe to repeat and to kill at any line: what it writes depends only on the windows and on rows of other windows.

    :param spark: a ``SparkSession``.
    :raises ManifestError: if a manifest is missing or broken; nothing was written.
    :raises ConfigurationError: if landed files do not have the rows that their manifest counts, or the output has
        tables of another format; nothing was written.
    :raises PositionConflictError: if another job has written events of the same streams to a Delta table meanwhile. The
        tables are as that job and this one left them, each whole; running it again completes them.
    """
    started = time.monotonic()
    configure(spark, {})
    files = HadoopFiles(spark)
    windows = read_windows(files, options.manifests)
    metrics = EventLogMetrics([window.window_id for window in windows])
    metrics.application_id = spark.sparkContext.applicationId
    if any(window.files for window in windows):
        _Job(spark, files, windows, options, metrics).run()
        metrics.check()
    metrics.seconds = round(time.monotonic() - started, 2)
    if options.metrics_file:
        files.replace_text(files.url(options.metrics_file), json.dumps(vars(metrics)))
    return metrics


class _Job:
    """One run over windows that have rows."""

    def __init__(
        self,
        spark: Any,
        files: HadoopFiles,
        windows: list[LandedWindow],
        options: EventLogOptions,
        metrics: EventLogMetrics,
    ) -> None:
        self._spark, self._options, self._metrics = spark, options, metrics
        self._windows = windows
        self._references = tuple(
            WindowReference(
                options.partition_of(w),
                w.org_id,
                w.topic,
                _microseconds(w.covered_from),
                w.window_id in options.whole_windows,
            )
            for w in windows
        )
        self._files, self._base = files, files.url(options.output)
        self._names = find_tables(files, self._base, options.table_format)
        self._schemas = read_schemas(files, windows)
        self._rows = read_rows(spark, windows, verify=options.verify_files)

    def run(self) -> None:
        count = sum(window.event_count for window in self._windows)
        log.info("%d windows with %d events: reading them.", len(self._windows), count)
        present = self._survey()
        own_tables = tuple(table_of_topic(window.topic) for window in self._windows)
        found = FoundFields()
        if any(format_ not in WITH_SCHEMA for format_, _, _ in present):
            found = survey_fields(self._rows, own_tables)
        sources = sources_by_table(present, self._schemas, found, own_tables)
        tables = self._open_tables(self._dates(found))
        plans = {table: self._plan(tables, table, source) for table, source in sources.items()}
        unusable = {id_ for format_, id_, _ in present if format_ in WITH_SCHEMA}.difference(self._schemas.usable())

        def of_table(table: str, rows: Any) -> Any:
            return sources[table].choose(rows) if len(sources) > 1 or unusable else rows

        def unreadable(rows: Any) -> list[Any]:
            found = [self._undecodable(of_table(table, rows), plan) for table, plan in plans.items()]
            return [*found, *self._refused(rows, unusable)]

        duplicates = self._find_duplicates(tables.keys(sources), unreadable)
        self._metrics.rows_in = sum(window.event_count for window in self._windows)
        self._metrics.duplicates = duplicates.count
        rows = duplicates.remove_from(self._rows)
        written: dict[str, set[Partition]] = {}
        outcasts = self._refused(rows, unusable)
        for table, plan in plans.items():
            written[table], undecodable = self._write_table(tables, table, plan, of_table(table, rows))
            outcasts += undecodable
        self._metrics.quarantined = tables.write_quarantine(outcasts)
        if self._metrics.quarantined:
            log.warning("%d rows could not be decoded; they are in %s.", self._metrics.quarantined, QUARANTINE_TABLE)
        tables.remove_rest(written)

    def _open_tables(self, dates: Dates) -> EventTables:
        options = self._options
        job = options.job or self._spark.sparkContext.applicationId
        return open_tables(
            self._spark, self._files, self._base, self._names, options.table_format, self._references, dates, job
        )

    def _survey(self) -> set[tuple[Format, str | None, int]]:
        """Return format, schema id and window of the landed rows, after comparing their number with the manifests."""
        found: Counter[int] = Counter()
        present: set[tuple[Format, str | None, int]] = set()
        for row in self._rows.groupBy("format", "schema_id", "window").count().collect():
            found[row["window"]] += row["count"]
            present.add((row["format"], row["schema_id"], row["window"]))
        for number, window in enumerate(self._windows):
            if found[number] != window.event_count:
                raise ConfigurationError(
                    f"Window {window.window_id} has {found[number]} rows in its files, its manifest counts "
                    f"{window.event_count}. Its files were changed after landing. Nothing was written."
                )
        return present

    def _dates(self, own: FoundFields) -> Dates:
        """Return the event dates that these windows can touch; ``None``: any."""
        spans = [window.event_dates() for window in self._windows if window.files]
        known = [span for span in spans if span is not None]
        if len(known) < len(spans) or own.some_tell_no_time or not self._schemas.all_tell_time():
            return None
        return min(first for first, _ in known), max(last for _, last in known)

    def _find_duplicates(self, keys: Any | None, unreadable: Callable[[Any], list[Any]]) -> Duplicates:
        """Find the rows that must not be written, so that of each event one stays that can be read, if any can.

        :param keys: of rows that the tables have already.
        :param unreadable: returns those of some landed rows that cannot be, as rows of the quarantine.
        """
        known: Any | None = None
        while True:
            duplicates = find_duplicates(self._rows, keys, self._references, known)
            chosen = duplicates.chosen(self._rows)
            if chosen is None:
                return duplicates
            found = union(places_of(rows, self._references) for rows in unreadable(chosen))
            found = (found if known is None else found.join(known, "place", "left_anti")).persist()
            if found.isEmpty():
                return duplicates
            known = found if known is None else known.unionByName(found)

    def _plan(self, tables: EventTables, table: str, sources: TableSources) -> TablePlan:
        columns, schemas, fields = place_columns(table, sources, tables.registry(table))
        return TablePlan(
            columns,
            schemas,
            fields,
            self._references,
            self._options.decoder,
            _microseconds(self._options.event_time_from),
            _microseconds(self._options.event_time_to),
        )

    def _write_table(
        self, tables: EventTables, table: str, plan: TablePlan, rows: Any
    ) -> tuple[set[Partition], list[Any]]:
        """Write the events of one table; return the partitions that it wrote, and the rows that are no events."""
        counted = self._spark.sparkContext.accumulator(Counter(), CounterParam())
        written = tables.write(table, rows, table_rows(plan, counted.add), plan)
        self._count(table, counted.value, written)
        outcasts = [self._undecodable(rows, plan)] if any(key[0] == "undecodable" for key in counted.value) else []
        keys = [key for key in counted.value if key[0] == "written"]
        log.info("%s: %d rows of %d windows are written.", table, written, len({window for _, window, _ in keys}))
        return {(day, self._references[window].partition) for _, window, day in keys}, outcasts

    def _count(self, table: str, counted: Counter[Any], written: int) -> None:
        metrics = self._metrics
        metrics.rows_written += written
        metrics.tables[table] = sum(count for key, count in counted.items() if key[0] == "written")
        metrics.outside_interval += sum(count for key, count in counted.items() if key[0] == "outside_interval")
        for key, count in counted.items():
            if key[0] == "decoder":
                metrics.decoders[key[1]] = metrics.decoders.get(key[1], 0) + count

    def _undecodable(self, rows: Any, plan: TablePlan) -> Any:
        """Return those of a table's landed rows that cannot be decoded, as rows of the quarantine."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return rows.mapInArrow(quarantine_rows(plan), from_arrow_schema(quarantine_schema()))

    def _refused(self, rows: Any, unusable: set[str | None]) -> list[Any]:
        """Return the landed rows whose schema cannot be used, as rows of the quarantine; none if no schema is so."""
        from pyspark.sql.pandas.types import from_arrow_schema

        if not unusable:
            return []
        without = rows.schema_id.isNull() | ~rows.schema_id.isin(sorted(self._schemas.usable()))
        refused = rows.where(rows.format.isin(list(WITH_SCHEMA)) & without)
        refuse = refused_rows(self._schemas.refused, self._references)
        return [refused.mapInArrow(refuse, from_arrow_schema(quarantine_schema()))]


def _microseconds(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
