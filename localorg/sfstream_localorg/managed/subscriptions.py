"""Managed event subscriptions: their records and committed positions, stored in the database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from sfstream_localorg.errors import ApiError
from sfstream_localorg.identifiers import numbered
from sfstream_localorg.managed.settings import STOP, ManagedSettings
from sfstream_localorg.managed.slots import Slots

KEY_PREFIX = "18x"
MOST_RECORDS = 200
"""Maximum number of managed subscriptions in an org."""

_TABLES = """
CREATE TABLE IF NOT EXISTS managed_subscription (
    number INTEGER PRIMARY KEY AUTOINCREMENT, developer_name TEXT NOT NULL, settings TEXT NOT NULL, seen TEXT,
    created_at REAL NOT NULL, changed_at REAL NOT NULL, visible_at REAL NOT NULL,
    is_deleted INTEGER NOT NULL DEFAULT 0, committed INTEGER);
"""
_SELECT = (
    "SELECT number, developer_name, settings, seen, created_at, changed_at, visible_at, is_deleted, committed "
    "FROM managed_subscription ORDER BY number"
)


@dataclass
class ManagedRecord:
    """One ManagedEventSubscription. Times are in seconds since the epoch.

    ``seen`` are the settings that the Pub/Sub API uses until ``visible_at``, ``None`` for a new record.
    ``committed`` is the position of the last committed replay ID, ``None`` without a commit.
    """

    number: int
    developer_name: str
    settings: ManagedSettings
    seen: ManagedSettings | None
    created_at: float
    changed_at: float
    visible_at: float
    is_deleted: bool = False
    committed: int | None = None

    @property
    def id(self) -> str:
        """Record id: 18 characters, ``18x...``."""
        return numbered(KEY_PREFIX, self.number)


class ManagedSubscriptions:
    """All managed subscriptions of one org. The Pub/Sub API sees changes after a delay.

    :param visibility: returns the delay in seconds.
    :param clock: returns the time in seconds since the epoch.
    :param slots: the slots of the subscriptions.
    """

    def __init__(
        self, database: sqlite3.Connection, *, visibility: Callable[[], float], clock: Callable[[], float], slots: Slots
    ) -> None:
        self._database = database
        self._visibility = visibility
        self._clock = clock
        self.slots = slots
        database.executescript(_TABLES)
        self._records = {record.id: record for record in map(_record, database.execute(_SELECT).fetchall())}

    def __iter__(self) -> Iterator[ManagedRecord]:
        """Iterate over the records that the Tooling API shows, oldest first."""
        return iter([record for record in self._apply_visible_changes() if not record.is_deleted])

    def get(self, record_id: str) -> ManagedRecord | None:
        """Return the record with an 18-character id, ``None`` if it does not exist."""
        return next((record for record in self if record.id == record_id), None)

    def named(self, developer_name: str) -> ManagedRecord | None:
        """Return the record with a developer name, ``None`` if it does not exist. The name is case-insensitive."""
        return next((one for one in self if one.developer_name.lower() == developer_name.lower()), None)

    def create(self, developer_name: str, settings: ManagedSettings) -> ManagedRecord:
        """Create a record.

        :raises ApiError: if a record has this name, or the org has the maximum number of records.
        """
        if self.named(developer_name) is not None:
            message = "The developer name you provided is already in use. Choose a different name."
            raise ApiError("DUPLICATE_DEVELOPER_NAME", message, fields=("DeveloperName",))
        if len(list(self)) >= MOST_RECORDS:
            raise ApiError("LIMIT_EXCEEDED", f"An org can have at most {MOST_RECORDS} managed event subscriptions.")
        now = self._clock()
        visible_at = now + self._visibility()
        with self._database:
            cursor = self._database.execute(
                "INSERT INTO managed_subscription (developer_name, settings, created_at, changed_at, visible_at) "
                "VALUES (?, ?, ?, ?, ?)",
                (developer_name, json.dumps(asdict(settings)), now, now, visible_at),
            )
        record = ManagedRecord(int(cursor.lastrowid or 0), developer_name, settings, None, now, now, visible_at)
        self._records[record.id] = record
        return record

    def update(self, record: ManagedRecord, settings: ManagedSettings) -> None:
        """Replace the settings of a record.

        :raises ApiError: if the new settings name another topic.
        """
        record.settings.check_change(settings)
        record.seen, record.settings = self.visible(record), settings
        self._write_change(record)

    def delete(self, record: ManagedRecord) -> None:
        """Delete a record and its committed position."""
        record.seen, record.is_deleted = self.visible(record), True
        self._write_change(record)

    def visible(self, record: ManagedRecord) -> ManagedSettings | None:
        """Return the settings that the Pub/Sub API uses now, ``None`` if it does not see the record.

        A shorter delay also applies to earlier changes; a longer delay does not hide changes that were visible.
        """
        if self.seconds_until_visible(record) > 0:
            return record.seen
        return None if record.is_deleted else record.settings

    def seconds_until_visible(self, record: ManagedRecord) -> float:
        """Return the seconds until the Pub/Sub API sees the last change of a record; 0 or less if it does."""
        return min(record.visible_at, record.changed_at + self._visibility()) - self._clock()

    def find(self, *, record_id: str = "", developer_name: str = "") -> ManagedRecord | None:
        """Return the record that the Pub/Sub API sees under an 18-character id or a developer name, else ``None``."""
        for record in self._apply_visible_changes():
            is_meant = record.id == record_id if record_id else record.developer_name == developer_name
            if is_meant and self.visible(record) is not None:
                return record
        return None

    def commit(self, record: ManagedRecord, position: int) -> None:
        """Store a committed position. It survives a killed process when the call returns."""
        record.committed = position
        self._write(record)

    def _write_change(self, record: ManagedRecord) -> None:
        record.changed_at = self._clock()
        record.visible_at = record.changed_at + self._visibility()
        self._write(record)
        self._apply_visible_changes()

    def _apply_visible_changes(self) -> list[ManagedRecord]:
        """Apply changes that are now visible: discard positions of stopped subscriptions, remove deleted records."""
        for record in list(self._records.values()):
            settings = self.visible(record)
            if record.is_deleted and settings is None:
                with self._database:
                    self._database.execute("DELETE FROM managed_subscription WHERE number = ?", (record.number,))
                del self._records[record.id]
            elif settings is record.settings and settings.state == STOP and record.committed is not None:
                record.committed = None
                self._write(record)
        return list(self._records.values())

    def _write(self, record: ManagedRecord) -> None:
        seen = None if record.seen is None else json.dumps(asdict(record.seen))
        with self._database:
            self._database.execute(
                "UPDATE managed_subscription SET settings = ?, seen = ?, changed_at = ?, visible_at = ?, "
                "is_deleted = ?, committed = ? WHERE number = ?",
                (
                    *(json.dumps(asdict(record.settings)), seen, record.changed_at, record.visible_at),
                    *(record.is_deleted, record.committed, record.number),
                ),
            )


def _record(row: tuple[Any, ...]) -> ManagedRecord:
    number, developer_name, settings, seen, created_at, changed_at, visible_at, is_deleted, committed = row
    return ManagedRecord(
        number,
        developer_name,
        ManagedSettings(**json.loads(settings)),
        None if seen is None else ManagedSettings(**json.loads(seen)),
        created_at,
        changed_at,
        visible_at,
        bool(is_deleted),
        committed,
    )
