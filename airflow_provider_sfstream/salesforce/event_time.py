"""Event times, read without decoding the whole payload, with the schema that its event names.

Avro writes a record's fields one after the other, so a schema that ends after the time field decodes only the beginning
of the payload. A platform event has its time in ``CreatedDate``, a change event in
``ChangeEventHeader.commitTimestamp``; both are milliseconds since the epoch. Some event types have neither.

JSON of the Streaming API has the same fields in its ``payload``; PushTopic and generic events have their time in
``event.createdDate`` (Streaming API guide; "Change Event Message Structure").
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import fastavro
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyruhvro

from airflow_provider_sfstream.exceptions import SalesforceStreamError, SchemaError
from airflow_provider_sfstream.salesforce.events import PayloadEncoding
from airflow_provider_sfstream.salesforce.schemas import parse

log = logging.getLogger(__name__)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HEADER, _COMMIT_TIMESTAMP, _CREATED_DATE = "ChangeEventHeader", "commitTimestamp", "CreatedDate"
_MILLISECOND = timedelta(milliseconds=1)


class EventTimeReader:
    """Reader of the times of events of one schema."""

    def __init__(self, schema_json: str) -> None:
        self._path: tuple[str, ...] = ()
        self._prefix_json: str | None = None
        self._vectorised = True
        schema = parse(schema_json)
        try:
            cut = _cut(schema)
            if cut is not None:
                prefix, self._path = cut
                self._prefix_json = json.dumps(prefix)
                self._prefix = fastavro.parse_schema(prefix)
        except Exception as error:  # any error that invalid fields cause
            raise SchemaError(f"The schema of a record is not valid Avro ({type(error).__name__}).") from error

    def read(self, payload: bytes) -> datetime | None:
        """Return the time of one event, in UTC; ``None`` if it has none or is damaged."""
        return to_datetime(self._read(payload))

    def read_many(self, payloads: Sequence[bytes]) -> pa.Int64Array:
        """Return the times of events as milliseconds since the epoch, null where :meth:`read` returns ``None``.

        Decodes all of them in one step; if that fails, because of a damaged payload or a type that the vectorised
        decoder does not support, reads the batch one by one. Never raises because of a payload.
        """
        if self._prefix_json is None:
            return pa.nulls(len(payloads), pa.int64())
        if self._vectorised:
            try:
                return self._decode(payloads)
            except ValueError:
                log.debug("A payload does not match its schema; reading %d event times one by one.", len(payloads))
            except BaseException as error:
                # A Rust panic is a BaseException of a class that its extension module does not export.
                if type(error).__name__ != "PanicException":
                    raise
                self._vectorised = False
        return pa.array([self._read(payload) for payload in payloads], pa.int64())

    def _decode(self, payloads: Sequence[bytes]) -> pa.Int64Array:
        column: Any = pyruhvro.deserialize_array(list(payloads), self._prefix_json)
        for name in self._path:
            column = column.column(name) if isinstance(column, pa.RecordBatch) else column.field(name)
        return column.cast(pa.int64())

    def _read(self, payload: bytes) -> int | None:
        if self._prefix_json is None:
            return None
        try:
            value: Any = fastavro.schemaless_reader(io.BytesIO(payload), self._prefix, None)
        except Exception:  # fastavro raises errors of many classes for a damaged payload
            return None
        for name in self._path:
            value = value[name]
        return value if isinstance(value, int) else None


def to_datetime(milliseconds: int | None) -> datetime | None:
    """Return the UTC time of ``milliseconds`` since the epoch; ``None`` for ``None`` or a time outside the calendar."""
    if milliseconds is None:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def _cut(schema: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]] | None:
    """Return ``schema`` up to and including its time field, and the path to that field."""
    fields = schema["fields"]
    if fields and fields[0].get("name") == _HEADER and isinstance(fields[0].get("type"), dict):
        header = fields[0]["type"]
        inner = _up_to(header.get("fields") or [], _COMMIT_TIMESTAMP)
        if inner is None:
            return None
        return {**schema, "fields": [{**fields[0], "type": {**header, "fields": inner}}]}, (_HEADER, _COMMIT_TIMESTAMP)
    outer = _up_to(fields, _CREATED_DATE)
    return None if outer is None else ({**schema, "fields": outer}, (_CREATED_DATE,))


def _up_to(fields: list[dict[str, Any]], name: str) -> list[dict[str, Any]] | None:
    """Return the fields up to the one called ``name`` if its type is long, or a union of long and null."""
    for index, field in enumerate(fields):
        if field.get("name") == name:
            type_ = _plain_long(field.get("type"))
            return None if type_ is None else [*fields[:index], {"name": name, "type": type_}]
    return None


def _plain_long(type_: Any) -> Any:
    """Return ``type_`` without its logical type, which would decode to a timestamp; ``None`` if it is not a long."""
    if isinstance(type_, list) and len(type_) == 2 and "null" in type_:
        branches = [branch if branch == "null" else _plain_long(branch) for branch in type_]
        return None if None in branches else branches
    if isinstance(type_, dict):
        type_ = type_.get("type")
    return type_ if type_ == "long" else None


class _Event(msgspec.Struct):
    created_date: Any = msgspec.field(default=None, name="createdDate")


class _Header(msgspec.Struct):
    commit_timestamp: Any = msgspec.field(default=None, name="commitTimestamp")


class _Payload(msgspec.Struct):
    header: _Header | None = msgspec.field(default=None, name="ChangeEventHeader")
    created_date: Any = msgspec.field(default=None, name="CreatedDate")


class _Data(msgspec.Struct):
    event: _Event | None = None
    payload: msgspec.Raw = msgspec.Raw(b"null")


class JsonEventTimeReader:
    """Reader of the times of events of any type, as :class:`EventTimeReader` reads those of one Avro schema."""

    def __init__(self) -> None:
        self._data = msgspec.json.Decoder(_Data)
        self._payload = msgspec.json.Decoder(_Payload | None)

    def read(self, payload: bytes) -> datetime | None:
        """Return the time of one event, in UTC; ``None`` if it has none or is damaged."""
        return to_datetime(self._read(payload))

    def read_many(self, payloads: Sequence[bytes]) -> pa.Int64Array:
        """Return the times of events as milliseconds since the epoch, null where :meth:`read` returns ``None``."""
        return pa.array(map(self._read, payloads), pa.int64())

    def _read(self, payload: bytes) -> int | None:
        try:
            data = self._data.decode(payload)
            if data.event is not None and data.event.created_date is not None:
                return _milliseconds(data.event.created_date)
            body = self._payload.decode(data.payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # damaged, or a generic event's plain text
            return None
        if body is None:
            return None
        return _milliseconds(body.created_date if body.header is None else body.header.commit_timestamp)


def _milliseconds(value: object) -> int | None:
    """Return the milliseconds since the epoch of a number, or of a text in ISO 8601."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if abs(value) < 2**63 else None
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return None
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND


