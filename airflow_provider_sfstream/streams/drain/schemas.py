"""Schemas of the events of a drain. A schema that cannot be fetched does not stop the landing of its events."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from airflow_provider_sfstream.exceptions import SalesforceStreamError, SchemaError
from airflow_provider_sfstream.salesforce.schemas import parse
from airflow_provider_sfstream.streams.drain.result import ConfirmedEnd
from airflow_provider_sfstream.streams.source import EventSource

log = logging.getLogger(__name__)

NAMELESS = "the events name no schema"
MOST_FAULTS = 4
"""Consecutive transient faults after which no schema is requested until the stream has been read: a call that does not
return blocks the reading."""
_FIRST_PAUSE = 1.0
"""Seconds without a schema request after the first of these faults; doubled with each further one."""


class StreamSchemas:
    """Schemas of one source, each fetched once. An unavailable schema is no error: it is listed in ``missing``.

    A refusal, or a text that is no Avro schema, is final until :meth:`ask_again`. A transient fault is retried with one
    of the next batches, after a pause, at most :data:`MOST_FAULTS` times in a row.

    :param source: returns schemas; ``None`` for JSON payloads, which need no schema; that is no fault.
    """

    def __init__(self, source: EventSource | ConfirmedEnd, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._schemas: dict[str, str | None] = {}
        self._refused_ids: set[str] = set()
        self._faults = 0
        self._not_before = 0.0
        self.missing: dict[str, str] = {}
        """Reason why a requested schema is unavailable, by schema ID."""

    def get(self, schema_id: str) -> str | None:
        """Return the Avro schema JSON of ``schema_id``; ``None`` if unavailable. Call it again with each batch."""
        if schema_id in self._schemas:
            return self._schemas[schema_id]
        if schema_id in self._refused_ids:
            return None
        if self._faults and (self._faults >= MOST_FAULTS or self._clock() < self._not_before):
            self.missing.setdefault(schema_id, "not requested, after faults with other schemas")
            return None
        return self._fetch(schema_id)

    def ask_again(self) -> None:
        """Request each missing schema once more, after the stream has been read."""
        self._faults = 0
        for schema_id in sorted(self.missing):
            if self._faults < MOST_FAULTS and self.missing[schema_id] != NAMELESS:
                self._fetch(schema_id)

    def _fetch(self, schema_id: str) -> str | None:
        try:
            schema = self._request(schema_id)
        except SalesforceStreamError as error:
            log.info("Schema %s cannot be fetched; its events are landed without it: %s", schema_id or "''", error)
            self.missing[schema_id] = str(error)
            if not error.retriable:
                self._refused_ids.add(schema_id)
                return None
            self._not_before = self._clock() + _FIRST_PAUSE * 2**self._faults
            self._faults += 1
            if error.invalidates_token:
                self._source.renew_session()
            return None
        self._faults = 0
        self._schemas[schema_id] = schema
        self.missing.pop(schema_id, None)
        return schema

    def _request(self, schema_id: str) -> str | None:
        if not schema_id:
            raise SchemaError(NAMELESS)
        schema = self._source.schema(schema_id)
        if schema is not None:
            parse(schema)
        return schema
