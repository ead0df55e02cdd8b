"""The ``event_log`` job: landed windows in, typed tables, quarantine and metrics out."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.privacy.field_rules import NO_RULES, NO_SUCH_FIELD, Coverage, FieldRules, unmet
from airflow_provider_sfstream.tables.decode.payload_formats import WITH_SCHEMA, Format, table_of_topic
from airflow_provider_sfstream.tables.delta.landed_windows import LandedWindow, read_windows
from airflow_provider_sfstream.tables.event_log.delta_tables import DeltaTables
from airflow_provider_sfstream.tables.event_log.field_survey import FoundFields, survey_fields
from airflow_provider_sfstream.tables.event_log.kept_rules import KeptRules
from airflow_provider_sfstream.tables.event_log.table_plans import (
    TableSources,
    check_columns,
    place_columns,
    read_schemas,
    sources_by_table,
)
from airflow_provider_sfstream.tables.event_log.tables import (
    QUARANTINE_TABLE,
    Dates,
    EventTables,
    Partition,
    find_tables,
)
from airflow_provider_sfstream.tables.rows.event_batches import (
    TablePlan,
    WindowReference,
    quarantine_rows,
    quarantine_schema,
    refused_rows,
    table_rows,
)
from airflow_provider_sfstream.tables.runner.engine import Engine, Frame

log = logging.getLogger(__name__)

NOTHING_KEPT = KeptRules()


@dataclass(frozen=True)
class EventLogOptions:
    """What the job is asked to do.

    With bounds, only events that count in ``[event_time_from, event_time_to)`` are written: an event counts at its
    event time, but not before its window's ``counts_from``, and not after it was received. Of ``own_windows``, which
    the run of that interval landed itself, late events are written too: those that count before the window's
    ``late_before``, because the run of their own interval had ended when Salesforce delivered them.

    ``job`` names this run in the tables' history and to another job that loses against it; by default it is the Spark
    application's id. ``verify_files`` compares landed files with their SHA-256 first. ``rules`` say which
    fields may not be stored as they come.
    """

    manifests: tuple[str, ...]
    output: str
    event_time_from: datetime | None = None
    event_time_to: datetime | None = None
    own_windows: tuple[str, ...] = ()
    metrics_file: str | None = None
    verify_files: bool = True
    job: str = ""
    rules: FieldRules = NO_RULES

    def partition_of(self, window: LandedWindow) -> str:
        """Return the window's partition.

        A part of a window has its own, so that it never replaces the window's. So has the part with late events, which
        another run of the same interval does not read.
        """
        if self.event_time_from is None or self.event_time_to is None:
            return window.window_id
        own = ".own" if window.window_id in self.own_windows else ""
        return (
            f"{window.window_id}.{self.event_time_from:%Y%m%dT%H%M%S.%fZ}-{self.event_time_to:%Y%m%dT%H%M%S.%fZ}{own}"
        )


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


def run(engine: Engine, options: EventLogOptions) -> EventLogMetrics:
    """Write the windows' events to their tables.

    Safe to repeat and to kill at any line: what it writes depends only on the windows and on rows of other windows.

    :raises ManifestError: if a manifest is missing or broken; nothing was written.
    :raises ConfigurationError: if landed files do not have the rows that their manifest counts, or the output has
        tables kept by other rules for fields; nothing was written.
    :raises PositionConflictError: if another job has written events of the same streams meanwhile. The
        tables are as that job and this one left them, each whole; running it again completes them.
    """
    started = time.monotonic()
    files = engine.files
    windows = read_windows(engine.landing, options.manifests)
    engine.prepare(windows)
    metrics = EventLogMetrics([window.window_id for window in windows], application_id=engine.application_id)
    if any(window.files for window in windows):
        base = files.url(options.output)
        names = find_tables(files, base)

        def tables(windows: Sequence[WindowReference], dates: Dates) -> EventTables:
            job = options.job or engine.application_id
            return DeltaTables(engine, base, names, windows, dates, job)

        kept = KeptRules.read(files, base)
        kept.check(options.rules)
        EventLogJob(engine, windows, options, metrics, kept).run(tables)
        metrics.check()
    metrics.seconds = round(time.monotonic() - started, 2)
    if options.metrics_file:
        files.replace_text(files.url(options.metrics_file), json.dumps(vars(metrics)))
    return metrics


class EventLogJob:
    """One run over windows that have rows."""

    def __init__(
        self,
        engine: Engine,
        windows: list[LandedWindow],
        options: EventLogOptions,
        metrics: EventLogMetrics,
        kept: KeptRules = NOTHING_KEPT,
    ) -> None:
        self._kept = kept
        self._coverages: list[Coverage] = []
        self._engine, self._options, self._metrics = engine, options, metrics
        self._windows = windows
        self._references = tuple(
            WindowReference(
                options.partition_of(w),
                w.org_id,
                w.topic,
                _microseconds(w.counts_from),
                _microseconds(w.late_before) if w.window_id in options.own_windows else None,
                w.is_timed,
                bool(options.rules),
            )
            for w in windows
        )
        self._schemas = read_schemas(engine.landing, windows)
        self._rows = engine.landed_rows(windows, verify=options.verify_files)

    def run(self, open_tables: Callable[[Sequence[WindowReference], Dates], EventTables]) -> None:
        """Write all tables.

        :param open_tables: returns them, for these windows and the event dates that their rows can have.
        """
        count = sum(window.event_count for window in self._windows)
        log.info("%d windows with %d events: reading them.", len(self._windows), count)
        present = self._survey()
        own_tables = tuple(table_of_topic(window.topic) for window in self._windows)
        found = FoundFields()
        if any(format_ not in WITH_SCHEMA for format_, _, _ in present):
            found = survey_fields(self._rows, own_tables)
        sources = sources_by_table(present, self._schemas, found, own_tables)
        tables = open_tables(self._references, self._dates(found))
        plans = {table: self._plan(tables, table, source) for table, source in sources.items()}
        if missing := unmet(self._options.rules, self._coverages) if plans else []:
            log.warning(NO_SUCH_FIELD, ", ".join(missing))
        self._kept.keep((*plans, QUARANTINE_TABLE), self._options.rules)
        unusable = {id_ for format_, id_, _ in present if format_ in WITH_SCHEMA}.difference(self._schemas.usable())

        def of_table(table: str, rows: Frame) -> Frame:
            return rows.where(sources[table].chosen) if len(sources) > 1 or unusable else rows

        def unreadable(rows: Frame) -> list[Frame]:
            found = [self._undecodable(of_table(table, rows), plan) for table, plan in plans.items()]
            return [*found, *self._refused(rows, unusable)]

        duplicates = self._engine.find_duplicates(self._rows, tables.keys(sources), self._references, unreadable)
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

    def _survey(self) -> set[tuple[Format, str | None, int]]:
        """Return format, schema id and window of the landed rows, after comparing their number with the manifests."""
        found: Counter[int] = Counter()
        present: set[tuple[Format, str | None, int]] = set()
        for row in self._rows.counted("format", "schema_id", "window"):
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

    def _plan(self, tables: EventTables, table: str, sources: TableSources) -> TablePlan:
        rules, registry = self._options.rules, tables.registry(table)
        if rules:
            self._coverages.append(check_columns(table, sources, registry, self._kept.of(table), rules))
        columns, schemas, fields = place_columns(table, sources, registry, rules)
        return TablePlan(
            columns,
            schemas,
            fields,
            self._references,
            _microseconds(self._options.event_time_from),
            _microseconds(self._options.event_time_to),
            rules,
            table,
        )

    def _write_table(
        self, tables: EventTables, table: str, plan: TablePlan, rows: Frame
    ) -> tuple[set[Partition], list[Frame]]:
        """Write the events of one table; return the partitions that it wrote, and the rows that are no events."""
        counted = self._engine.tally()
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

    def _undecodable(self, rows: Frame, plan: TablePlan) -> Frame:
        """Return those of a table's landed rows that cannot be decoded, as rows of the quarantine."""
        return rows.made(quarantine_rows(plan), quarantine_schema())

    def _refused(self, rows: Frame, unusable: set[str | None]) -> list[Frame]:
        """Return the landed rows whose schema cannot be used, as rows of the quarantine; none if no schema is so."""
        if not unusable:
            return []
        usable = self._schemas.usable()
        refused = rows.where(lambda c: c.one_of("format", WITH_SCHEMA) & ~c.one_of("schema_id", usable))
        return [refused.made(refused_rows(self._schemas.refused, self._references), quarantine_schema())]


def _microseconds(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
