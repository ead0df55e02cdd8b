"""The ``event_log`` job: landed windows in, typed tables, quarantine and metrics out."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.privacy.field_rules import NO_SUCH_FIELD, Coverage, unmet
from airflow_provider_sfstream.tables.decode.payload_formats import WITH_SCHEMA, Format, table_of_topic
from airflow_provider_sfstream.tables.delta.landed_windows import LandedWindow, read_windows
from airflow_provider_sfstream.tables.event_log.config import EventLogConfig, EventLogMetrics
from airflow_provider_sfstream.tables.event_log.delta_tables import DeltaTables
from airflow_provider_sfstream.tables.event_log.kept_rules import KeptRules
from airflow_provider_sfstream.tables.event_log.table_plans import (
    FoundFields,
    TableSources,
    check_columns,
    place_columns,
    read_schemas,
    sources_by_table,
    survey_fields,
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


def run(engine: Engine, config: EventLogConfig) -> EventLogMetrics:
    """Write the windows' events to their tables.

    Safe to repeat and to kill at any line: what it writes depends only on the windows and on rows of other windows.

    :raises ManifestError: if a manifest is missing or broken; nothing was written.
    :raises ConfigurationError: if there is no manifest, landed files do not have the rows that their manifest counts,
        or the output has tables kept by other rules for fields; nothing was written.
    :raises PositionConflictError: if another job has written events of the same streams meanwhile. The
        tables are as that job and this one left them, each whole; running it again completes them.
    """
    started = time.monotonic()
    if not config.manifests:
        raise ConfigurationError("manifests is empty: there is no window to read. Nothing was written.")
    files = engine.files
    windows = read_windows(engine.landing, config.manifests)
    engine.prepare(windows)
    metrics = EventLogMetrics([window.window_id for window in windows], application_id=engine.application_id)
    if any(window.files for window in windows):
        base = files.url(config.output_url)
        names = find_tables(files, base)

        def tables(windows: Sequence[WindowReference], dates: Dates) -> EventTables:
            job = config.job or engine.application_id
            return DeltaTables(engine, base, names, windows, dates, job)

        kept = KeptRules.read(files, base)
        kept.check(config.rules)
        EventLogJob(engine, windows, config, metrics, kept).run(tables)
        metrics.check()
    metrics.seconds = round(time.monotonic() - started, 2)
    if config.metrics_url:
        files.replace_text(files.url(config.metrics_url), json.dumps(vars(metrics)))
    return metrics


class EventLogJob:
    """One run over windows that have rows."""

    def __init__(
        self,
        engine: Engine,
        windows: list[LandedWindow],
        config: EventLogConfig,
        metrics: EventLogMetrics,
        kept: KeptRules = NOTHING_KEPT,
    ) -> None:
        self._kept = kept
        self._coverages: list[Coverage] = []
        self._engine, self._config, self._metrics = engine, config, metrics
        self._windows = windows
        self._references = tuple(
            WindowReference(
                config.partition_of(w),
                w.org_id,
                w.topic,
                _microseconds(w.counts_from),
                _microseconds(w.late_before) if w.window_id in config.own_windows else None,
                w.is_timed,
                bool(config.rules),
            )
            for w in windows
        )
        self._schemas = read_schemas(engine.landing, windows)
        self._rows = engine.landed_rows(windows, verify=config.verify_files)

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
        if missing := unmet(self._config.rules, self._coverages) if plans else []:
            log.warning(NO_SUCH_FIELD, ", ".join(missing))
        self._kept.keep((*plans, QUARANTINE_TABLE), self._config.rules)
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
        rules, registry = self._config.rules, tables.registry(table)
        if rules:
            self._coverages.append(check_columns(table, sources, registry, self._kept.of(table), rules))
        columns, schemas, fields = place_columns(table, sources, registry, rules)
        return TablePlan(
            columns,
            schemas,
            fields,
            self._references,
            _microseconds(self._config.event_time_from),
            _microseconds(self._config.event_time_to),
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
