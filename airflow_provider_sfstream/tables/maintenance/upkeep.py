"""Maintenance of one Delta table: merge its files, remove unused files, remove old log entries.

Each step is an operation of Delta, and changes no row. If a step is killed, the table is in its state before or after
the step, and the next run removes leftover files.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.delta.table_versions import TableVersions
from airflow_provider_sfstream.tables.maintenance.config import MaintainedTableMetrics

log = logging.getLogger(__name__)

_TRIES = 3
"""Attempts to merge files; an attempt fails if another job removed some of the files meanwhile."""
_REMEMBERED = timedelta(days=7)
"""Time for which a table's log records when a file was removed."""
_COMMIT_EVERY = timedelta(minutes=5)
"""Interval of commits of a compaction. A killed compaction retains the work committed so far."""


class TableUpkeep:
    """Maintenance of one table. Each step updates the table's metrics."""

    def __init__(self, table: TableVersions, metrics: MaintainedTableMetrics) -> None:
        self.table, self._metrics = table, metrics

    def begin(self) -> bool:
        """Read the table; return whether its files alone determine its rows."""
        try:
            version = self.table.version()
        except ConfigurationError as error:
            self.leave(str(error))
            return False
        self._metrics.files_before, self._metrics.version_before = len(version.files), version.number
        self._count()
        return True

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
