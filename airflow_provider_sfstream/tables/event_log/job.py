"""The ``event_log`` job: landed windows in, typed tables, quarantine and metrics out; or the same rows in memory."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.privacy.field_rules import NO_RULES, NO_SUCH_FIELD, Coverage, unmet
from airflow_provider_sfstream.tables.decode.self_described import WITH_SCHEMA, Format, table_of_topic
from airflow_provider_sfstream.tables.delta.column_registry import ColumnRegistry
from airflow_provider_sfstream.tables.delta.landed_windows import event_dates, load_windows
from airflow_provider_sfstream.tables.event_log.config import EventLogConfig, EventLogMetrics
from airflow_provider_sfstream.tables.event_log.delta_tables import DeltaTables, EventPlan
from airflow_provider_sfstream.tables.event_log.duplicates import find_duplicates
from airflow_provider_sfstream.tables.event_log.table_plans import (
    FoundFields,
    TableSources,
    check_columns,
    place_columns,
    read_schemas,
    sources_by_table,
    survey_fields,
)
from airflow_provider_sfstream.tables.event_log.tables import Dates, StoredRules, find_tables
from airflow_provider_sfstream.tables.quarantine import QUARANTINE_TABLE
from airflow_provider_sfstream.tables.rows.event_batches import (
    Batches,
    DecodedRows,
    TablePlan,
    WindowReference,
    quarantine_schema,
)
from airflow_provider_sfstream.tables.runner.engine import Engine

if TYPE_CHECKING:
    from airflow_provider_sfstream.tables.runner.embedded import EmbeddedEngine

log = logging.getLogger(__name__)


def run(engine: Engine, config: EventLogConfig) -> EventLogMetrics:
    """Write the windows' events to their tables.

    Safe to repeat and to kill at any line: the output depends only on the windows and on rows of other windows.

    :raises ManifestError: if a manifest is missing or invalid; nothing was written.
    :raises ConfigurationError: if there is no manifest, the number of landed rows differs from the manifest, or the
        output has tables with other field protection rules; nothing was written.
    :raises PositionConflictError: if another job has written events of the same streams meanwhile. Each table has a
        whole commit of that job or of this one; running this job again completes them.
    """
    started = time.monotonic()
    if not config.manifests:
        raise ConfigurationError("manifests is empty: there is no window to read. Nothing was written.")
    files = engine.files
    manifests = load_windows(engine.landing, config.manifests)
    event_counts = [manifest.window.event_count for manifest in manifests]
    engine.prepare(event_counts)
    window_ids = [manifest.window.window_id for manifest in manifests]
    metrics = EventLogMetrics(window_ids, application_id=engine.application_id)
    if any(event_counts):
        base = files.url(config.output_url)
        stored_rules = StoredRules(files, base)
        stored_rules.check(config.rules)
        job = EventLogJob(engine, manifests, config, stored_rules)
        tables = DeltaTables(engine, base, job.tables(base), job.references, config.job or engine.application_id)
        plan = job.plan(tables)
        stored_rules.keep((*plan.tables, QUARANTINE_TABLE), config.rules)
        metrics.rows_in = sum(event_counts)
        metrics.duplicates = len(plan.duplicates)
        tables.write(job.rows, plan, metrics)
        if metrics.quarantined:
            log.warning("%d rows could not be decoded; they were written to %s.", metrics.quarantined, QUARANTINE_TABLE)
        metrics.check()
    metrics.seconds = round(time.monotonic() - started, 2)
    if config.metrics_url:
        files.replace_text(files.url(config.metrics_url), config.metrics_json(metrics))
    return metrics


class EventLogJob:
    """Run over windows that have rows: their contents, and how they are decoded.

    :param stored_rules: rules of the tables; ``None`` if the rows are returned instead of written. Then no partition
        is replaced, so the partition of a window is its ID.
    """

    def __init__(
        self,
        engine: Engine,
        manifests: Sequence[Manifest],
        config: EventLogConfig,
        stored_rules: StoredRules | None = None,
    ) -> None:
        self._engine, self._manifests, self._config, self._stored_rules = engine, manifests, config, stored_rules
        self._coverages: list[Coverage] = []
        self.references = tuple(self._reference(manifest) for manifest in manifests)
        self._schemas = read_schemas(engine.landing, manifests)
        self._own_tables = tuple(table_of_topic(manifest.stream.topic) for manifest in manifests)
        self.rows = engine.landed_rows(manifests, verify=config.verify_files)

    def tables(self, base: str) -> set[str]:
        """Return the names of the tables below a folder that may have rows of these windows.

        The schemas of a window never change, so they name its tables. If one cannot be read, each table is a candidate:
        an earlier run may have read it.
        """
        if self._schemas.refused:
            return set(find_tables(self._engine.files, base))
        self_described = (manifest for manifest in self._manifests if manifest.payload_encoding != "avro")
        return {*self._schemas.tables, *(table_of_topic(manifest.stream.topic) for manifest in self_described)}

    def plan(self, stored: DeltaTables | None = None) -> EventPlan:
        """Return the decoding plan of the rows, with the duplicates among them.

        :param stored: existing tables that the rows are for; ``None``: there are none yet.
        """
        count = sum(manifest.window.event_count for manifest in self._manifests)
        log.info("Reading %d windows with %d events.", len(self._manifests), count)
        present = self._survey()
        is_described = all(format_ in WITH_SCHEMA for format_, _, _ in present)
        found = () if is_described else survey_fields(self.rows, self._own_tables)
        sources = sources_by_table(present, self._schemas, found, self._own_tables)
        tables = {
            table: self._table_plan(table, source, stored.registry(table) if stored else ColumnRegistry())
            for table, source in sources.items()
        }
        if missing := unmet(self._config.rules, self._coverages) if tables else []:
            log.warning(NO_SUCH_FIELD, ", ".join(missing))
        plan = EventPlan(tables, self._schemas.refused, self.references, self._own_tables, self._config.batch_bytes)
        keys, stored_count = stored.keys(tables, self._dates(found)) if stored else ([], 0)
        duplicates = find_duplicates(self._engine, self.rows, keys, count + stored_count, plan)
        return replace(plan, duplicates=duplicates)

    def _survey(self) -> set[tuple[Format, str | None, int]]:
        """Return format, schema ID and window of the landed rows, after comparing their number with the manifests."""
        counts: Counter[int] = Counter()
        present: set[tuple[Format, str | None, int]] = set()
        for row in self.rows.select("format", "schema_id", "window").map_batches(_kinds, _KINDS).collect():
            counts[row["window"]] += row["count"]
            present.add((row["format"], row["schema_id"], row["window"]))
        for number, window in enumerate(manifest.window for manifest in self._manifests):
            if counts[number] != window.event_count:
                raise ConfigurationError(
                    f"The files of window {window.window_id} have {counts[number]} rows, but its manifest records "
                    f"{window.event_count} events. The files were changed after landing. Nothing was written."
                )
        return present

    def _dates(self, found: FoundFields) -> Dates:
        """Return the event dates that these windows can contain; ``None``: any."""
        spans = [event_dates(manifest) for manifest in self._manifests if manifest.window.event_count]
        known_spans = [span for span in spans if span is not None]
        some_have_no_time = any(row["name"] is None for row in found) or not self._schemas.all_have_event_time()
        if len(known_spans) < len(spans) or some_have_no_time:
            return None
        return min(first for first, _ in known_spans), max(last for _, last in known_spans)

    def _table_plan(self, table: str, sources: TableSources, registry: ColumnRegistry) -> TablePlan:
        rules = self._config.rules
        if rules:
            before = self._stored_rules.rules_of(table) if self._stored_rules else NO_RULES
            self._coverages.append(check_columns(table, sources, registry, before, rules))
        columns, schemas, fields = place_columns(table, sources, registry, rules)
        return TablePlan(
            columns,
            schemas,
            fields,
            self.references,
            _microseconds(self._config.event_time_from),
            _microseconds(self._config.event_time_to),
            rules,
        )

    def _reference(self, manifest: Manifest) -> WindowReference:
        config, window = self._config, manifest.window
        return WindowReference(
            config.partition_of(window) if self._stored_rules else window.window_id,
            manifest.stream.org_id,
            manifest.stream.topic,
            _microseconds(window.counts_from),
            _microseconds(manifest.late_before) if window.window_id in config.own_windows else None,
            window.contact_at is not None,
            bool(config.rules),
        )


_KINDS = pa.schema([("format", pa.string()), ("schema_id", pa.string()), ("window", pa.int32()), ("count", pa.int64())])


def _kinds(batches: Batches) -> Batches:
    """Count landed rows by their format, schema and window."""
    for batch in batches:
        grouped = pa.Table.from_batches([batch]).group_by(["format", "schema_id", "window"])
        kinds = grouped.aggregate([([], "count_all")])
        yield from kinds.rename_columns(_KINDS.names).cast(_KINDS).to_batches()


def _microseconds(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def tables_in_memory(engine: EmbeddedEngine, config: EventLogConfig) -> dict[str, pa.Table]:
    """Return the events by table, each once, and undecodable events as the quarantine.

    :param config: ``output_url`` is not used.
    """
    plan, decoded = _decoded(engine, config)
    schemas = {name: table_plan.arrow_schema() for name, table_plan in plan.tables.items()}
    schemas[QUARANTINE_TABLE] = quarantine_schema()
    batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in schemas}
    for table, part in decoded:
        batches[table] += part.rows
        batches[QUARANTINE_TABLE] += part.quarantined
    tables = {name: pa.Table.from_batches(parts, schemas[name]) for name, parts in batches.items()}
    return {name: table for name, table in tables.items() if len(table)}


def events_in_order(engine: EmbeddedEngine, config: EventLogConfig) -> tuple[list[str], Iterator[list[dict[str, Any]]]]:
    """Return the columns of the events, and the events in the order of the windows, each once, some at a time.

    Memory is that of a row group. An undecodable event is a quarantine row, with its ``reason``.

    :param config: ``output_url`` is not used.
    """
    plan, decoded = _decoded(engine, config)
    if len(plan.tables) > 1:
        raise ConfigurationError(
            f"The windows have events of {', '.join(sorted(plan.tables))}. Pass windows with events of one type."
        )
    columns = [name for table_plan in plan.tables.values() for name in table_plan.columns]
    return columns, (_in_order(part) for _, part in decoded)


def _decoded(engine: EmbeddedEngine, config: EventLogConfig) -> tuple[EventPlan, Iterator[tuple[str, DecodedRows]]]:
    manifests = load_windows(engine.landing, config.manifests)
    if not any(manifest.window.event_count for manifest in manifests):
        return EventPlan({}, {}, (), ()), iter(())
    plan = EventLogJob(engine, manifests, config).plan()
    rows = engine.landed_rows(manifests, verify=config.verify_files)
    return plan, plan.decode(rows.batches(None))


def _in_order(decoded: DecodedRows) -> list[dict[str, Any]]:
    """Return rows of a table and of the quarantine, in the order of their window."""
    rows = [row for part in (*decoded.rows, *decoded.quarantined) for row in part.to_pylist()]
    return sorted(rows, key=lambda row: int(row["_ordinal"] if "_ordinal" in row else row["ordinal"]))
