"""Avro schemas of events: a cache by schema id, and what Salesforce writes into them.

Payloads are schemaless Avro: each must be read with the very schema that its event names (``ProducerEvent.schema_id``).
One stream can mix schema ids, so nothing here is cached by topic. A schema never changes under its id.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from airflow_provider_sfstream.exceptions import SchemaError
from airflow_provider_sfstream.salesforce.avro import LARGEST_SCHEMA, check


def parse(schema_json: str) -> dict[str, Any]:
    """Return the record schema written in ``schema_json``. By what it returns, payloads can be read: see
    :func:`~airflow_provider_sfstream.salesforce.avro.check`.

    :raises SchemaError: if it is not JSON, or not the schema of a record, or none to read payloads by.
    """
    if len(schema_json) > LARGEST_SCHEMA:
        raise SchemaError(f"An Avro schema of {len(schema_json)} characters is none of an event.")
    try:
        schema = json.loads(schema_json)
        json.dumps(schema, ensure_ascii=False).encode()  # half of a surrogate pair is no character
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"An Avro schema is not readable as JSON: {error}.") from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise SchemaError(f"An event's Avro schema must be a record, not {str(schema)[:80]!r}.")
    check(schema)
    return schema


def record_name(schema_json: str) -> str:
    """Return the event's API name (``Order__e``, ``AccountChangeEvent``): the name of the schema's record.

    On a channel with several entities the schema is the only place that says it.
    """
    return str(parse(schema_json).get("name", "")).rpartition(".")[2]


def salesforce_type(field: dict[str, Any]) -> str | None:
    """Return the Salesforce type that a field's ``doc`` names (``DateTime``, ``DateOnly``, ``EntityId``), if any.

    ``doc`` reads ``<what>:<type>``, for example ``CreatedDate:DateTime`` or ``Data:Text:00N0…``.
    """
    parts = str(field.get("doc") or "").split(":")
    return parts[1] if len(parts) > 1 and parts[1] else None


class SchemaCache:
    """Schemas by schema id, each loaded once, also when several threads ask for it at the same time.

    :param loader: returns the schema JSON of an id; its errors pass through, and the next ``get`` asks again.
    :param persist: called once with (schema id, schema JSON) after a schema was loaded.
    """

    def __init__(self, loader: Callable[[str], str], persist: Callable[[str, str], None] | None = None) -> None:
        self._loader = loader
        self._persist = persist
        self._schemas: dict[str, str] = {}
        self._lock = threading.Lock()

    def get(self, schema_id: str) -> str:
        """Return the schema JSON of ``schema_id``.

        :raises SchemaError: if what the loader returned is not the schema of a record; it is not cached.
        """
        known = self._schemas.get(schema_id)
        if known is not None:
            return known
        with self._lock:
            if schema_id not in self._schemas:
                loaded = self._loader(schema_id)
                parse(loaded)
                if self._persist is not None:
                    self._persist(schema_id, loaded)
                self._schemas[schema_id] = loaded
            return self._schemas[schema_id]

    def __contains__(self, schema_id: str) -> bool:
        return schema_id in self._schemas
