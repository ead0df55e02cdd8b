"""The columns of each kind of rows, and what is made of a schema that the user gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.decode.arrow_columns import arrow_type
from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType
from airflow_provider_sfstream.tables.delta.column_registry import type_of_spark
from airflow_provider_sfstream.tables.rows.event_batches import ENVELOPE, PARTITIONS, QUARANTINE
from airflow_provider_sfstream.tables.source.options import RowKind

RAW = {name: type_ for name, type_ in QUARANTINE.items() if name != "reason"}
"""The columns of the landing, and where a row comes from."""
_FIXED: dict[RowKind, dict[str, ColumnType]] = {
    "decoded": ENVELOPE | PARTITIONS,
    "raw": RAW,
    "quarantine": QUARANTINE,
}


def all_columns(rows: RowKind, events: Mapping[str, ColumnType]) -> dict[str, ColumnType]:
    """Return the columns of a kind of rows, in order; of decoded ones with those of the events' own fields."""
    return {**ENVELOPE, **events, **PARTITIONS} if rows == "decoded" else _FIXED[rows]


def event_columns(rows: RowKind, fields: list[dict[str, Any]]) -> dict[str, ColumnType]:
    """Return which columns of a schema are fields of events, after checking the others.

    :param fields: the schema's, as Spark writes them in JSON.
    :raises ConfigurationError: if a column is not one of these rows, or of another type.
    """
    fixed, events = {name.lower(): (name, type_) for name, type_ in _FIXED[rows].items()}, {}
    for each in fields:
        name, type_ = each["name"], type_of_spark(each["type"])
        known = fixed.get(name.lower())
        if known is None and rows != "decoded":
            raise ConfigurationError(
                f"{name!r} is no column of rows={rows}, which has {', '.join(_FIXED[rows])}. Nothing was read."
            )
        if known is not None and known != (name, type_):
            raise ConfigurationError(f"The column {known[0]} is of type {known[1]}, spelt so. Nothing was read.")
        if known is None:
            try:
                arrow_type(type_)
            except KeyError:
                raise ConfigurationError(
                    f"The column {name} is of type {type_}, which no field of an event becomes. Nothing was read."
                ) from None
            events[name] = type_
    return events


def arrow_schema(columns: Mapping[str, ColumnType]) -> pa.Schema:
    """Return columns as a schema of Arrow."""
    return pa.schema([(name, arrow_type(type_)) for name, type_ in columns.items()])
