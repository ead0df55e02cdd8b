"""Decoder of JSON payloads to columns, by the event's Avro schema or by the JSON itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

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
from airflow_provider_sfstream.tables.decode.json_values import kind_name, parse_object, read_times
from airflow_provider_sfstream.tables.decode.self_described import (
    Field,
    Format,
    column_name,
    column_value,
    field_type,
    read_body,
)

_Parsed = TypeVar("_Parsed")
_Row: TypeAlias = tuple[list[tuple[int, Any]], Any]
"""Column numbers and values of an event, and its time."""
_AT_A_TIME = 1_024
"""Payloads whose parsed values are in memory together. With ten times as many, Python's search for cycles among them
takes longer than the parsing."""
_KEYS = frozenset(("schema", "payload", "event"))


class JsonDecoder:
    """Decoder of platform and change events by their Avro schema, to the same columns as for events in Avro.

    :raises SchemaError: if ``schema_json`` cannot be used to read payloads.
    """

    decoder = "json"

    def __init__(self, schema_json: str) -> None:
        schema = parse(schema_json)
        self._members = members_of(schema)
        self._has_event_time = has_event_time(schema)
        self._reader = RecordReader(self._members)

    def decode_all(self, payloads: Sequence[bytes]) -> tuple[DecodedEvents | None, list[Undecodable]]:
        """Return the events of all decodable payloads, in order, and the undecodable payloads."""
        return _decode_parsed(payloads, _record, self._columns)

    def _columns(self, records: Sequence[dict[str, Any]]) -> DecodedEvents:
        columns = self._reader.read(records)
        return DecodedEvents(columns, self._times(columns, len(records)))

    def _times(self, columns: Sequence[pa.Array], size: int) -> pa.Array:
        def read(rows: list[int]) -> pa.Array:
            return event_times(
                self._members, [column.take(pa.array(rows, pa.int64())) for column in columns], len(rows)
            )

        try:
            times = event_times(self._members, columns, size)
        except ValueError:
            times = convert(read, list(range(size)))  # to find the invalid rows
        if self._has_event_time and times.null_count:
            timeless = [row for row, missing in enumerate(times.is_null().to_pylist()) if missing]
            raise SchemaMismatchError(dict.fromkeys(timeless, "the event has no time"))
        return times


class SelfDescribedDecoder:
    """Decoder of events without a schema.

    :param fields: fields of the events, one column for each.
    """

    decoder = "json"

    def __init__(self, format_: Format, fields: Sequence[Field]) -> None:
        self._format = format_
        self._fields = fields
        self._numbers = {(field.name, field.type): number for number, field in enumerate(fields)}

    def decode_all(self, payloads: Sequence[bytes]) -> tuple[DecodedEvents | None, list[Undecodable]]:
        """Return the events of all decodable payloads, in order, and the undecodable payloads."""
        return _decode_parsed(payloads, self._parse, self._columns)

    def _parse(self, payload: bytes) -> _Row:
        body = read_body(self._format, payload)
        values: list[tuple[int, Any]] = []
        for name, value in body.fields.items():
            type_ = field_type(value)
            values.append((self._numbers[column_name(name), type_], column_value(value, type_)))
        return values, body.time

    def _columns(self, rows: Sequence[_Row]) -> DecodedEvents:
        columns: list[list[Any]] = [[None] * len(rows) for _ in self._fields]
        for place, (values, _) in enumerate(rows):
            for number, value in values:
                columns[number][place] = value
        arrays = [pa.array(values, arrow_type(field.type)) for values, field in zip(columns, self._fields, strict=True)]
        return DecodedEvents(arrays, convert(read_times, [time for _, time in rows]))


def _decode_parsed(
    payloads: Sequence[bytes], parse: Callable[[bytes], _Parsed], columns: Callable[[Sequence[_Parsed]], DecodedEvents]
) -> tuple[DecodedEvents | None, list[Undecodable]]:
    """Parse each payload once, separately, and create columns of all valid events."""
    parts: list[DecodedEvents] = []
    failures: list[Undecodable] = []
    for start in range(0, len(payloads), _AT_A_TIME):
        parsed: list[_Parsed] = []
        rows: list[int] = []
        for row, payload in enumerate(payloads[start : start + _AT_A_TIME], start):
            try:
                parsed.append(parse(payload))
                rows.append(row)
            except (ValueError, ArithmeticError, RecursionError) as error:
                failures.append(Undecodable.because(row, error))
        while parsed:
            try:
                parts.append(columns(parsed))
                break
            except SchemaMismatchError as mismatch:
                failures += [Undecodable.because(rows[place], reason) for place, reason in mismatch.reasons.items()]
                parsed = [event for place, event in enumerate(parsed) if place not in mismatch.reasons]
                rows = [row for place, row in enumerate(rows) if place not in mismatch.reasons]
    return joined(parts), sorted(failures, key=lambda failure: failure.row)


def _record(payload: bytes) -> dict[str, Any]:
    """Return the fields of a platform or change event."""
    document = parse_object(payload)
    unknown = document.keys() - _KEYS
    if unknown:
        raise ValueError(f"the event has an unknown key {min(unknown)!r}")
    record = document.get("payload")
    if type(record) is not dict:
        raise ValueError(f"payload is {kind_name(record)}, not an object")
    return record
