"""The ``maintain`` job: reduce the files of the Delta tables of event logs and replicas, without changes of rows.

The job can be repeated, killed at any line, and run beside jobs that write: Delta rejects conflicting commits.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Mapping
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
_AHEAD = (
    "Its newest version is not the version in the replica's snapshot: a job is running, or ended before it completed. "
    "The next run of the replica reverts the newer version."
)
_OTHER_SNAPSHOT = "Another job published a snapshot during this run. The next run publishes the versions of this run."


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
    :param config: its ``job`` is the name that the snapshot of a replica records.
    """
    started = time.monotonic()
    store = SnapshotStore(files, base)
    snapshot = store.current()
    names = [name for name in files.folders(base) if "_delta_log" in files.folders(f"{base}/{name}")]
    replica_tables = {*snapshot.tables, *map(HISTORY.format, snapshot.tables)}
    maintenance = _Maintenance(names, location, config)
    for name in names:
        if name not in replica_tables:
            maintenance.maintain_event_table(name)
    maintenance.maintain_replica(store)
    maintenance.metrics.seconds = round(time.monotonic() - started, 2)
    return maintenance.metrics


class _Maintenance:
    """Maintenance of the tables below one folder.

    :param names: names of the existing Delta tables.
    """

    def __init__(self, names: Collection[str], location: TableLocation, config: MaintenanceConfig) -> None:
        self._names, self._location, self._config = names, location, config
        self._replica: dict[str, TableUpkeep] = {}
        self.metrics = MaintenanceMetrics()

    def maintain_event_table(self, name: str) -> None:
        """Compact and vacuum a table of an event log; skip a table of anything else."""
        upkeep = self._upkeep(name)
        if not upkeep.begin():
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
        """Maintain a table of a replica; return the version to name in place of ``number``, which has the same rows.

        :param referenced: versions that snapshots name.
        """
        if name not in self._names:
            return number
        upkeep = self._upkeep(name)
        if not upkeep.begin():
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

    def _upkeep(self, name: str) -> TableUpkeep:
        table = TableVersions(self._location.below(name), self._config.job)
        return TableUpkeep(table, self.metrics.tables.setdefault(name, MaintainedTableMetrics()))


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
