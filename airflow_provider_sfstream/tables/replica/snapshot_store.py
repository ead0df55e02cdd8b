"""Snapshots of a replica in its output folder: reading, publishing and removing them.

The columns of a table are written before the first snapshot that names them, and removed before the last one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from airflow_provider_sfstream.exceptions import PositionConflictError
from airflow_provider_sfstream.tables.replica.snapshots import Snapshot, StreamState, TableState
from airflow_provider_sfstream.tables.replica.table_schemas import StoredSchema, hash_of
from airflow_provider_sfstream.tables.runner.engine import JobFiles

FOLDER = "_sfstream/replica/snapshots"
PAGE = 1_000
"""Window IDs of a page. A snapshot names those of the last one to two pages; older pages never change."""
_FILE_NAME = re.compile(r"(\d{12})\.json")
_SCHEMA_NAME = re.compile(r"(\d{12})-[0-9a-f]{16}")


class SnapshotStore:
    """Snapshots below one output folder. Only the job that writes there may publish and remove them."""

    def __init__(self, files: JobFiles, base: str) -> None:
        self._files = files
        self._folder = f"{base}/{FOLDER}"
        self._windows = f"{base}/_sfstream/replica/windows"
        self._schemas = f"{base}/_sfstream/replica/schemas"
        self._snapshots: dict[int, Snapshot] = {}

    def current(self) -> Snapshot:
        """Return the current snapshot of the replica; its number is 0 if there is no replica.

        :raises ConfigurationError: if the newest snapshot is invalid or of an unsupported version.
        """
        numbers = self._numbers()
        return self.read(numbers[-1]) if numbers else Snapshot()

    def read(self, number: int) -> Snapshot:
        """Return one snapshot.

        The columns of its tables are read at their first use. If a job has removed the snapshot by then, that read
        raises ``FileNotFoundError`` too.

        :raises FileNotFoundError: if the snapshot was removed.
        """
        if number not in self._snapshots:
            url = self._url(number)
            self._snapshots[number] = Snapshot.from_json(self._files.read_text(url), url, self._stored_schema)
        return self._snapshots[number]

    def kept(self) -> list[Snapshot]:
        """Return all snapshots, oldest first; those that a job removes meanwhile may be missing."""
        snapshots = []
        for number in self._numbers():
            with suppress(FileNotFoundError):
                snapshots.append(self.read(number))
        return snapshots

    def older_windows(self, stream: str, pages: int) -> Iterator[list[str]]:
        """Yield the window IDs of each page of a stream, the newest page first."""
        for number in reversed(range(pages)):
            yield json.loads(self._files.read_text(self._page_url(stream, number)))

    def _stored_schema(self, table: str, name: str) -> StoredSchema:
        """Return a stored schema; raise a ``ValueError`` if the name is invalid."""
        if not _SCHEMA_NAME.fullmatch(name):
            raise ValueError(f"invalid schema name {name[:80]!r}")
        return StoredSchema(name, f"{self._schemas}/{table}/{name}.json", self._files.read_text)

    def _page_url(self, stream: str, number: int) -> str:
        name = hashlib.sha256(stream.encode()).hexdigest()[:16]
        return f"{self._windows}/{name}/{number:09d}.json"

    def _numbers(self) -> list[int]:
        names = map(_FILE_NAME.fullmatch, self._files.file_names(self._folder))
        return sorted(int(match[1]) for match in names if match)

    def _url(self, number: int) -> str:
        return f"{self._folder}/{number:012d}.json"

    def publish(self, snapshot: Snapshot) -> Snapshot:
        """Publish ``snapshot`` as the current state of the replica; return it as published.

        :raises PositionConflictError: if another job published a snapshot of this number. That one is valid, and the
            files of this one are never read.
        """
        streams = {key: self._with_pages(key, state) for key, state in snapshot.streams.items()}
        schemas = {name: self._stored(name, table, snapshot.number) for name, table in snapshot.tables.items()}
        tables = {
            name: table if table.stored_schema is schemas[name] else replace(table, **schemas[name].parts())
            for name, table in snapshot.tables.items()
        }
        snapshot = replace(snapshot, streams=streams, tables=tables)
        try:
            text = snapshot.to_json({name: stored.name for name, stored in schemas.items()})
            self._files.create_text(self._url(snapshot.number), text)
        except FileExistsError as error:
            winner = self.read(snapshot.number).job or "another job"
            raise PositionConflictError(
                f"Snapshot {snapshot.number} of the replica below {self._folder} was published by {winner} while this "
                "job ran. The snapshot of this job was not published; run the job again. Allow only one job at a time "
                "to write to an output folder (max_active_runs=1, or a pool of one slot)."
            ) from error
        self._snapshots[snapshot.number] = snapshot
        return snapshot

    def divided(self, keep: int) -> tuple[list[Snapshot], list[Snapshot]]:
        """Return all but the last ``keep`` snapshots, and the last ``keep``, each oldest first."""
        snapshots = [self.read(number) for number in self._numbers()]
        return snapshots[:-keep], snapshots[-keep:]

    def prune(self, gone: Sequence[Snapshot], kept: Sequence[Snapshot]) -> None:
        """Remove snapshots, whose other files are already removed, and the schemas that only they name."""
        for name in sorted({name for snapshot in gone for name in snapshot.tables}):
            live = _schemas_named(kept, name)
            if _schemas_named(gone, name) - live:
                self._remove_schemas(name, live, kept[-1].number)
        for snapshot in gone:
            self.remove(snapshot)

    def remove(self, snapshot: Snapshot) -> None:
        """Remove the document of a snapshot."""
        self._snapshots.pop(snapshot.number, None)
        self._files.delete(self._url(snapshot.number))

    def _remove_schemas(self, table: str, live: Collection[str], newest: int) -> None:
        """Remove the schemas of a table that are not in ``live``, including those of killed runs.

        Schemas written for a snapshot after ``newest`` stay, because another job may be about to publish it. No later
        snapshot can name an older schema that ``newest`` does not name.
        """
        for file in self._files.file_names(f"{self._schemas}/{table}"):
            name = file.removesuffix(".json")
            match = _SCHEMA_NAME.fullmatch(name)
            if match and int(match[1]) <= newest and name not in live:
                self._files.delete(f"{self._schemas}/{table}/{file}")

    def _stored(self, name: str, table: TableState, number: int) -> StoredSchema:
        """Return the document of a table's columns for a snapshot: that of the previous one if they did not change."""
        stored = table.stored_schema
        if stored is not None and stored.url == self._stored_schema(name, stored.name).url:
            return stored
        content = table.schema
        text = content.to_json()
        before = self._snapshots.get(number - 1, Snapshot()).tables.get(name)
        stored = None if before is None else before.stored_schema
        if stored is None or not stored.name.endswith(hash_of(text)):
            stored = self._stored_schema(name, f"{number:012d}-{hash_of(text)}")
            self._files.replace_text(stored.url, text)
        stored.content = content
        return stored

    def _with_pages(self, stream: str, state: StreamState) -> StreamState:
        """Return the state with at most two pages of recent windows. A repeated run writes the same page again."""
        while len(state.recent) > 2 * PAGE:
            self._files.replace_text(self._page_url(stream, state.pages), json.dumps(state.recent[:PAGE]))
            state = replace(state, recent=state.recent[PAGE:], pages=state.pages + 1)
        return state


def _schemas_named(snapshots: Sequence[Snapshot], table: str) -> set[str]:
    """Return the names of a table's schemas that snapshots name."""
    states = (snapshot.tables[table] for snapshot in snapshots if table in snapshot.tables)
    return {stored.name for stored in (state.stored_schema for state in states) if stored is not None}
