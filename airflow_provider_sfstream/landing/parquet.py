"""Writer of one window's events as Parquet parts: one thread encodes while another receives the next events.

Payloads land as received. Columns: ``ordinal`` (place in the window, from 0), ``replay_id``, ``event_id`` (null on most
change events), ``schema_id``, ``payload``, ``received_at``. Memory is bounded by a few row groups for any window.
"""

from __future__ import annotations

import logging
import os
import queue
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Self

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.landing.manifest import WindowFile
from airflow_provider_sfstream.landing.row_groups import PartWriter, RowGroup
from airflow_provider_sfstream.landing.storage import is_local, storage_errors, sync_folder, write_once
from airflow_provider_sfstream.salesforce.event_time import EventTimeBounds, TimeReaders, to_datetime
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.streams.source import EventBatch, PayloadEncoding

log = logging.getLogger(__name__)

ROW_GROUP_ROWS = 8_192
ROW_GROUP_BYTES = 8 * 2**20
"""Small enough to stay in a processor's cache between receipt and write; larger row groups do not."""
PART_BYTES = 256 * 2**20
_WRITER_NICENESS = 19
_MAX_QUEUED_ROW_GROUPS = 2
"""Maximum number of row groups that wait for the writing thread; beyond it, the reading of the stream pauses."""
_LAST_WRITE_SECONDS = 60.0
"""Longest wait of an abandoned window for its current write: a storage that does not respond may never finish it."""


@dataclass(frozen=True)
class WrittenWindow:
    """Result of a writer: the files for the manifest, the schemas' files by schema ID (relative to the manifest), and
    the smallest and largest event time (``None`` if no event has one, or too few could be read; the smallest is at most
    the time when the first event was received). ``without_schema``: number of events by schema ID without a schema;
    ``untimed_events``: number of events without a known event time."""

    files: tuple[WindowFile, ...]
    schemas: dict[str, str]
    event_count: int
    payload_bytes: int
    first_event_time: datetime | None
    last_event_time: datetime | None
    without_schema: dict[str, int]
    untimed_events: int


