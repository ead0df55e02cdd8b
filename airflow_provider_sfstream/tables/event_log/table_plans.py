"""Table plans: map the contents of the run's windows to tables, and each field to a column."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from airflow_provider_sfstream.exceptions import ConfigurationError, SchemaError
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.privacy.field_rules import NO_RULES, Coverage, FieldRules
from airflow_provider_sfstream.salesforce.schemas import parse
from airflow_provider_sfstream.tables.decode.avro_columns import has_event_time, members_of
from airflow_provider_sfstream.tables.decode.self_described import WITH_SCHEMA, Field, Format, field_type, read_body
from airflow_provider_sfstream.tables.delta.column_registry import ColumnRegistry
from airflow_provider_sfstream.tables.delta.landed_windows import TextFiles
from airflow_provider_sfstream.tables.event_log.tables import check_table_name
from airflow_provider_sfstream.tables.rows.event_batches import (
    ENVELOPE,
    PARTITIONS,
    Batches,
    FieldsPlan,
    Rows,
    SchemaPlan,
)
from airflow_provider_sfstream.tables.rows.hidden_values import (
    Hidden,
    coverage_of,
    hidden_fields,
    hidden_members,
    shown,
    stored_type,
    warn_of_numbers,
)
from airflow_provider_sfstream.tables.runner.engine import Frame

log = logging.getLogger(__name__)

FOUND = pa.schema([(name, pa.string()) for name in ("table", "format", "name", "type")])
"""Field of self-described rows; without a name and a type for an event without a time."""
FoundFields: TypeAlias = Sequence[Mapping[str, Any]]
_READ_AT_ONCE = 8
"""Schema files to read at a time: on an object store, each takes a request."""


@dataclass
class Schemas:
    """Readable schemas by table and schema ID, and by schema ID why others cannot be used."""

    tables: dict[str, dict[str, str]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def usable(self) -> dict[str, str]:
        """Return all readable schemas by ID."""
        return {schema_id: text for schemas in self.tables.values() for schema_id, text in schemas.items()}

    def all_have_event_time(self) -> bool:
        """Return whether every event has its own time, and thus the same event date in every window."""
        return all(map(has_event_time, self.usable().values()))


def read_schemas(files: TextFiles, manifests: Iterable[Manifest]) -> Schemas:
    """Read the schema files of all windows, including those missing when a window landed that are available now. Files
    that cannot be read or parsed are refused, without an error."""
    result = Schemas()
    urls: set[tuple[str, str]] = set()
    missing: dict[str, str] = {}
    for manifest in manifests:
        urls.update((schema_id, manifest.url_of(name)) for schema_id, name in manifest.schemas.items())
        for schema_id, unavailable in manifest.missing_schemas.items():
            urls.update(() if unavailable.file is None else [(schema_id, manifest.url_of(unavailable.file))])
            reason = f"schema {schema_id!r} was not available when the window landed: {unavailable.reason}"
            result.refused[schema_id] = missing[schema_id] = reason
    with ThreadPoolExecutor(max_workers=_READ_AT_ONCE) as pool:
        texts = {url: pool.submit(files.read_text, url) for url in {url for _, url in urls}}
    for schema_id, url in sorted(urls):
        try:
            text = texts[url].result()
            schema = parse(text)
            members_of(text)
            table = check_table_name(str(schema["name"]).rpartition(".")[2])
        except FileNotFoundError:
            result.refused[schema_id] = missing.get(schema_id, f"the file of schema {schema_id} is missing")
        except (SchemaError, ValueError) as error:
            result.refused[schema_id] = f"schema {schema_id} cannot be used: {error}"
        else:
            result.tables.setdefault(table, {})[schema_id] = text
    for schema_id in result.usable():
        result.refused.pop(schema_id, None)
    return result


@dataclass
class TableSources:
    """Sources of the rows of one table: Avro schemas by ID, and fields of self-described events by format."""

    schemas: dict[str, str] = field(default_factory=dict)
    fields: dict[Format, dict[Field, str]] = field(default_factory=dict)


def sources_by_table(
    present: Iterable[tuple[Format, str | None, int]], schemas: Schemas, found: FoundFields, tables: Sequence[str]
) -> dict[str, TableSources]:
    """Return the sources of each table. A field has one spelling of its name.

    :param present: format, schema ID and window of the landed rows.
    :param found: the fields of the self-described rows.
    :param tables: the table of each window's self-described rows.
    """
    sources: dict[str, TableSources] = defaultdict(TableSources)
    table_of = {schema_id: table for table, ids in schemas.tables.items() for schema_id in ids}
    for format_, schema_id, window in present:
        if format_ not in WITH_SCHEMA:
            sources[tables[window]].fields[format_] = {}
        elif schema_id in table_of:
            name = table_of[schema_id]
            sources[name].schemas[schema_id] = schemas.tables[name][schema_id]
    for table, format_, name, type_ in sorted((row.values() for row in found if row["name"] is not None), key=list):
        sources[table].fields[format_].setdefault(Field(name.lower(), type_), name)
    return dict(sources)


def check_columns(
    table: str, sources: TableSources, registry: ColumnRegistry, before: FieldRules, rules: FieldRules
) -> Coverage:
    """Check that no column of a table violates the rules, except for columns that already violated those ``before``;
    return the coverage of the rules."""
    schemas = sources.schemas.values()
    now = coverage_of(rules, table, schemas)
    json_fields = [json_field for fields in sources.fields.values() for json_field in fields]
    json_names = {json_field.name for json_field in json_fields}
    if unprotected := shown(registry.columns, now, coverage_of(before, table, schemas), json_names):
        raise ConfigurationError(
            f"The table {table} contains unprotected values of {', '.join(unprotected)}: it was created without a rule "
            "for them. Nothing was written. Set another output_url for a new table, or remove the rule."
        )
    for text in schemas:
        for member, treatment in zip(members_of(text), hidden_members(now, text), strict=True):
            warn_of_numbers(table, member.field, member.value.type, treatment)
    for (name, type_), treatment in zip(json_fields, hidden_fields(now, json_fields), strict=True):
        warn_of_numbers(table, name, type_, treatment)
    return now


def place_columns(
    table: str, sources: TableSources, registry: ColumnRegistry, rules: FieldRules = NO_RULES
) -> tuple[dict[str, Any], dict[str, SchemaPlan], dict[Format, FieldsPlan]]:
    """Return the columns of these events in the table, and the column mapping of each schema and each format.

    New columns are added to ``registry``; a field whose type is not its column's is written to another one, and logged.
    """
    schemas: dict[str, SchemaPlan] = {}
    fields: dict[Format, FieldsPlan] = {}
    for schema_id, text in sorted(sources.schemas.items()):
        members = [(member.name, member.value.type) for member in members_of(text)]
        treatments = hidden_members(coverage_of(rules, table, (text,)), text)
        columns = place(f"{table} (schema {schema_id})", members, treatments, registry)
        schemas[schema_id] = SchemaPlan(text, columns, treatments)
    for format_, spellings in sorted(sources.fields.items()):
        names = [(spelling, json_field.type) for json_field, spelling in spellings.items()]
        treatments = hidden_fields(coverage_of(rules, table), spellings)
        fields[format_] = FieldsPlan(tuple(spellings), place(table, names, treatments, registry), treatments)
    plans: list[SchemaPlan | FieldsPlan] = [*schemas.values(), *fields.values()]
    used = {column for plan in plans for column in plan.columns if column is not None}
    return {name: type_ for name, type_ in registry.columns.items() if name in used}, schemas, fields


def place(
    origin: str,
    fields: Iterable[tuple[str, Any]],
    treatments: Sequence[Hidden],
    registry: ColumnRegistry,
    reserved: Iterable[str] = (*ENVELOPE, *PARTITIONS),
) -> tuple[str | None, ...]:
    """Return the column of each field of one source, ``None`` for an excluded one; add new columns to ``registry``.

    A field whose type is not its column's is written to another one, which is logged with the ``origin`` of the field.

    :param reserved: as for :meth:`ColumnRegistry.place`; default: those of the event log.
    """
    stored_fields = [
        (name, stored_type(type_, treatment))
        for (name, type_), treatment in zip(fields, treatments, strict=True)
        if treatment != "exclude"
    ]
    columns = registry.place(stored_fields, reserved)
    for (name, _), column in zip(stored_fields, columns, strict=True):
        if name.lower() != column.lower():
            log.warning("The field %s of %s is written to column %s because its type differs.", name, origin, column)
    remaining = iter(columns)
    return tuple(None if treatment == "exclude" else next(remaining) for treatment in treatments)


def survey_fields(rows: Frame, tables: tuple[str, ...]) -> FoundFields:
    """Read all self-described rows, and return their fields.

    :param rows: landed rows with ``window`` and ``format``.
    :param tables: the table of each window's rows, if they are self-described.
    """
    return rows.select("window", "format", "payload").map_batches(found_fields(tables), FOUND).collect()


def found_fields(tables: tuple[str, ...]) -> Rows:
    """Return a function for ``mapInArrow`` that yields each field once, and a null name if an event has no time.

    It skips unreadable events, because they will have no row.
    """

    def fields(batches: Batches) -> Batches:
        distinct: set[tuple[str, str, str | None, str | None]] = set()
        for batch in batches:
            columns = (batch.column(name).to_pylist() for name in ("window", "format", "payload"))
            for window, format_, payload in zip(*columns, strict=True):
                if format_ in WITH_SCHEMA:
                    continue
                try:
                    body = read_body(format_, payload)
                except (ValueError, ArithmeticError, RecursionError):
                    continue
                table = tables[window]
                distinct.update((table, format_, name, field_type(value)) for name, value in body.fields.items())
                if body.time is None:
                    distinct.add((table, format_, None, None))
        rows = [dict(zip(FOUND.names, values, strict=True)) for values in distinct]
        yield pa.RecordBatch.from_pylist(rows, schema=FOUND)

    return fields
