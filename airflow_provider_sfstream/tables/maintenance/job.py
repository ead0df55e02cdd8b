"""The ``maintain`` job: reduce the files of the Delta tables of event logs and replicas, without changes of rows.

The job can be repeated, killed at any line, and run beside jobs that write: Delta rejects conflicting commits. Each
step is an operation of Delta: a killed one leaves the table in its state before or after it, and files that the next
run removes.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_sfstream.exceptions import ConfigurationError, PositionConflictError
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.delta.table_versions import TableVersions
from airflow_provider_sfstream.tables.maintenance.config import (
    MaintainedTableMetrics,
    MaintenanceConfig,
    MaintenanceMetrics,
)
from airflow_provider_sfstream.tables.quarantine import QUARANTINE_TABLE
from airflow_provider_sfstream.tables.replica.delta_sink import HISTORY, versions_named
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from airflow_provider_sfstream.tables.replica.snapshots import TableState
from airflow_provider_sfstream.tables.rows.event_batches import PARTITIONS
from airflow_provider_sfstream.tables.runner.engine import Engine

log = logging.getLogger(__name__)

_TRIES = 3
"""Attempts to merge files; an attempt fails if another job removed some of the files meanwhile."""
_REMEMBERED = timedelta(days=7)
"""Time for which a table's log records when a file was removed."""
_COMMIT_EVERY = timedelta(minutes=5)
"""Interval of commits of a compaction. A killed compaction retains the work committed so far."""
_UNKNOWN = "It is not a table of an event log, and the newest snapshot of a replica does not name it."
_AHEAD = (
    "Its newest version is not the version in the replica's snapshot: a job is running, or ended before it completed. "
    "The next run of the replica reverts the newer version."
)
_OTHER_SNAPSHOT = "Another job published a snapshot during this run. The next run publishes the versions of this run."


def run(engine: Engine, config: MaintenanceConfig) -> MaintenanceMetrics:
    """Compact and vacuum the tables below ``config.output_url``, in this process.

    :raises ConfigurationError: if a replica's newest snapshot is invalid or unsupported; nothing was changed.
    """
    started = time.monotonic()
    files, base = engine.files, engine.files.url(config.output_url)
    store = SnapshotStore(files, base)
    snapshot = store.current()
    names = [name for name in files.folders(base) if "_delta_log" in files.folders(f"{base}/{name}")]
    replica_tables = {*snapshot.tables, *map(HISTORY.format, snapshot.tables)}
    job = config.job or engine.application_id
    maintenance = _Maintenance(names, files.table_location(base), replace(config, job=job))
    for name in names:
        if name not in replica_tables:
            maintenance.maintain_event_table(name)
    maintenance.maintain_replica(store)
    metrics = maintenance.metrics
    metrics.seconds = round(time.monotonic() - started, 2)
    if config.metrics_url:
        files.replace_text(files.url(config.metrics_url), config.metrics_json(metrics))
    return metrics


class _Maintenance:
    """Maintenance of the tables below one folder."""

    def __init__(self, names: Collection[str], location: TableLocation, config: MaintenanceConfig) -> None:
        self._names, self._location, self._config = names, location, config
        self._replica: dict[str, _TableUpkeep] = {}
        self.metrics = MaintenanceMetrics()

    def maintain_event_table(self, name: str) -> None:
        """Compact and vacuum a table of an event log; skip a table of anything else."""
        if (upkeep := self._upkeep(name)) is None:
            return
        if not _is_of_event_log(name, upkeep.table):
            upkeep.leave(_UNKNOWN)
            return
        upkeep.compact(self._config.target_file_bytes)
        upkeep.vacuum(self._config.retention_hours, ())
        upkeep.cut_log(())

    def maintain_replica(self, store: SnapshotStore) -> None:
        """Maintain a replica's tables, and publish a snapshot if a table has a new version."""
        snapshot = store.current()
        referenced = versions_named(store.kept())
        changed: dict[str, TableState] = {}
        for name, table in snapshot.tables.items():
            # Do not merge the files of a replica table, or ID ranges would overlap: rewrites divide its file groups.
            version = self._maintain_version(name, table.version, referenced, merges=False)
            history = table.history
            if history is not None:
                history = self._maintain_version(HISTORY.format(name), history, referenced, merges=True)
            if (version, history) != (table.version, table.history):
                changed[name] = replace(table, version=version, history=history)
        if changed:
            after = replace(snapshot.next({}, changed, datetime.now(UTC)), job=self._config.job)
            try:
                snapshot = store.publish(after)
            except PositionConflictError as error:
                log.warning("%s", error)
                for name in {*changed, *map(HISTORY.format, changed)} & self._replica.keys():
                    self._replica[name].leave(_OTHER_SNAPSHOT)
        self.metrics.snapshot = snapshot.number
        # Logs are shortened only now, because a log must retain the versions that the newest snapshots name.
        referenced = versions_named(store.kept())
        for name, upkeep in self._replica.items():
            upkeep.cut_log(referenced.get(name, set()))

    def _maintain_version(
        self, name: str, number: int, referenced: Mapping[str, Collection[int]], *, merges: bool
    ) -> int:
        """Maintain a table of a replica; return the version to name in place of ``number``, which has the same rows."""
        upkeep = self._upkeep(name) if name in self._names else None
        if upkeep is None:
            return number
        newest = _newest_with_same_rows(upkeep.table, number)
        if newest is None:
            upkeep.leave(_AHEAD)
            return number
        if merges:
            upkeep.compact(self._config.target_file_bytes)
        upkeep.vacuum(self._config.retention_hours, {*referenced.get(name, ()), number})
        self._replica[name] = upkeep
        return upkeep.table.same_rows_through(newest)

    def _upkeep(self, name: str) -> _TableUpkeep | None:
        """Return the maintenance of a table; ``None`` if its files alone do not determine its rows."""
        table = TableVersions(self._location.below(name), self._config.job)
        upkeep = _TableUpkeep(table, self.metrics.tables.setdefault(name, MaintainedTableMetrics()))
        try:
            upkeep.begin()
        except ConfigurationError as error:
            upkeep.leave(str(error))
            return None
        return upkeep


