"""Parts of windows, one for each file: their planning on the driver, and their rows, which executors read as Arrow
batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.exceptions import ConfigurationError, SchemaError
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.tables.decode.arrow_columns import arrow_type, record_batch
from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType, members_of
from airflow_provider_sfstream.tables.decode.self_described import table_of_topic
from airflow_provider_sfstream.tables.delta.column_registry import ColumnRegistry, type_of_spark
from airflow_provider_sfstream.tables.delta.landed_windows import event_dates, payload_formats
from airflow_provider_sfstream.tables.event_log.delta_tables import EventPlan
from airflow_provider_sfstream.tables.event_log.table_plans import (
    Schemas,
    TableSources,
    place_columns,
    read_schemas,
    sources_by_table,
    survey_fields,
)
from airflow_provider_sfstream.tables.event_log.tables import Dates
from airflow_provider_sfstream.tables.rows.event_batches import (
    ENVELOPE,
    PARTITIONS,
    QUARANTINE,
    Batches,
    TablePlan,
    WindowReference,
    quarantined,
)
from airflow_provider_sfstream.tables.runner.embedded import ArrowFrame, Columns, landed_batches
from airflow_provider_sfstream.tables.source.files import SourceFiles
from airflow_provider_sfstream.tables.source.options import RowKind, SourceOptions


@dataclass(frozen=True)
class Part:
    """One file of a window, by its URL and SHA-256. The plan has one table, and none for raw rows."""

    manifest: Manifest
    url: str
    sha256: str
    plan: EventPlan


class Planner:
    """Planner for the rows of windows.

    :param events: columns for the fields of events, from the reader's schema; empty for raw rows.
    :param is_given: whether the user specified them: fields without a column are then omitted. Otherwise they are an
        error, so that a query that runs for days does not lose a field that was added meanwhile.
    """

    def __init__(self, files: SourceFiles, events: Mapping[str, ColumnType], *, is_given: bool) -> None:
        self._files, self._events, self._is_given = files, dict(events), is_given
        self._schemas: dict[tuple[object, ...], Schemas] = {}

    def parts(self, manifests: Sequence[Manifest], *, decode: bool) -> list[Part]:
        """Return the parts of windows, in order.

        :param decode: whether rows are decoded; then schemas are read.
        """
        parts = []
        for manifest in manifests:
            stream = manifest.stream
            plan = EventPlan({}, {}, (WindowReference(manifest.window.window_id, stream.org_id, stream.topic),), ())
            if decode and manifest.window.event_count:
                plan = self._plan(manifest, plan.windows)
            parts += [Part(manifest, url, sum_, plan) for url, sum_ in manifest.file_sums().items()]
        return parts

    def columns(self, manifests: Sequence[Manifest]) -> dict[str, ColumnType]:
        """Return the columns for the fields of these windows' events; two types of one field get a column each, as in
        the event log, and the first one has the field's name."""
        registry = ColumnRegistry()
        for manifest in manifests:
            if manifest.window.event_count:
                place_columns(manifest.window.window_id, self._sources(manifest), registry)
        return registry.columns

    def schemas(self, manifest: Manifest) -> Schemas:
        """Return the schemas of a window's events."""
        missing = {name: schema.file or "" for name, schema in manifest.missing_schemas.items()}
        key = tuple(sorted((id_, manifest.url_of(name)) for id_, name in {**manifest.schemas, **missing}.items()))
        if key not in self._schemas:
            self._schemas[key] = read_schemas(self._files, [manifest])
        return self._schemas[key]

    def dates(self, manifest: Manifest) -> Dates:
        """Return the event dates that a window's rows can have; ``None``: any. An event without its own time counts at
        its receipt."""
        has_event_times = manifest.payload_encoding == "avro" and self.schemas(manifest).all_have_event_time()
        return event_dates(manifest) if has_event_times else None

    def _plan(self, manifest: Manifest, references: tuple[WindowReference, ...]) -> EventPlan:
        registry, table = ColumnRegistry(dict(self._events)), table_of_topic(manifest.stream.topic)
        _, schemas, fields = place_columns(manifest.window.window_id, self._sources(manifest), registry)
        plan = TablePlan(self._events, schemas, fields, references)
        self._check(manifest, plan, registry)
        return EventPlan({table: plan}, self.schemas(manifest).refused, references, (table,))

    def _sources(self, manifest: Manifest) -> TableSources:
        sources = TableSources(schemas=self.schemas(manifest).usable())
        if manifest.payload_encoding != "avro":
            table, (_, own) = table_of_topic(manifest.stream.topic), payload_formats(manifest)
            found = survey_fields(ArrowFrame(partial(self._batches, manifest)), (table,))
            sources.fields = sources_by_table([(own, None, 0)], Schemas(), found, (table,))[table].fields
        return sources

    def _batches(self, manifest: Manifest, columns: Columns) -> Batches:
        for url in manifest.file_sums():
            with self._files.part(url, None) as file:
                yield from landed_batches(file, manifest, 0, columns)

    def _check(self, manifest: Manifest, plan: TablePlan, registry: ColumnRegistry) -> None:
        for name, column in _field_columns(plan):
            is_same = self._events.get(column) == registry.columns[column]
            # A column with the name of a field of another type would show null for its values.
            is_mistyped = column not in self._events and name.lower() in map(str.lower, self._events)
            if is_same or (self._is_given and not is_mistyped):
                continue
            remedy = (
                "Change the column to that type, or remove it from the schema."
                if self._is_given
                else "Call load again, or start the query again: the new schema has a column for it."
            )
            raise ConfigurationError(
                f"{manifest.stream}: events of window {manifest.window.window_id} have a field {name} of type "
                f"{registry.columns[column]}, for which the schema of this reader has no column. No event is lost, and "
                f"no row of the window was returned. {remedy}"
            )


