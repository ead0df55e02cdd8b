"""The fields of events that describe themselves: found where the rows are, so that the driver sees only their names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from airflow_provider_sfstream.tables.decode.payload_formats import WITH_SCHEMA, Format
from airflow_provider_sfstream.tables.decode.self_described import Field, field_type, read_body
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows
from airflow_provider_sfstream.tables.runner.engine import Frame

FOUND = pa.schema([(name, pa.string()) for name in ("table", "format", "name", "type")])


@dataclass
class FoundFields:
    """The fields by table and format, each with one spelling of its name; whether an event without a time was seen."""

    tables: dict[str, dict[Format, dict[Field, str]]] = field(default_factory=dict)
    some_tell_no_time: bool = False


def survey_fields(rows: Frame, tables: tuple[str, ...]) -> FoundFields:
    """Read all rows that describe themselves, and return what fields they have.

    :param rows: landed rows with ``window`` and ``format``.
    :param tables: the table of each window's rows, if they describe themselves.
    """
    own = rows.select("window", "format", "payload").where(lambda columns: ~columns.one_of("format", WITH_SCHEMA))
    return fields_of(own.made(found_fields(tables), FOUND).counted(*FOUND.names))


def fields_of(rows: Iterable[Any]) -> FoundFields:
    """Return what rows of :func:`found_fields` say, whatever their order."""
    found = FoundFields()
    for row in sorted(rows, key=lambda row: (row["table"], row["format"], row["name"] or "", row["type"] or "")):
        if row["name"] is None:
            found.some_tell_no_time = True
            continue
        fields = found.tables.setdefault(row["table"], {}).setdefault(row["format"], {})
        fields.setdefault(Field(row["name"].lower(), row["type"]), row["name"])
    return found


def found_fields(tables: tuple[str, ...]) -> Rows:
    """Return a function for ``mapInArrow`` that gives each field once, and a null name if an event has no time.

    Events that cannot be read are passed over: they will have no row.
    """

    def fields(batches: Batches) -> Batches:
        found: set[tuple[str, str, str | None, str | None]] = set()
        for batch in batches:
            columns = (batch.column(name).to_pylist() for name in ("window", "format", "payload"))
            for window, format_, payload in zip(*columns, strict=True):
                try:
                    body = read_body(format_, payload)
                except (ValueError, ArithmeticError, RecursionError):
                    continue
                table = tables[window]
                found.update((table, format_, name, field_type(value)) for name, value in body.fields.items())
                if body.time is None:
                    found.add((table, format_, None, None))
        rows = [dict(zip(FOUND.names, each, strict=True)) for each in found]
        yield pa.RecordBatch.from_pylist(rows, schema=FOUND)

    return fields
