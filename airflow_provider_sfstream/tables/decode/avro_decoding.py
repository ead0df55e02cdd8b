"""Decoder of Avro payloads to columns: pyruhvro where possible, otherwise fastavro. Undecodable payloads are isolated.

Every payload is checked to its last byte. For pyruhvro, eight random bytes are appended, which the schema reads as a
closing number: if the event ends early or late, the closing number differs.
"""

from __future__ import annotations

import io
import json
import logging
import os
import struct
from collections.abc import Callable, Sequence
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute

from airflow_provider_sfstream.salesforce.schemas import parse
from airflow_provider_sfstream.tables.decode.arrow_columns import (
    DecodedEvents,
    Undecodable,
    convert_member,
    event_times,
    joined,
    let_through,
    member_from_python,
)
from airflow_provider_sfstream.tables.decode.avro_columns import Member, members_of, needs_fastavro

log = logging.getLogger(__name__)

_PROBED_PAYLOADS = 16


class AvroDecoder:
    """Decoder of one schema's payloads: pyruhvro if it is installed and agrees with fastavro about the first payloads.

    :param schema_json: the Avro schema that the payloads were written with.
    :raises SchemaError: if the schema cannot be used to read payloads.
    """

    def __init__(self, schema_json: str) -> None:
        schema = _without_annotations(parse(schema_json))
        self.members: tuple[Member, ...] = members_of(schema_json)
        self._schema = fastavro.parse_schema(schema)
        self._schema_json = json.dumps(schema)
        framed = [{"name": "event", "type": schema}, {"name": "end", "type": "double"}]
        self._framed_json = json.dumps({"type": "record", "name": "FramedEvent", "fields": framed})
        self._end = os.urandom(8)
        self._end_number: int = struct.unpack("<q", self._end)[0]
        self._name = schema["name"]
        self._pyruhvro: Any = None if needs_fastavro(self.members) else _import_pyruhvro()
        self._probed = False

    @property
    def decoder(self) -> str:
        """Name of the library in use."""
        return "pyruhvro" if self._pyruhvro else "fastavro"

    def decode_all(self, payloads: Sequence[bytes]) -> tuple[DecodedEvents | None, list[Undecodable]]:
        """Return the events of all decodable payloads, in order, and the undecodable payloads."""
        if not self._probed and payloads:
            self._probe(payloads[:_PROBED_PAYLOADS])
        parts, failures = _isolate(self._decode, payloads)
        return joined(parts), failures

    def _decode(self, payloads: Sequence[bytes]) -> DecodedEvents:
        columns = self._with_pyruhvro(payloads) if self._pyruhvro else self._with_fastavro(payloads)
        return DecodedEvents(columns, event_times(self.members, columns, len(payloads)))

    def _with_pyruhvro(self, payloads: Sequence[bytes]) -> list[pa.Array]:
        if len(payloads) == 1:  # first without the end, whose random bytes could change the text of the error
            self._pyruhvro.deserialize_array(payloads, self._schema_json)
        framed = self._pyruhvro.deserialize_array([payload + self._end for payload in payloads], self._framed_json)
        ends = framed.column("end").view(pa.int64())  # compare bits: not every eight bytes are a number
        if pa.compute.any(pa.compute.not_equal(ends, self._end_number)).as_py():
            raise ValueError("the payload has extra bytes after the event")
        event = framed.column("event")
        event.validate(full=True)  # pyruhvro does not check that text is UTF-8
        return [convert_member(event.field(member.field), member) for member in self.members]

    def _with_fastavro(self, payloads: Sequence[bytes]) -> list[pa.Array]:
        records = [self._read(payload) for payload in payloads]
        return [member_from_python([record[member.field] for record in records], member) for member in self.members]

    def _read(self, payload: bytes) -> dict[str, Any]:
        stream = io.BytesIO(payload)
        record: dict[str, Any] = fastavro.schemaless_reader(stream, self._schema, None)
        if stream.tell() != len(payload):
            raise ValueError(f"the payload has {len(payload) - stream.tell()} extra bytes after the event")
        return record

    def _probe(self, payloads: Sequence[bytes]) -> None:
        """Decode a few payloads with fastavro too, and stop using pyruhvro if it panics or its result differs."""
        self._probed = True
        if not self._pyruhvro:
            return
        library, self._pyruhvro = self._pyruhvro, None
        parts, failures = _isolate(self._decode, payloads)
        expected, undecodable = joined(parts), {failure.row for failure in failures}
        decodable = [payload for number, payload in enumerate(payloads) if number not in undecodable]
        self._pyruhvro = library
        try:
            agrees = all(map(_same, self._with_pyruhvro(decodable), expected.columns if expected else ()))
        except BaseException as error:
            let_through(error)
            agrees = False
        if not decodable:
            self._probed = False  # there is no result to compare: probe the next batch
        elif not agrees:
            self._pyruhvro = None
            log.warning("pyruhvro failed or differs from fastavro for events of %s; using fastavro.", self._name)


def _isolate(
    decode: Callable[[Sequence[bytes]], DecodedEvents], payloads: Sequence[bytes], first: int = 0
) -> tuple[list[DecodedEvents], list[Undecodable]]:
    """Decode in as few calls as possible: split failing batches in half until each undecodable payload is isolated."""
    if not payloads:
        return [], []
    try:
        return [decode(payloads)], []
    except BaseException as error:  # a Rust panic is not an Exception
        let_through(error)
        if len(payloads) == 1:
            return [], [Undecodable.because(first, error)]
    middle = len(payloads) // 2
    parts, failures = _isolate(decode, payloads[:middle], first)
    more_parts, more_failures = _isolate(decode, payloads[middle:], first + middle)
    return parts + more_parts, failures + more_failures


def _same(one: pa.Array, other: pa.Array) -> bool:
    # As text, not-a-number equals itself.
    return bool(one.equals(other)) or one.to_string() == other.to_string()


def _without_annotations(schema: Any) -> Any:
    """Return the schema without keys that decoding does not need, so that both libraries return plain values."""
    if isinstance(schema, list):
        return [_without_annotations(branch) for branch in schema]
    if isinstance(schema, dict):
        annotations = ("doc", "default", "logicalType", "uuid")
        return {key: _without_annotations(value) for key, value in schema.items() if key not in annotations}
    return schema


def _import_pyruhvro() -> Any:
    try:
        import pyruhvro
    except ImportError:
        return None
    return pyruhvro
