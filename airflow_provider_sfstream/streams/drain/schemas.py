"""The schemas that events name, fetched beside the stream: whatever becomes of one, its events land."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from airflow_provider_sfstream.exceptions import SalesforceStreamError, SchemaError
from airflow_provider_sfstream.salesforce.schemas import parse

log = logging.getLogger(__name__)

NAMELESS = "the events name no schema"
MOST_FAULTS = 4
"""Faults in a row that may pass, after which schemas are not asked for until the stream has been read: a call that
hangs holds up the reading."""
_FIRST_PAUSE = 1.0
"""Seconds after such a fault, doubled with each, in which no schema is asked for."""


class SchemaSource(Protocol):
    """A place to fetch schemas from."""

    def schema(self, schema_id: str) -> str | None:
        """Return the Avro schema JSON of ``schema_id``, ``None`` if there is none."""
        ...

    def renew_session(self) -> None:
        """Forget the access token, so that the next call logs in again."""
        ...


class StreamSchemas:
    """Gives the schemas of one source, each fetched once. One that cannot be had is no error: it is ``missing``.

    A refusal, and a text that is no Avro schema, stand until :meth:`ask_again`. A fault that may pass is tried again
    with one of the next batches, after a pause, :data:`MOST_FAULTS` times in a row at most.

    :param source: gives schemas; for JSON payloads ``None`` where they have to speak for themselves, which is no fault.
    :param clock: monotonic seconds.
    """

    def __init__(self, source: SchemaSource, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._had: dict[str, str | None] = {}
        self._refused: set[str] = set()
        self._faults = 0
        self._not_before = 0.0
        self.missing: dict[str, str] = {}
        """Why a schema cannot be had, by schema id, of those that were asked for."""

    def get(self, schema_id: str) -> str | None:
        """Return the Avro schema JSON of ``schema_id``; ``None`` if there is none, or none yet. Ask with each batch."""
        if schema_id in self._had:
            return self._had[schema_id]
        if schema_id in self._refused:
            return None
        if self._faults and (self._faults >= MOST_FAULTS or self._clock() < self._not_before):
            self.missing.setdefault(schema_id, "not asked for, after faults with other schemas")
            return None
        return self._fetch(schema_id)

    def ask_again(self) -> None:
        """Ask once more for each schema that is missing, when the stream has been read."""
        self._faults = 0
        for schema_id in sorted(self.missing):
            if self._faults < MOST_FAULTS and self.missing[schema_id] != NAMELESS:
                self._fetch(schema_id)

    def _fetch(self, schema_id: str) -> str | None:
        try:
            schema = self._ask(schema_id)
        except SalesforceStreamError as error:
            log.info("Schema %s cannot be had; its events land without it: %s", schema_id or "''", error)
            self.missing[schema_id] = str(error)
            if not error.retriable:
                self._refused.add(schema_id)
                return None
            self._not_before = self._clock() + _FIRST_PAUSE * 2**self._faults
            self._faults += 1
            if error.invalidates_token:
                self._source.renew_session()
            return None
        self._faults = 0
        self._had[schema_id] = schema
        self.missing.pop(schema_id, None)
        return schema

    def _ask(self, schema_id: str) -> str | None:
        if not schema_id:
            raise SchemaError(NAMELESS)
        schema = self._source.schema(schema_id)
        if schema is not None:
            parse(schema)
        return schema