def _is_of_event_log(name: str, table: TableVersions) -> bool:
    delta_table = table.table()
    columns = {field.name for field in delta_table.schema().fields}
    if name == QUARANTINE_TABLE:
        return {"window_id", "payload", "reason"} <= columns
    is_by_date = delta_table.metadata().partition_columns == ["event_date"]
    return columns >= {*PARTITIONS, "_replay_id", "_topic"} and is_by_date


def _newest_with_same_rows(table: TableVersions, number: int) -> int | None:
    """Return the number of the newest version, ``None`` if its rows may differ from those of version ``number``."""
    newest = table.version()
    if number < 0:
        return None
    has_same_files = newest.files.keys() == table.version(number).files.keys()
    return newest.number if has_same_files or table.same_rows_through(number) >= newest.number else None


class _TableUpkeep:
    """Maintenance of one table. Each step updates the table's metrics."""

    def __init__(self, table: TableVersions, metrics: MaintainedTableMetrics) -> None:
        self.table, self._metrics = table, metrics

    def begin(self) -> None:
        """Read the table; raise a ``ConfigurationError`` if its files alone do not determine its rows."""
        self._count()
        self._metrics.files_before, self._metrics.version_before = self._metrics.files, self._metrics.version

    def leave(self, why: str) -> None:
        """Log and record why the maintenance of the table is not completed."""
        log.warning("%s: the maintenance is not completed: %s", self.table.location.uri, why)
        self._metrics.left = why

    def compact(self, target_bytes: int) -> None:
        """Merge files that are smaller than the target, separately in each partition."""
        from deltalake.exceptions import CommitFailedError

        for _ in range(_TRIES):
            try:
                metrics = self.table.table().optimize.compact(
                    target_size=target_bytes,
                    max_concurrent_tasks=1,
                    min_commit_interval=_COMMIT_EVERY,
                    commit_properties=self.table.keeping_rows(),
                )
            except CommitFailedError as error:
                log.info("%s: another job committed during the merge (%s).", self.table.location.uri, error)
            else:
                removed, added = metrics["numFilesRemoved"], metrics["numFilesAdded"]
                log.info("%s: merged %d files into %d.", self.table.location.uri, removed, added)
                self._count()
                return
        self.leave("Other jobs rewrote its files during each attempt to merge them. The next run merges small files.")

    def vacuum(self, retention_hours: int, kept: Iterable[int]) -> None:
        """Remove files that no version needs, including those of killed jobs.

        Retained are the files of the newest version, of ``kept``, of every version that was the newest one within the
        retention, and all younger files. If there is no file to remove, nothing is committed.
        """
        table = self.table.table()
        keep = sorted({*self._readable(kept), *_newest_within(table, timedelta(hours=retention_hours))})
        options: dict[str, Any] = {"enforce_retention_duration": False, "full": True, "keep_versions": keep}
        unused = table.vacuum(retention_hours, dry_run=True, **options)
        if not unused:
            return
        sizes = {file.path: file.size or 0 for file in self.table.location.filesystem().get_file_info(unused)}
        removed = table.vacuum(retention_hours, dry_run=False, commit_properties=self.table.keeping_rows(), **options)
        self._metrics.removed_files = len(removed)
        self._metrics.removed_bytes = sum(sizes.get(path, 0) for path in removed)
        log.info("%s: removed %d files.", self.table.location.uri, len(removed))
        self._count()

    def cut_log(self, kept: Iterable[int]) -> None:
        """Write a checkpoint of the newest version. Remove the log entries that versions from the oldest of ``kept`` do
        not need, once they exceed the table's log retention (default: 30 days)."""
        table = self.table.table()
        if self._checkpoint() < table.version():
            table.create_checkpoint()
        self.table.table(min([*self._readable(kept), table.version()])).cleanup_metadata()

    def _count(self) -> None:
        version = self.table.version()
        self._metrics.files, self._metrics.version = len(version.files), version.number

    def _readable(self, numbers: Iterable[int]) -> list[int]:
        readable = []
        for number in numbers:
            try:
                self.table.table(number)
            except ConfigurationError as error:  # another program removed its log: its files cannot be retained
                log.warning("%s", error)
            else:
                readable.append(number)
        return readable

    def _checkpoint(self) -> int:
        """Return the version of the newest checkpoint, -1 if there is none."""
        try:
            with self.table.location.filesystem().open_input_stream("_delta_log/_last_checkpoint") as stream:
                return int(json.loads(stream.read())["version"])
        except (FileNotFoundError, ValueError, KeyError):
            return -1


def _newest_within(table: Any, retention: timedelta) -> list[int]:
    """Return the versions that were the newest one within the retention, and for which the log no longer records when
    files were removed."""
    if retention <= _REMEMBERED:
        return []
    now = datetime.now(UTC)
    versions: list[int] = []
    for entry in table.history():  # newest first
        moment = datetime.fromtimestamp(entry["timestamp"] / 1000, UTC)
        if moment < now - _REMEMBERED:
            versions.append(entry["version"])
        if moment < now - retention:
            break
    return versions
