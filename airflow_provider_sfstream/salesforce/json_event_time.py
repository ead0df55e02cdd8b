"""When an event of the Streaming API happened, read from the JSON of its ``data`` without building all of it.

PushTopic and generic events tell their time in ``event.createdDate``, platform events in ``payload.CreatedDate``,
change events in ``payload.ChangeEventHeader.commitTimestamp`` (Streaming API guide; "Change Event Message Structure").
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa

from airflow_provider_sfstream.salesforce.event_time import to_datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


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
    """Reads the time of events of any type, as
    :class:`~airflow_provider_sfstream.salesforce.event_time.EventTimeReader` does for those of one Avro schema."""

    def __init__(self) -> None:
        self._data = msgspec.json.Decoder(_Data)
        self._payload = msgspec.json.Decoder(_Payload | None)

    def read(self, payload: bytes) -> datetime | None:
        """Return the time of one event, in UTC; ``None`` if it tells none or is damaged."""
        return to_datetime(self._read(payload))

    def read_many(self, payloads: Sequence[bytes]) -> pa.Int64Array:
        """Return the times of events as milliseconds since the epoch, null where :meth:`read` gives ``None``."""
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
    """Return the milliseconds since the epoch that a number, or text in ISO 8601, stands for."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if abs(value) < 2**63 else None
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return None
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND
