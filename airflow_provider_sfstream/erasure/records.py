"""Records to erase: their IDs, and what remains of events and of rows without them. Pure.

IDs are ASCII in payloads of either encoding, so an event without these bytes belongs to none of these records.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import fastavro
import pyarrow as pa

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.salesforce.events import PayloadEncoding
from airflow_provider_sfstream.salesforce.identifiers import to_18
from airflow_provider_sfstream.salesforce.schemas import parse
from airflow_provider_sfstream.salesforce.topics import can_carry_changes
from airflow_provider_sfstream.tables.rows.replica_columns import HEADER

MOST_IDS = 1_000
_IDS = "recordIds"
_JSON_IDS = re.compile(rb'"recordIds"\s*:\s*(\[[^\]]*\])')
_AVRO_IDS = fastavro.parse_schema({"type": "array", "items": "string"})
_SEARCHED = frozenset({"Id", HEADER, "topic", "payload", "reason"})
"""Columns that the functions for rows read, without the type that may follow in the name."""
_REASON = "erased: the payload contained the ID of an erased record"


class RecordIds:
    """IDs of records of one object, which are excluded from every text of this instance. No error contains one."""

    def __init__(self, ids: Iterable[str]) -> None:
        in_full: set[str] = set()
        for number, record_id in enumerate(ids):
            try:
                full = to_18(record_id)
                is_valid = full.startswith(record_id)
            except (TypeError, ValueError):
                is_valid = False
            if not is_valid:
                raise ConfigurationError(
                    f"ids[{number}] is not a record ID: expected 15 letters and digits, or 18, of which the last three "
                    "are a checksum. Nothing was erased. The value is omitted from this error."
                )
            in_full.add(full)
        if not 0 < len(in_full) <= MOST_IDS:
            raise ConfigurationError(f"Expected 1 to {MOST_IDS} record IDs, got {len(in_full)}. Nothing was erased.")
        if len({record_id[:3] for record_id in in_full}) > 1:
            raise ConfigurationError(
                "The record IDs have different prefixes, so they belong to several objects. Erase the records of one "
                "object at a time. Nothing was erased."
            )
        self._short = frozenset(record_id[:15] for record_id in in_full)
        self.in_full: tuple[str, ...] = tuple(sorted(in_full))
        """IDs of 18 characters each."""
        self._pattern = re.compile(b"|".join(re.escape(short.encode()) for short in sorted(self._short)))

    def __len__(self) -> int:
        return len(self._short)

    def __contains__(self, record_id: object) -> bool:
        return isinstance(record_id, str) and record_id[:15] in self._short

    def are_in(self, data: Any) -> bool:
        """Return whether bytes, or a buffer of them, contain one of the IDs."""
        return self._pattern.search(data) is not None


def without_records(payload: bytes, ids: RecordIds, encoding: PayloadEncoding, schema_json: str | None) -> bytes | None:
    """Return the rest of a payload that contains one of the IDs; ``None`` if it belongs to none of the records.

    An event of several records loses the IDs, and is unchanged for the others. The result is empty for an event of
    these records only, and for an unreadable event, because its records are unknown.

    :param schema_json: schema of the payload; ``None`` if unknown.
    """
    try:
        read, splice = (_json, _json_without) if encoding == "json" else (_avro(schema_json), _avro_without)
        event = read(payload)
    except Exception:  # any error of a library
        return b""
    fields = event.get("payload", event) if encoding == "json" else event
    header = fields.get(HEADER) if isinstance(fields, dict) else None
    record_ids = header.get(_IDS) if isinstance(header, dict) else None
    if not isinstance(header, dict) or not isinstance(record_ids, list):
        return None  # not a change event, it only refers to the record
    header[_IDS] = remaining_ids = [record_id for record_id in record_ids if record_id not in ids]
    if len(remaining_ids) == len(record_ids):
        return None
    if not remaining_ids:
        return b""
    # The IDs are cut out of the bytes: the payload is not encoded again, so that all other values remain unchanged.
    try:
        changed = splice(payload, record_ids, remaining_ids)
        return changed if str(read(changed)) == str(event) else b""
    except Exception:  # the changed payload would not be an event
        return b""


def _avro(schema_json: str | None) -> Callable[[bytes], dict[str, Any]]:
    schema = fastavro.parse_schema(parse(schema_json or ""))

    def read(payload: bytes) -> dict[str, Any]:
        stream = io.BytesIO(payload)
        event = fastavro.schemaless_reader(stream, schema, None)
        if stream.tell() != len(payload) or not isinstance(event, dict):
            raise ValueError
        return event

    return read


def _avro_without(payload: bytes, record_ids: list[str], remaining: list[str]) -> bytes:
    array = _avro_array(record_ids)
    return payload.replace(array, _avro_array(remaining)) if payload.count(array) == 1 else b""


def _avro_array(texts: list[str]) -> bytes:
    """Return texts as an Avro array of one block, the form that Salesforce writes."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, _AVRO_IDS, texts)
    return stream.getvalue()


def _json(payload: bytes) -> dict[str, Any]:
    event = json.loads(payload, parse_float=str)
    if not isinstance(event, dict):
        raise TypeError
    return event


def _json_without(payload: bytes, record_ids: list[str], remaining: list[str]) -> bytes:
    matches = list(_JSON_IDS.finditer(payload))
    if len(matches) != 1 or json.loads(matches[0][1]) != record_ids:
        return b""
    return payload[: matches[0].start(1)] + json.dumps(remaining).encode() + payload[matches[0].end(1) :]


def is_header(column: str) -> bool:
    """Return whether a column of a table has headers of change events, of any type."""
    return column.partition("__")[0] == HEADER


def is_searched(column: str) -> bool:
    """Return whether one of the following functions may read a column of a table."""
    return column.partition("__")[0] in _SEARCHED


def replica_without(batch: pa.RecordBatch, ids: RecordIds) -> tuple[int, pa.RecordBatch]:
    """Return the number of rows of a replica's table that belong to the records, and the other rows."""
    erased = [record_id in ids for record_id in batch.column("Id").to_pylist()]
    return sum(erased), batch.filter(pa.array([not is_erased for is_erased in erased])) if any(erased) else batch


def events_without(batch: pa.RecordBatch, ids: RecordIds) -> tuple[int, pa.RecordBatch]:
    """Return the number of changed rows of change events, and the rows that remain: those of other records, and those
    of several records, without the erased IDs."""
    changed: set[int] = set()
    erased: set[int] = set()
    for name in filter(is_header, batch.schema.names):
        column = batch.column(name)
        is_struct = pa.types.is_struct(column.type)
        if is_struct and column.type.get_field_index(_IDS) < 0:
            continue
        values = (column.field(_IDS) if is_struct else column).to_pylist()
        for row, value in enumerate(values):
            record_ids = value if is_struct else _record_ids(value)
            remaining = [record_id for record_id in record_ids or () if record_id not in ids]
            if record_ids and len(remaining) < len(record_ids):
                changed.add(row)
                values[row] = remaining if is_struct else json.dumps({**json.loads(value), _IDS: remaining})
                if not remaining:
                    erased.add(row)
        if changed:
            new = _with_ids(column, values) if is_struct else pa.array(values, column.type)
            batch = batch.set_column(batch.schema.get_field_index(name), batch.schema.field(name), new)
    mask = pa.array([row not in erased for row in range(len(batch))], pa.bool_())
    return len(changed), batch.filter(mask) if erased else batch


def quarantine_without(batch: pa.RecordBatch, ids: RecordIds, entity: str) -> tuple[int, pa.RecordBatch]:
    """Return the number of changed rows of the quarantine, and all rows. An event of the object's topic or of a channel
    loses its payload, and the reason that may quote it, if its bytes contain one of the IDs."""
    payloads, reasons = batch.column("payload").to_pylist(), batch.column("reason").to_pylist()
    changed = 0
    for row, topic in enumerate(batch.column("topic").to_pylist()):
        if can_carry_changes(topic, entity) and payloads[row] is not None and ids.are_in(payloads[row]):
            payloads[row], reasons[row] = None, _REASON
            changed += 1
    if changed:
        for name, values in (("payload", payloads), ("reason", reasons)):
            field = batch.schema.field(name)
            batch = batch.set_column(batch.schema.get_field_index(name), field, pa.array(values, field.type))
    return changed, batch


def _record_ids(text: str | None) -> Any:
    """Return the record IDs of a header in JSON; ``None`` if it has none."""
    header = json.loads(text) if text else None
    return header.get(_IDS) if isinstance(header, dict) else None


def _with_ids(headers: pa.StructArray, values: list[Any]) -> pa.StructArray:
    fields = list(headers.type)
    members = [
        pa.array(values, field.type) if field.name == _IDS else headers.field(number)
        for number, field in enumerate(fields)
    ]
    return pa.StructArray.from_arrays(members, fields=fields, mask=headers.is_null())
