"""Decoder of JSON payloads to columns, by the event's Avro schema or by the JSON itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from airflow_provider_sfstream.salesforce.schemas import parse
from airflow_provider_sfstream.tables.decode.arrow_columns import (
    DecodedEvents,
    Undecodable,
    arrow_type,
    event_times,
    joined,
)
from airflow_provider_sfstream.tables.decode.avro_columns import has_event_time, members_of
from airflow_provider_sfstream.tables.decode.json_columns import RecordReader, SchemaMismatchError, convert
from airflow_provider_sfstream.tables.decode.json_values import read_times
from airflow_provider_sfstream.tables.decode.self_described import (
    Field,
    Format,
    column_name,
    column_value,
    field_type,
    object_in,
    parse_event,
    read_body,
)

_AT_A_TIME = 1_024
"""Payloads whose parsed values are in memory together. With ten times as many, Python's search for cycles among them
takes longer than the parsing."""


class _ParsingDecoder(ABC):
    """Decoder that parses each payload once, separately, and then creates the columns of all valid events."""

    decoder = "json"

    @abstractmethod
    def _parse(self, payload: bytes) -> Any: ...

    @abstractmethod
    def _columns(self, events: Sequence[Any]) -> DecodedEvents: ...

    def decode_all(self, payloads: Sequence[bytes]) -> tuple[DecodedEvents | None, list[Undecodable]]:
        """Return the events of all decodable payloads, in order, and the undecodable payloads."""
        parts: list[DecodedEvents] = []
        failures: list[Undecodable] = []
        for start in range(0, len(payloads), _AT_A_TIME):
            parsed: dict[int, Any] = {}
            for row, payload in enumerate(payloads[start : start + _AT_A_TIME], start):
                try:
                    parsed[row] = self._parse(payload)
                except (ValueError, ArithmeticError, RecursionError) as error:
                    failures.append(Undecodable.because(row, error))
            while parsed:
                try:
                    parts.append(self._columns(list(parsed.values())))
                    break
                except SchemaMismatchError as mismatch:
                    rows = list(parsed)
                    for place, reason in mismatch.reasons.items():
                        failures.append(Undecodable.because(rows[place], reason))
                        del parsed[rows[place]]
        return joined(parts), sorted(failures, key=lambda failure: failure.row)


class JsonDecoder(_ParsingDecoder):
    """Decoder of platform and change events by their Avro schema, to the same columns as for events in Avro.

    :raises SchemaError: if ``schema_json`` cannot be used to read payloads.
    """

    def __init__(self, schema_json: str) -> None:
        parse(schema_json)
        self._members = members_of(schema_json)
        self._has_event_time = has_event_time(schema_json)
        self._reader = RecordReader(self._members)

    def _parse(self, payload: bytes) -> dict[str, Any]:
        return object_in(parse_event("event", payload), "payload")

    def _columns(self, events: Sequence[dict[str, Any]]) -> DecodedEvents:
        columns = self._reader.read(events)
        return DecodedEvents(columns, self._times(columns, len(events)))

    def _times(self, columns: Sequence[pa.Array], size: int) -> pa.Array:
        def read(rows: list[int]) -> pa.Array:
            return event_times(self._members, [column.slice(rows[0], len(rows)) for column in columns], len(rows))

        times = convert(read, list(range(size)))  # which calls it for all rows, or for each to find the invalid ones
        if self._has_event_time and times.null_count:
            timeless = [row for row, missing in enumerate(times.is_null().to_pylist()) if missing]
            raise SchemaMismatchError(dict.fromkeys(timeless, "the event has no time"))
        return times


class SelfDescribedDecoder(_ParsingDecoder):
    """Decoder of events without a schema.

    :param fields: fields of the events, one column for each.
    """

    def __init__(self, format_: Format, fields: Sequence[Field]) -> None:
        self._format = format_
        self._fields = fields
        self._numbers = {(field.name, field.type): number for number, field in enumerate(fields)}

    def _parse(self, payload: bytes) -> tuple[list[tuple[int, Any]], Any]:
        """Return column numbers and values of an event, and its time."""
        body = read_body(self._format, payload)
        values: list[tuple[int, Any]] = []
        for name, value in body.fields.items():
            type_ = field_type(value)
            values.append((self._numbers[column_name(name), type_], column_value(value, type_)))
        return values, body.time

    def _columns(self, events: Sequence[tuple[list[tuple[int, Any]], Any]]) -> DecodedEvents:
        columns: list[list[Any]] = [[None] * len(events) for _ in self._fields]
        for place, (values, _) in enumerate(events):
            for number, value in values:
                columns[number][place] = value
        arrays = [pa.array(values, arrow_type(field.type)) for values, field in zip(columns, self._fields, strict=True)]
        return DecodedEvents(arrays, convert(read_times, [time for _, time in events]))
