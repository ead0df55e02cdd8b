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
    """IDs of records of one object, which are excluded from every text of this instance.

    :param ids: IDs of 15 or 18 characters.
    :raises ConfigurationError: if there are none or too many, or one is invalid. The error has its index, not the ID.
    """

    def __init__(self, ids: Iterable[str]) -> None:
        known: set[str] = set()
        for number, each in enumerate(ids):
            try:
                full = to_18(each)
                is_one = full.startswith(each)
            except (TypeError, ValueError):
                is_one = False
            if not is_one:
                raise ConfigurationError(
                    f"ids[{number}] is no id of a record: 15 letters and digits, or 18 whose last three are their "
                    "checksum. It is not quoted here. Nothing was erased."
                )
            known.add(full)
        if not 0 < len(known) <= MOST_IDS:
            raise ConfigurationError(f"{len(known)} ids were given; 1 to {MOST_IDS} can be. Nothing was erased.")
        if len({each[:3] for each in known}) > 1:
            raise ConfigurationError(
                "The ids begin with several prefixes, so they are of several objects. Erase the records of one object "
                "at a time. Nothing was erased."
            )
        self._short = frozenset(each[:15] for each in known)
        self.in_full: tuple[str, ...] = tuple(sorted(known))
        """IDs of 18 characters each."""
        self._pattern = re.compile(b"|".join(re.escape(each.encode()) for each in sorted(self._short)))

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
    of = event.get("payload", event) if encoding == "json" else event
    header = of.get(_HEADER) if isinstance(of, dict) else None
    named = header.get(_IDS) if isinstance(header, dict) else None
    if not isinstance(header, dict) or not isinstance(named, list):
        return None  # not a change event, it only refers to the record
    kept = [each for each in named if each not in ids]
    if len(kept) == len(named):
        return None
    if not kept:
        return b""
    left = splice(payload, named, kept)
    header[_IDS] = kept
    try:
        return left if left and str(read(left)) == str(event) else b""
    except Exception:  # the rest would not be an event
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


def _avro_without(payload: bytes, named: list[str], kept: list[str]) -> bytes:
    before = _avro_array(named)
    return payload.replace(before, _avro_array(kept)) if payload.count(before) == 1 else b""


def _avro_array(texts: list[str]) -> bytes:
    """Return texts as an Avro array of one block, the form that Salesforce writes."""
    parts = [_number(len(texts))]
    for text in texts:
        parts += (_number(len(text.encode())), text.encode())
    return b"".join((*parts, b"\0"))


def _number(value: int) -> bytes:
    value, found = value << 1, bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def _json(payload: bytes) -> dict[str, Any]:
    event = json.loads(payload, parse_float=str)
    if not isinstance(event, dict):
        raise TypeError
    return event


def _json_without(payload: bytes, named: list[str], kept: list[str]) -> bytes:
    found = list(_JSON_IDS.finditer(payload))
    if len(found) != 1 or json.loads(found[0][1]) != named:
        return b""
    return payload[: found[0].start(1)] + json.dumps(kept).encode() + payload[found[0].end(1) :]