def _field_columns(plan: TablePlan) -> Iterator[tuple[str, str]]:
    """Yield each field of a plan with its column."""
    for schema in plan.schemas.values():
        yield from zip((member.name for member in members_of(schema.schema_json)), schema.columns, strict=True)
    for self_described in plan.fields.values():
        yield from zip((each.name for each in self_described.fields), self_described.columns, strict=True)


_NAMES = ("_topic", "topic", "_org_id", "org_id", "window_id")
_COVERS: Mapping[str, Callable[[Any, Any, Any], bool]] = {
    **dict.fromkeys(("EqualTo", "EqualNullSafe", "In"), lambda first, last, value: first <= value <= last),
    "GreaterThan": lambda first, last, value: last >= value,
    "LessThan": lambda first, last, value: first <= value,
}
"""Functions, by name of PySpark's filter without ``OrEqual``, that check if a row can pass. They compare whole days,
also for times, so an event at a bound is on a day that passes."""


def may_pass(filters: Iterable[Any], manifest: Manifest, dates: Dates) -> bool:
    """Return whether a row of a window can pass all filters.

    :param filters: filters of ``pyspark.sql.datasource``, with ``attribute`` and ``value``.
    """
    return all(_may_pass(filter_, manifest, dates) for filter_ in filters)


def _may_pass(filter_: Any, manifest: Manifest, dates: Dates) -> bool:
    path: tuple[str, ...] = getattr(filter_, "attribute", ())
    column, kind = path[0] if len(path) == 1 else "", type(filter_).__name__.removesuffix("OrEqual")
    bounds: tuple[Any, Any] | None = dates if column in ("event_date", "_event_time") else None
    if column in _NAMES:
        names = {**vars(manifest.stream), "window_id": manifest.window.window_id}
        bounds = (names[column.removeprefix("_")],) * 2
    if bounds is None or kind not in _COVERS:
        return True
    values = [_day(value) for value in (filter_.value if kind == "In" else [filter_.value])]
    return any(not isinstance(value, type(bounds[0])) or _COVERS[kind](*bounds, value) for value in values)


def _day(value: Any) -> Any:
    """Return the day (UTC) of a time, ``None`` if it has no time zone; any other value unchanged."""
    if not isinstance(value, datetime):
        return value
    return None if value.tzinfo is None else value.astimezone(UTC).date()


