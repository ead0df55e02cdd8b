"""The ``maintain`` job: Delta tables below one folder, event logs' and replicas', with fewer files and the same rows.

Safe to repeat and to kill at any line, and beside jobs that write: Delta refuses what would touch the same files.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from airflow_provider_sfstream.tables.delta.hadoop_files import HadoopFiles
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.delta.table_versions import TableVersions
from airflow_provider_sfstream.tables.event_log.tables import QUARANTINE_TABLE
from airflow_provider_sfstream.tables.maintenance.config import MaintenanceConfig, MaintenanceMetrics, TableMetrics
from airflow_provider_sfstream.tables.maintenance.replica import ReplicaUpkeep
from airflow_provider_sfstream.tables.maintenance.upkeep import TableUpkeep
from airflow_provider_sfstream.tables.replica.delta_sink import HISTORY
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from airflow_provider_sfstream.tables.rows.event_batches import PARTITIONS
from airflow_provider_sfstream.tables.runner.engine import JobFiles

_UNKNOWN = "It is neither of an event log nor named by a snapshot of a replica."


def run(spark: Any, config: MaintenanceConfig) -> MaintenanceMetrics:
    """Keep the tables below ``config.output_url`` small.

    :param spark: a ``SparkSession``.
    :raises ConfigurationError: if a replica's newest snapshot cannot be understood; nothing was changed.
    """
    files = HadoopFiles(spark)
    base, job = files.url(config.output_url), config.job or spark.sparkContext.applicationId
    metrics = maintain(files, base, files.table_location(base), replace(config, job=job))
    if config.metrics_url:
        files.replace_text(files.url(config.metrics_url), json.dumps(asdict(metrics)))
    return metrics


def maintain(files: JobFiles, base: str, location: TableLocation, config: MaintenanceConfig) -> MaintenanceMetrics:
    """Keep the tables below one folder small, without Spark.

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
    """Keep a table of an event log small; leave one that is of something else."""
    upkeep = TableUpkeep(table, metrics.tables.setdefault(name, TableMetrics()))
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
