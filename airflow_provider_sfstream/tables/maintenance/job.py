"""The ``maintain`` job: reduce the files of the Delta tables of event logs and replicas, without changes of rows.

The job can be repeated, killed at any line, and run beside jobs that write: Delta rejects conflicting commits.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
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

_UNKNOWN = "It is not a table of an event log, and the newest snapshot of a replica does not name it."


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

    replica_tables = {*snapshot.tables, *map(HISTORY.format, snapshot.tables)}
    for name in names:
        if name not in replica_tables:
            _maintain_event_table(name, table(name), config, metrics)
    ReplicaUpkeep(store, table, names.__contains__, config, metrics).run()
    metrics.seconds = round(time.monotonic() - started, 2)
    return metrics


def _maintain_event_table(
    name: str, table: TableVersions, config: MaintenanceConfig, metrics: MaintenanceMetrics
) -> None:
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
    delta_table = table.table()
    columns = {field.name for field in delta_table.schema().fields}
    if name == QUARANTINE_TABLE:
        return {"window_id", "payload", "reason"} <= columns
    is_by_date = delta_table.metadata().partition_columns == ["event_date"]
    return columns >= {*PARTITIONS, "_replay_id", "_topic"} and is_by_date


_AHEAD = (
    "Its newest version is not the version in the replica's snapshot: a job is running, or ended before it completed. "
    "The next run of the replica reverts the newer version."
)
_OTHER_SNAPSHOT = "Another job published a snapshot during this run. The next run publishes the versions of this run."


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
        self._upkeeps: dict[str, TableUpkeep] = {}

    def run(self) -> None:
        """Maintain the tables, and publish a snapshot if a table has a new version."""
        snapshot = self._store.current()
        referenced = versions_named(self._store.kept())
        changed: dict[str, TableState] = {}
        for name, table in snapshot.tables.items():
            # Do not merge the files of a replica table, or ID ranges would overlap: rewrites divide its file groups.
            version = self._maintain(name, table.version, referenced.get(name, set()), merges=False)
            history = table.history
            if history is not None:
                history_name = HISTORY.format(name)
                history = self._maintain(history_name, history, referenced.get(history_name, set()), merges=True)
            if (version, history) != (table.version, table.history):
                changed[name] = replace(table, version=version, history=history)
        if changed:
            after = replace(snapshot.next({}, changed, datetime.now(UTC)), job=self._config.job)
            try:
                snapshot = self._store.publish(after)
            except PositionConflictError as error:
                log.warning("%s", error)
                for name in {*changed, *map(HISTORY.format, changed)} & self._upkeeps.keys():
                    self._upkeeps[name].leave(_OTHER_SNAPSHOT)
        self._metrics.snapshot = snapshot.number
        # Logs are shortened only now, because a log must retain the versions that the newest snapshots name.
        referenced = versions_named(self._store.kept())
        for name, upkeep in self._upkeeps.items():
            upkeep.cut_log(referenced.get(name, set()))

    def _maintain(self, name: str, number: int, referenced: set[int], *, merges: bool) -> int:
        """Maintain one table; return the version to name in place of ``number``, which has the same rows.

        :param referenced: versions that snapshots name.
        """
        if not self._exists(name):
            return number
        table = self._table(name)
        upkeep = TableUpkeep(table, self._metrics.tables.setdefault(name, MaintainedTableMetrics()))
        if not upkeep.begin():
            return number
        newest = _newest_with_same_rows(table, number)
        if newest is None:
            upkeep.leave(_AHEAD)
            return number
        if merges:
            upkeep.compact(self._config.target_file_bytes)
        upkeep.vacuum(self._config.retention_hours, {*referenced, number})
        self._upkeeps[name] = upkeep
        return table.same_rows_through(newest)


def _newest_with_same_rows(table: TableVersions, number: int) -> int | None:
    """Return the number of the newest version, ``None`` if its rows may differ from those of version ``number``."""
    newest = table.version()
    if number < 0:
        return None
    has_same_rows = newest.files.keys() == table.version(number).files.keys() or (
        table.same_rows_through(number) >= newest.number
    )
    return newest.number if has_same_rows else None
