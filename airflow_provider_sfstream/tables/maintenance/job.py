"""The ``maintain`` job: reduce the files of the Delta tables of event logs and replicas, without changes of rows.

The job can be repeated, killed at any line, and run beside jobs that write: Delta rejects conflicting commits.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from airflow_provider_sfstream.exceptions import PositionConflictError
from airflow_provider_sfstream.tables.delta.hadoop_files import HadoopFiles
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.delta.table_versions import TableVersions
from airflow_provider_sfstream.tables.event_log.tables import QUARANTINE_TABLE
from airflow_provider_sfstream.tables.maintenance.config import (
    MaintainedTableMetrics,
    MaintenanceConfig,
    MaintenanceMetrics,
)
from airflow_provider_sfstream.tables.maintenance.upkeep import TableUpkeep
from airflow_provider_sfstream.tables.replica.delta_sink import HISTORY, versions_named
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from airflow_provider_sfstream.tables.replica.snapshots import TableState
from airflow_provider_sfstream.tables.rows.event_batches import PARTITIONS
from airflow_provider_sfstream.tables.runner.engine import JobFiles

log = logging.getLogger(__name__)

_UNKNOWN = "It is neither of an event log nor named by a snapshot of a replica."


def run(spark: Any, config: MaintenanceConfig) -> MaintenanceMetrics:
    """Compact and vacuum the tables below ``config.output_url``.

    :param spark: a ``SparkSession``.
    :raises ConfigurationError: if a replica's newest snapshot is invalid or unsupported; nothing was changed.
    """
    files = HadoopFiles(spark)
    base, job = files.url(config.output_url), config.job or spark.sparkContext.applicationId
    metrics = maintain(files, base, files.table_location(base), replace(config, job=job))
    if config.metrics_url:
        files.replace_text(files.url(config.metrics_url), json.dumps(asdict(metrics)))
    return metrics


def maintain(files: JobFiles, base: str, location: TableLocation, config: MaintenanceConfig) -> MaintenanceMetrics:
    """Compact and vacuum the tables below one folder, without Spark.

    :param base: the folder as ``files`` names it, and ``location`` as delta-rs reaches it.
    :raises ConfigurationError: as :func:`run`.
    """
    started = time.monotonic()
    metrics = MaintenanceMetrics()
    store = SnapshotStore(files, base)
    snapshot = store.current()
    names = [name for name in files.folders(base) if "_delta_log" in files.folders(f"{base}/{name}")]

    def table(name: str) -> TableVersions:
        return TableVersions(location.below(name), config.job)

    for name in _unnamed(names, snapshot.tables):
        _of_event_log(name, table(name), config, metrics)
    ReplicaUpkeep(store, table, names.__contains__, config, metrics).run()
    metrics.seconds = round(time.monotonic() - started, 2)
    return metrics


def _unnamed(names: Sequence[str], of_replica: Any) -> list[str]:
    own = {*of_replica, *map(HISTORY.format, of_replica)}
    return [name for name in names if name not in own]


def _of_event_log(name: str, table: TableVersions, config: MaintenanceConfig, metrics: MaintenanceMetrics) -> None:
    """Compact and vacuum a table of an event log; skip a table of anything else."""
    upkeep = TableUpkeep(table, metrics.tables.setdefault(name, MaintainedTableMetrics()))
    if not upkeep.begin():
        return
    if not _is_of_event_log(name, table):
        upkeep.leave(_UNKNOWN)
        return
    upkeep.compact(config.target_file_bytes)
    upkeep.vacuum(config.retention_hours, ())
    upkeep.cut_log(())


def _is_of_event_log(name: str, table: TableVersions) -> bool:
    opened = table.table()
    columns = {field.name for field in opened.schema().fields}
    if name == QUARANTINE_TABLE:
        return {"window_id", "payload", "reason"} <= columns
    return columns >= {*PARTITIONS, "_replay_id", "_topic"} and opened.metadata().partition_columns == ["event_date"]


_AHEAD = (
    "Its newest version is not that of the replica's snapshot: a job is at work, or one ended too early. The next run "
    "of the replica takes that back."
)
_OTHER_SNAPSHOT = "Another job published a snapshot meanwhile; the next run names the versions that this one made."


class ReplicaUpkeep:
    """Maintenance of a replica's tables.

    :param table: returns the log of the table with a name.
    :param exists: returns whether a Delta table with a name exists.
    :param config: its ``job`` is the name that the snapshot records.
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
        """Maintain the tables, and publish a snapshot if a table has a new version."""
        snapshot = self._store.current()
        kept = versions_named(self._store.kept())
        moved: dict[str, TableState] = {}
        for name, table in snapshot.tables.items():
            # Do not merge the files of a replica table, or ID ranges would overlap: rewrites divide its file groups.
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
        """Maintain one table; return the version to name in place of ``number``, which has the same rows."""
        if not self._exists(name):
            return number
        table = self._table(name)
        upkeep = TableUpkeep(table, self._metrics.tables.setdefault(name, MaintainedTableMetrics()))
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
    """Return the number of the newest version, ``None`` if its rows may differ from those of version ``number``."""
    newest = table.version()
    if number < 0:
        return None
    has_them = newest.files.keys() == table.version(number).files.keys() or (
        table.same_rows_through(number) >= newest.number
    )
    return newest.number if has_them else None