def part_rows(part: Part, options: SourceOptions, schema: pa.Schema) -> Batches:
    """Yield the rows of a part, in the order in which they landed.

    :param schema: the requested columns, which the yielded rows have.
    :raises SchemaError: if rows cannot be decoded and the options require it. The part's rows are then invalid.
    :raises ConfigurationError: if the file is missing, or was changed after it landed.
    :raises LandingError: if the storage cannot be read.
    """
    make = {"decoded": _decoded, "raw": _raw, "quarantine": _quarantined}[options.rows]
    with SourceFiles(options.storage).part(part.url, part.sha256 if options.verify_files else None) as file:
        for batch in make(landed_batches(file, part.manifest, 0, None), part, options):
            yield _projected(batch, schema)


def _raw(landed: Batches, part: Part, options: SourceOptions) -> Batches:
    for batch in landed:
        yield quarantined(batch, [""] * len(batch), part.plan.windows)


def _decoded(landed: Batches, part: Part, options: SourceOptions) -> Batches:
    for batch in landed:
        if part.manifest.erased:  # erased payloads must not fail a query
            batch = batch.filter(pc.greater(pc.binary_length(batch.column("payload")), 0))
        decoded = [decoded for _, decoded in part.plan.decode(iter([batch]))]
        undecodable = sum(len(rows) for each in decoded for rows in each.quarantined)
        if undecodable and options.on_undecodable == "fail":
            stream, window_id = part.manifest.stream, part.manifest.window.window_id
            raise SchemaError(
                f"{stream.topic} (org {stream.org_id}): {undecodable} of {len(batch)} events from row "
                f"{batch.column('ordinal')[0]} of window {window_id} cannot be decoded. No event is lost: the "
                "landing has them unchanged. Read them and the reasons with the option rows=quarantine, and the other "
                "events with on_undecodable=leave_out."
            )
        yield from (rows for each in decoded for rows in each.rows)


def _quarantined(landed: Batches, part: Part, options: SourceOptions) -> Batches:
    return (rows for _, decoded in part.plan.decode(landed) for rows in decoded.quarantined)


def _projected(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    names = {name.lower(): name for name in batch.schema.names}
    values = {name: batch.column(names[name.lower()]) for name in schema.names if name.lower() in names}
    return record_batch(values, schema, len(batch))


_FIXED: dict[RowKind, dict[str, ColumnType]] = {
    "decoded": ENVELOPE | PARTITIONS,
    "raw": {name: type_ for name, type_ in QUARANTINE.items() if name != "reason"},
    "quarantine": QUARANTINE,
}


def all_columns(rows: RowKind, events: Mapping[str, ColumnType]) -> dict[str, ColumnType]:
    """Return the columns of a kind of rows, in order; for decoded rows including the events' own fields."""
    return {**ENVELOPE, **events, **PARTITIONS} if rows == "decoded" else _FIXED[rows]


def event_columns(rows: RowKind, fields: list[dict[str, Any]]) -> dict[str, ColumnType]:
    """Return the columns of a schema that are fields of events, after checking the others.

    :param fields: fields of the schema in Spark's JSON form.
    """
    fixed, events = {name.lower(): (name, type_) for name, type_ in _FIXED[rows].items()}, {}
    for field in fields:
        name, type_ = field["name"], type_of_spark(field["type"])
        expected = fixed.get(name.lower())
        if expected is None and rows != "decoded":
            raise ConfigurationError(
                f"{name!r} is not a column of rows={rows}; its columns are {', '.join(_FIXED[rows])}. Nothing was read."
            )
        if expected is not None and expected != (name, type_):
            raise ConfigurationError(
                f"The column {name} must have the name {expected[0]} and the type {expected[1]}. Nothing was read."
            )
        if expected is None:
            try:
                arrow_type(type_)
            except KeyError:
                raise ConfigurationError(
                    f"The column {name} has type {type_}, which is not a type of event fields. Nothing was read."
                ) from None
            events[name] = type_
    return events
