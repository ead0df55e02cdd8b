"""The two versions of a table to compare: that of a consumer's last run, and that which readers may see now."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

import pyarrow as pa

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.delta.delta_table import TableVersion
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.delta.table_versions import TableVersions
from airflow_provider_sfstream.tables.replica.delta_sink import HISTORY, versions_named
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from airflow_provider_sfstream.tables.replica.snapshots import Snapshot
from airflow_provider_sfstream.tables.rows.history_batches import version_schema
from airflow_provider_sfstream.tables.rows.merging import table_schema
from airflow_provider_sfstream.tables.runner.engine import JobFiles

Since: TypeAlias = str | int | datetime | None
StoredFiles: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Files by path, as in ``TableVersion``."""
_SINCE = re.compile(r"(-1|\d+)(?:@([0-9a-f]{32}))?")
_EVENT_KEYS = (("window_id", "_ordinal"), ("window_id", "ordinal"))
"""Columns that identify a row of an event log, and of its quarantine."""
_REPLICA_KEYS = (("Id", "_sequence", "_valid_from"), ("Id",))
"""Columns that identify a row of a history, and of a replica."""
_REMEDY = "No row was read. Read the whole table with since=None, and replace the consumer's copy."


@dataclass(frozen=True)
class ChangedFiles:
    """Files with rows that only one of two versions has.

    :param schema: of the table.
    :param number: the later version; -1 for a table without rows.
    :param removed: files that only the earlier version has; ``added``: those that only the later one has.
    """

    location: TableLocation
    schema: pa.Schema
    key: tuple[str, ...]
    number: int = -1
    version_id: str = ""
    removed: StoredFiles = field(default_factory=dict)
    added: StoredFiles = field(default_factory=dict)

    @property
    def next_since(self) -> str:
        """Text that identifies the later version: its number, and its :func:`_version_id`."""
        return f"{self.number}@{self.version_id}" if self.version_id else str(self.number)


def changed_files(files: JobFiles, base: str, table: str, since: Since) -> ChangedFiles:
    """Return the files of a table that changed since a version.

    The later version of a replica's table is that of the current snapshot, of another table the newest.

    :param base: the output folder, as ``files`` names it.
    :raises ConfigurationError: if ``since`` or the table is invalid, or a file of the earlier version no longer exists.
    """
    location, store = files.table_location(base).below(table), SnapshotStore(files, base)
    log, snapshot = TableVersions(location), store.current()
    (number,) = versions_named([snapshot]).get(table, {None})
    if number is None and (schema := _schema_without_rows(snapshot, table)) is not None:
        return ChangedFiles(location, schema, _key(schema, _REPLICA_KEYS) or ("Id",))
    version = log.version(number)
    schema = pa.schema([] if version.opened is None else version.opened.schema().to_arrow())
    key = _key(schema, _EVENT_KEYS if number is None else _REPLICA_KEYS)
    if key is None:
        names = ", ".join(sorted(versions_named([snapshot]))) or "none"
        raise ConfigurationError(
            f"Below {base}, {table} is neither a table of an event log nor one of a replica (its tables: {names}). No "
            "row was read. Check output_url and the name of the table, with upper and lower case."
        )
    earlier, earlier_id = -1, None
    if isinstance(since, datetime):
        earlier = _number_at(since, log if number is None else store, table)
    elif since is not None:
        earlier, earlier_id = _parsed(since, location.uri, version.number)
    former = _former(log, earlier, version.number, earlier_id)
    removed, added = _difference(former, version), _difference(version, former)
    _check_exist(location, removed, earlier)
    return ChangedFiles(location, schema, key, version.number, _version_id(version), removed, added)


def _key(schema: pa.Schema, keys: tuple[tuple[str, ...], ...]) -> tuple[str, ...] | None:
    return next((key for key in keys if {*key} <= {*schema.names}), None)


def _schema_without_rows(snapshot: Snapshot, table: str) -> pa.Schema | None:
    """Return the schema of a replica's table that has no version yet; ``None`` if there is no such table."""
    for name, state in snapshot.tables.items():
        if name == table:
            return table_schema(dict(state.columns))
        if HISTORY.format(name) == table and state.history is not None:
            return version_schema(dict(state.columns))
    return None


def _version_id(version: TableVersion) -> str:
    """Return an ID of a version's rows, which no version of another table or history has: file names are random."""
    content = "\n".join((str(version.opened.metadata().id), *sorted(version.files)))
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def _parsed(since: str | int, uri: str, newest: int) -> tuple[int, str | None]:
    """Return the number of a version, and its ID if ``since`` has one."""
    match = _SINCE.fullmatch(str(since))
    if match is None:
        raise ConfigurationError(
            f"since={since!r} is not a Delta version, a value of next_since, a time or None. No row was read."
        )
    if (number := int(match[1])) > newest:
        raise ConfigurationError(
            f"{uri} has no version {number}: its version is {newest}. It was deleted and created again, or restored "
            f"from a backup, or since is of another table. {_REMEDY}"
        )
    return number, match[2]


def _number_at(time: datetime, versions: TableVersions | SnapshotStore, table: str) -> int:
    """Return the version of a table at a time, by the clock of the jobs; -1 if the table did not exist."""
    if time.tzinfo is None:
        raise ConfigurationError(f"since={time} has no time zone. Add one, for example UTC. No row was read.")
    if isinstance(versions, SnapshotStore):
        moments = [
            (snapshot.number == 1, datetime.fromisoformat(snapshot.published_at or ""), named.get(table, {-1}))
            for snapshot in versions.kept()
            for named in [versions_named([snapshot])]
        ][::-1]
    else:
        moments = [
            (entry["version"] == 0, datetime.fromtimestamp(entry["timestamp"] / 1000, UTC), {entry["version"]})
            for entry in versions.entries(-1)
        ]
    for is_first, moment, numbers in moments:
        if moment <= time:
            return min(numbers)
        if is_first:
            return -1
    raise ConfigurationError(f"The version of {table} at {time} is no longer recorded. {_REMEDY}")


def _former(log: TableVersions, number: int, newest: int, version_id: str | None) -> TableVersion:
    """Return the earlier version: after a compaction, the version that has the same rows in the compacted files."""
    if number < 0:
        return TableVersion(-1, {}, {})
    try:
        same_rows = min(log.same_rows_through(number), newest)
        former = log.version(same_rows)
        version = former if version_id is None or same_rows == number else log.version(number)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"{log.location.uri} no longer has version {number}: an erasure or the maintenance removed it from the "
            f"log. {_REMEDY}"
        ) from error
    if version_id not in (None, _version_id(version)):
        raise ConfigurationError(
            f"{log.location.uri} was deleted and created again, or restored from a backup: its version {number} is "
            f"another one than that of since. {_REMEDY}"
        )
    return former


def _difference(one: TableVersion, other: TableVersion) -> StoredFiles:
    """Return the files with rows that only the first version has."""
    return {path: file for path, file in one.files.items() if path not in other.files and file["num_records"] != 0}


def _check_exist(location: TableLocation, removed: StoredFiles, number: int) -> None:
    infos = location.filesystem().get_file_info(list(removed)) if removed else []
    if missing := [info.path for info in infos if not info.is_file]:
        raise ConfigurationError(
            f"{len(missing)} files of version {number} of {location.uri} were removed. {_REMEDY} To keep versions for "
            "longer, raise keep_snapshots of the replica, or the retention of the maintenance."
        )
