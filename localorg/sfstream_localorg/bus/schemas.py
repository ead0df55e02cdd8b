"""Registry of Avro schemas by id."""

from __future__ import annotations

import base64
import hashlib
import json
import sqlite3
from typing import Any

import fastavro

NAMESPACE = "com.sforce.eventbus"


class SchemaRegistry:
    """All schemas that an org has ever had. Old schemas are never deleted, since retained events need them.

    An id is 22 base64url characters derived from the schema's content, so equal schemas share one id.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._json: dict[str, str] = {}
        self._parsed: dict[str, Any] = {}
        self._latest: dict[str, str] = {}
        self._names: dict[str, str] = {}
        for schema_id, name, text in database.execute("SELECT schema_id, name, json FROM schema ORDER BY registration"):
            self._json[schema_id] = text
            self._names[schema_id] = name
            self._latest[name] = schema_id

    def register(self, record_schema: dict[str, Any]) -> str:
        """Store a record schema, make it the latest of its name, and return its id.

        The stored JSON has the namespace ``com.sforce.eventbus`` and a key ``uuid`` equal to the id.

        :raises ValueError: if the schema is not a valid Avro record schema; nothing was stored.
        """
        content = {key: value for key, value in record_schema.items() if key not in ("uuid", "namespace")}
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(canonical.encode()).digest()[:16]
        schema_id = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        stored = {"type": "record", **content, "namespace": NAMESPACE, "uuid": schema_id}
        try:
            fastavro.parse_schema(json.loads(json.dumps(stored)))
        except Exception as error:
            raise ValueError(f"not a valid Avro record schema: {error}") from error
        text, name = json.dumps(stored, separators=(",", ":")), str(stored["name"])
        with self._database:
            self._database.execute(
                "INSERT INTO schema VALUES (?, ?, ?, (SELECT ifnull(max(registration), 0) + 1 FROM schema)) "
                "ON CONFLICT (schema_id) DO UPDATE SET registration = excluded.registration",
                (schema_id, name, text),
            )
        self._json[schema_id] = text
        self._names[schema_id] = name
        self._latest[name] = schema_id
        return schema_id

    def get(self, schema_id: str) -> str | None:
        """Return a schema as JSON, ``None`` if the id is unknown."""
        return self._json.get(schema_id)

    def latest(self, event_api_name: str) -> str | None:
        """Return the id of the newest schema of an event (``Order__e``), ``None`` if it has none."""
        return self._latest.get(event_api_name)

    def parsed(self, schema_id: str) -> Any:
        """Return a schema ready for fastavro.

        :raises KeyError: if the id is unknown.
        """
        if schema_id not in self._parsed:
            self._parsed[schema_id] = fastavro.parse_schema(json.loads(self._json[schema_id]))
        return self._parsed[schema_id]

    def name(self, schema_id: str) -> str | None:
        """Return the event API name of a schema, ``None`` if the id is unknown."""
        return self._names.get(schema_id)