TimeReader: TypeAlias = EventTimeReader | JsonEventTimeReader
"""Reader of event times from payloads of one encoding and schema."""


def time_reader(encoding: PayloadEncoding, schema: str | None) -> TimeReader:
    """Return the reader of payloads in ``encoding``.

    :param schema: the Avro schema JSON of Avro payloads. JSON payloads need none.
    """
    return JsonEventTimeReader() if encoding == "json" else EventTimeReader(schema or "")


class TimeReaders:
    """Readers of the event times of a stream with mixed schemas, one for each schema ID.

    :param schema: Returns the schema of a schema ID, or ``None`` while it is unavailable. Called for Avro payloads
        only, and not again for an ID whose schema was returned.
    """

    def __init__(self, encoding: PayloadEncoding, schema: Callable[[str], str | None]) -> None:
        self._encoding = encoding
        self._schema = schema
        self._readers: dict[str, TimeReader] = {}

    def reader_of(self, schema_id: str) -> TimeReader | None:
        """Return the reader for events of ``schema_id``; ``None`` while no usable schema is available, because a
        missing schema must not stop the stream."""
        reader = self._readers.get(schema_id)
        if reader is None:
            try:
                schema = self._schema(schema_id) if self._encoding == "avro" else None
                reader = self._readers[schema_id] = time_reader(self._encoding, schema)
            except SalesforceStreamError:
                return None
        return reader

    def times(self, schema_ids: Sequence[str], payloads: Sequence[bytes]) -> list[int | None]:
        """Return the event times of the payloads in milliseconds since the epoch; ``None`` where a payload has no time
        or its schema is unavailable."""
        distinct = set(schema_ids)
        if len(distinct) == 1:
            return self._read(schema_ids[0], payloads)
        times: list[int | None] = [None] * len(payloads)
        for schema_id in distinct:
            indexes = [index for index, id_ in enumerate(schema_ids) if id_ == schema_id]
            for index, time in zip(indexes, self._read(schema_id, [payloads[index] for index in indexes]), strict=True):
                times[index] = time
        return times

    def _read(self, schema_id: str, payloads: Sequence[bytes]) -> list[int | None]:
        reader = self.reader_of(schema_id)
        times: list[int | None] = [None] * len(payloads) if reader is None else reader.read_many(payloads).to_pylist()
        return times


class EventTimeBounds:
    """Smallest and largest event time of many events, in milliseconds since the epoch; ``None`` without a known time.

    :meth:`add` collects payloads and :meth:`settle` reads them, thousands in one step. A step for each small batch
    would cost several times as much and block the thread that receives the stream. If a schema is still unavailable
    when :meth:`settle` is called, its events are skipped, and its ID is added to ``unread``. ``untimed`` counts the
    events without a known time.
    """

    def __init__(self, readers: TimeReaders) -> None:
        self._readers = readers
        self._payloads: dict[str, list[bytes]] = {}
        self.first: int | None = None
        self.last: int | None = None
        self.unread: set[str] = set()
        self.untimed = 0

    def add(self, schema_ids: Sequence[str], payloads: Sequence[bytes]) -> None:
        """Collect events for the next :meth:`settle`."""
        for schema_id in set(schema_ids):
            schema_payloads = self._payloads.setdefault(schema_id, [])
            if schema_ids.count(schema_id) == len(payloads):
                schema_payloads += payloads
            else:
                events = zip(schema_ids, payloads, strict=True)
                schema_payloads += [payload for id_, payload in events if id_ == schema_id]

    def settle(self) -> None:
        """Read the collected events, then discard them."""
        for schema_id, payloads in self._payloads.items():
            if not payloads:
                continue
            reader = self._readers.reader_of(schema_id)
            if reader is None:
                self.unread.add(schema_id)
                self.untimed += len(payloads)
            else:
                self._include(reader.read_many(payloads))
            payloads.clear()

    def _include(self, times: pa.Int64Array) -> None:
        self.untimed += times.null_count
        bounds = pc.min_max(times).as_py()
        if bounds["min"] is not None:
            self.first = bounds["min"] if self.first is None else min(self.first, bounds["min"])
            self.last = bounds["max"] if self.last is None else max(self.last, bounds["max"])