class ParquetWindowWriter:
    """Writer of batches, in order. A context manager: exit without :meth:`finish` removes its files.

    Guarantee: the files that :meth:`finish` returns are complete, and on local storage they survive a power cut. File
    names contain the attempt, so that a task that was declared dead but still runs cannot overwrite the files of its
    successor; the manifest lists the valid files.

    :param attempt: Name of this try, unique among all tries of the window: letters, digits, ``-`` and ``_``.
    :param schema: Returns the Avro schema JSON of a schema ID, ``None`` if it has none or it is not available yet: it
        is then called again with the next batch, and at the end. Called by the thread that appends.
    :param payload_encoding: Encoding of the payloads, which determines how event times are read.
    :param row_group_rows: Rows, and ``row_group_bytes`` payload bytes, after which a row group is written.
    :param part_bytes: Size in bytes of a part after which the next row group begins another part.
    """

    def __init__(
        self,
        landing: Landing,
        stream: Stream,
        window_id: str,
        *,
        attempt: str,
        schema: Callable[[str], str | None],
        payload_encoding: PayloadEncoding = "avro",
        row_group_rows: int = ROW_GROUP_ROWS,
        row_group_bytes: int = ROW_GROUP_BYTES,
        part_bytes: int = PART_BYTES,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", attempt):
            raise ConfigurationError(f"attempt={attempt!r} must be 1 to 64 letters, digits, '-' or '_'.")
        self._landing = landing
        self._stream = stream
        self._folder = landing.window_folder(stream, window_id)
        self._url = landing.manifest_url(stream, window_id).rpartition("/")[0]
        self._schema = schema
        self._schemas: dict[str, str | None] = {}
        self._without_schema: Counter[str] = Counter()
        self._row_group_rows = row_group_rows
        self._row_group_bytes = row_group_bytes
        self._parts = PartWriter(landing.filesystem, self._folder, attempt, part_bytes)
        self._event_times = EventTimeBounds(TimeReaders(payload_encoding, self._schemas.__getitem__))
        self._event_count = 0
        self._payload_bytes = 0
        self._first_received = sys.maxsize  # milliseconds since the epoch
        self._row_group = RowGroup(first_ordinal=0)
        self._queue: queue.Queue[RowGroup | None] = queue.Queue(_MAX_QUEUED_ROW_GROUPS)
        self._failure: BaseException | None = None
        self._discard = False
        self._thread: threading.Thread | None = None

    def append(self, batch: EventBatch) -> None:
        """Accept a batch. It is stored when :meth:`finish` has returned; either call may raise a storage fault."""
        self._raise_failure()
        for schema_id in set(batch.schema_ids):
            if self._has_no_schema(schema_id):
                self._without_schema[schema_id] += batch.schema_ids.count(schema_id)
        self._event_times.add(batch.schema_ids, batch.payloads)
        self._first_received = min(self._first_received, batch.received_at // 1_000_000)
        group = self._row_group
        group.add(batch)
        if len(group) >= self._row_group_rows or group.payload_bytes >= self._row_group_bytes:
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_groups, name="sfstream-landing", daemon=True)
                self._thread.start()
            self._queue.put(self._take_row_group())

    def finish(self) -> WrittenWindow:
        """Write the remaining events and the schemas, and return the result. The manifest may be written next."""
        without_schema = {id_: count for id_, count in self._without_schema.items() if self._has_no_schema(id_)}
        self._stop_thread()
        if len(self._row_group):
            # Not by the thread: its low priority would delay the end of the drain on a busy worker.
            self._write_group(self._take_row_group())
        self._raise_failure()
        with storage_errors(f"The window at {self._url} could not be written"):
            files = self._parts.finish()
            references = self._write_schemas()
            if files and is_local(self._landing.filesystem):
                sync_folder(self._folder)
        times = self._event_times
        # Skipped events that can be decoded later may lie outside of the bounds of the others.
        has_all_times = times.unread <= without_schema.keys()
        # An event dated in the future counts at the time it was received, at the earliest that of the first event.
        first = None if times.first is None else min(times.first, self._first_received)
        return WrittenWindow(
            files=files,
            schemas=references,
            event_count=self._event_count,
            payload_bytes=self._payload_bytes,
            first_event_time=to_datetime(first if has_all_times else None),
            last_event_time=to_datetime(times.last if has_all_times else None),
            without_schema=without_schema,
            untimed_events=times.untimed,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._discard = True
        if not self._stop_thread(_LAST_WRITE_SECONDS):
            log.warning("The current write to %s did not end within %.0f s.", self._url, _LAST_WRITE_SECONDS)
        elif not self._parts.finished:
            self._parts.abandon()

    def _has_no_schema(self, schema_id: str) -> bool:
        schema = self._schemas.get(schema_id)
        if schema is None:
            schema = self._schemas[schema_id] = self._schema(schema_id)
        return schema is None

    def _take_row_group(self) -> RowGroup:
        group = self._row_group
        self._event_times.settle()
        self._event_count += len(group)
        self._payload_bytes += group.payload_bytes
        self._row_group = RowGroup(first_ordinal=self._event_count)
        return group

    def _write_groups(self) -> None:
        _lower_priority()
        while (group := self._queue.get()) is not None:
            self._write_group(group)

    def _write_group(self, group: RowGroup) -> None:
        """Write a row group, or discard it after a fault, so that no caller blocks."""
        if self._discard or self._failure is not None:
            return
        try:
            self._parts.write(group.table())
        except BaseException as error:  # also a Rust panic; the appending thread raises it
            self._failure = error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            with storage_errors(f"The window at {self._url} could not be written"):
                raise self._failure

    def _stop_thread(self, seconds: float | None = None) -> bool:
        """Return whether the writing thread ended, after at most ``seconds``, if set, for each of its last steps."""
        thread, self._thread = self._thread, None
        if thread is not None:
            with suppress(queue.Full):
                self._queue.put(None, timeout=seconds)
            thread.join(seconds)
        return thread is None or not thread.is_alive()

    def _write_schemas(self) -> dict[str, str]:
        references = {}
        schemas = {schema_id: schema for schema_id, schema in self._schemas.items() if schema is not None}
        for schema_id, schema in sorted(schemas.items()):
            path = self._landing.schema_path(self._stream, schema_id)
            if not self._landing.filesystem.exists(path):
                write_once(self._landing.filesystem, path, schema.encode())
            references[schema_id] = self._landing.schema_reference(schema_id)
        return references


def _lower_priority() -> None:
    """Lower the priority of this thread on Linux, below those that read the stream.

    Otherwise its compression would occupy a processor when a response arrives that must be answered with the next
    request. It needs little: one per cent of a processor at the rates Salesforce sends.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _WRITER_NICENESS)
