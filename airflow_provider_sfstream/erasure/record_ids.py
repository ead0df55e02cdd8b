"""IDs of records to erase, and removal of the IDs from change events.

IDs are ASCII in payloads of either encoding, so an event without these bytes belongs to none of these records.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import fastavro

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.salesforce.events import PayloadEncoding
from airflow_provider_sfstream.salesforce.identifiers import to_18
from airflow_provider_sfstream.salesforce.schemas import parse

MOST_IDS = 1_000
_HEADER, _IDS = "ChangeEventHeader", "recordIds"
_JSON_IDS = re.compile(rb'"recordIds"\s*:\s*(\[[^\]]*\])')


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
    header = fields.get(_HEADER) if isinstance(fields, dict) else None
    record_ids = header.get(_IDS) if isinstance(header, dict) else None
    if not isinstance(header, dict) or not isinstance(record_ids, list):
        return None  # not a change event, it only refers to the record
    remaining_ids = [record_id for record_id in record_ids if record_id not in ids]
    if len(remaining_ids) == len(record_ids):
        return None
    if not remaining_ids:
        return b""
    # The IDs are cut out of the bytes: the payload is not encoded again, so that all other values remain unchanged.
    changed = splice(payload, record_ids, remaining_ids)
    header[_IDS] = remaining_ids
    try:
        return changed if changed and str(read(changed)) == str(event) else b""
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
    parts = [_number(len(texts))]
    for text in texts:
        parts += (_number(len(text.encode())), text.encode())
    return b"".join((*parts, b"\0"))


def _number(value: int) -> bytes:
    """Return a number that is not negative as an Avro long: a variable-length zigzag integer."""
    value, groups = value << 1, bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*groups, value))


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
