"""Storage of sObject records in the org's database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

_TABLES = """
CREATE TABLE IF NOT EXISTS record (
    id TEXT PRIMARY KEY, entity TEXT NOT NULL, is_deleted INTEGER NOT NULL, system_modstamp INTEGER NOT NULL,
    content TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS record_entity ON record (entity, id);
CREATE TABLE IF NOT EXISTS counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
"""


@dataclass(frozen=True)
class StoredRecord:
    """A stored record. ``system_modstamp`` is in milliseconds since the epoch; columns not in ``content`` are null."""

    id: str
    entity: str
    content: dict[str, Any]
    system_modstamp: int
    is_deleted: bool = False


class RecordStore:
    """Table of records. Writes belong to a transaction of the caller; only :meth:`remove` commits."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        database.executescript(_TABLES)

    def get(self, record_id: str) -> StoredRecord | None:
        """Return a record, also a deleted one, by its 18-character id; ``None`` if it never existed."""
        row = self._database.execute(f"{_SELECT} WHERE id = ?", (record_id,)).fetchone()
        return _stored(row) if row else None

    def all(self, entity: str, *, include_deleted: bool = False) -> list[StoredRecord]:
        """Return the records of an entity, sorted by id."""
        condition = "" if include_deleted else " AND NOT is_deleted"
        rows = self._database.execute(f"{_SELECT} WHERE entity = ?{condition} ORDER BY id", (entity,))
        return [_stored(row) for row in rows]

    def find(self, entity: str, column: str, values: Sequence[str | float]) -> list[StoredRecord]:
        """Return the records of an entity, without deleted ones, with a column in ``values`` (case-insensitive)."""
        places = ", ".join("?" * len(values))
        condition = f"entity = ? AND NOT is_deleted AND json_extract(content, ?) COLLATE NOCASE IN ({places})"
        path = f'$."{column}"'
        rows = self._database.execute(f"{_SELECT} WHERE {condition} ORDER BY id", (entity, path, *values))
        return [_stored(row) for row in rows]

    def write(self, records: Iterable[StoredRecord]) -> None:
        """Insert or replace records."""
        self._database.executemany(
            "INSERT OR REPLACE INTO record (id, entity, is_deleted, system_modstamp, content) VALUES (?, ?, ?, ?, ?)",
            [(r.id, r.entity, r.is_deleted, r.system_modstamp, json.dumps(r.content)) for r in records],
        )

    def remove(self, record_ids: Iterable[str]) -> None:
        """Remove deleted records from the database, in a separate transaction."""
        with self._database:
            self._database.executemany("DELETE FROM record WHERE id = ? AND is_deleted", [(one,) for one in record_ids])

    def counter(self, name: str, start: int) -> int:
        """Return the last value of a counter, ``start`` for a new counter."""
        row = self._database.execute("SELECT value FROM counter WHERE name = ?", (name,)).fetchone()
        return int(row[0]) if row else start

    def set_counter(self, name: str, value: int) -> None:
        """Store the last value of a counter."""
        self._database.execute("INSERT OR REPLACE INTO counter (name, value) VALUES (?, ?)", (name, value))


_SELECT = "SELECT id, entity, content, system_modstamp, is_deleted FROM record"


def _stored(row: tuple[Any, ...]) -> StoredRecord:
    record_id, entity, content, system_modstamp, is_deleted = row
    return StoredRecord(record_id, entity, json.loads(content), system_modstamp, bool(is_deleted))
