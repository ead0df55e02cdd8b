"""The tables of a replica kept small. What counts of them are the versions that snapshots name.

A commit of the upkeep changes no row, so that the next snapshot can name it: it is published where a table's newest
version has other files or a higher number. A table that somebody else has changed meanwhile keeps its name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from airflow_provider_sfstream.exceptions import PositionConflictError
from airflow_provider_sfstream.tables.delta.table_versions import TableVersions
from airflow_provider_sfstream.tables.maintenance.config import MaintenanceConfig, MaintenanceMetrics, TableMetrics
from airflow_provider_sfstream.tables.maintenance.upkeep import TableUpkeep
from airflow_provider_sfstream.tables.replica.delta_sink import HISTORY, versions_named
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from airflow_provider_sfstream.tables.replica.snapshots import TableState

log = logging.getLogger(__name__)

_AHEAD = (
    "Its newest version is not that of the replica's snapshot: a job is at work, or one ended too early. The next run "
    "of the replica takes that back."
)
_OTHER_SNAPSHOT = "Another job published a snapshot meanwhile; the next run names the versions that this one made."


class ReplicaUpkeep:
    """The upkeep of a replica.

    :param table: gives the log of the table of a name.
    :param exists: tells whether there is a Delta table of a name.
    :param config: ``job`` is the name that the snapshot gets.
    """

    def __init__(
        self,
        store: SnapshotStore,
        table: Callable[[str], TableVersions],
        exists: Callable[[str], bool],
        config: MaintenanceConfig,
        metrics: MaintenanceMetrics,
    ) -> None:
        self._store, self._table, self._exists = store, table, exists
        self._config, self._metrics = config, metrics
        self._done: dict[str, TableUpkeep] = {}

    def run(self) -> None:
        """Keep the tables small, and publish a snapshot if a version came."""
        snapshot = self._store.current()
        kept = versions_named(self._store.kept())
        moved: dict[str, TableState] = {}
        for name, table in snapshot.tables.items():
            # Its pieces divide by themselves: its own files are not merged, lest ranges of ids meet.
            version = self._keep_small(name, table.version, kept.get(name, set()), merges=False)
            history = table.history
            if history is not None:
                name_of_history = HISTORY.format(name)
                of_history = kept.get(name_of_history, set())
                history = self._keep_small(name_of_history, history, of_history, merges=True)
            if (version, history) != (table.version, table.history):
                moved[name] = replace(table, version=version, history=history)
        if moved:
            after = replace(snapshot.next({}, moved, datetime.now(UTC)), job=self._config.job)
            try:
                snapshot = self._store.publish(after)
            except PositionConflictError as error:
                log.warning("%s", error)
                for name in {*moved, *map(HISTORY.format, moved)} & self._done.keys():
                    self._done[name].leave(_OTHER_SNAPSHOT)
        self._metrics.snapshot = snapshot.number
        kept = versions_named(self._store.kept())
        for name, upkeep in self._done.items():
            upkeep.cut_log(kept.get(name, set()))

    def _keep_small(self, name: str, number: int, kept: set[int], *, merges: bool) -> int:
        """Keep one table small; return the version to name in place of ``number``, which has the same rows."""
        if not self._exists(name):
            return number
        table = self._table(name)
        upkeep = TableUpkeep(table, self._metrics.tables.setdefault(name, TableMetrics()))
        if not upkeep.begin():
            return number
        same = _with_same_rows(table, number)
        if same is None:
            upkeep.leave(_AHEAD)
            return number
        if merges:
            upkeep.compact(self._config.target_file_bytes)
        upkeep.vacuum(self._config.retention_hours, {*kept, number})
        self._done[name] = upkeep
        return table.same_rows_through(same)


def _with_same_rows(table: TableVersions, number: int) -> int | None:
    """Return the number of the newest version, ``None`` if it may have other rows than the version ``number``."""
    newest = table.version()
    if number < 0:
        return None
    has_them = newest.files.keys() == table.version(number).files.keys() or (
        table.same_rows_through(number) >= newest.number
    )
    return newest.number if has_them else None
