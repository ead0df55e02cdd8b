"""The ``replica`` job: landed change events, or records fetched anew, in; the next snapshot of the tables out.

Safe to repeat and to kill at any line: until a snapshot is published nothing counts, and what it says follows from the
snapshot before and the windows alone.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_provider_sfstream.spark.application import configure
from airflow_provider_sfstream.spark.avro_decoding import DecoderChoice
from airflow_provider_sfstream.spark.hadoop_files import HadoopFiles
from airflow_provider_sfstream.spark.landed_windows import LandedWindow, read_window, read_windows
from airflow_provider_sfstream.spark.replica_merge import SETTINGS, Deletes
from airflow_provider_sfstream.spark.replica_refresh_run import RefreshRun
from airflow_provider_sfstream.spark.replica_snapshots import Snapshot, SnapshotStore, TableFormat
from airflow_provider_sfstream.spark.replica_stream import StreamRun
from airflow_provider_sfstream.spark.replica_tables import ReplicaTables
from airflow_provider_sfstream.spark.replica_windows import check_windows

log = logging.getLogger(__name__)

_SETTINGS = {
    **SETTINGS,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


@dataclass(frozen=True)
class ReplicaOptions:
    """What the job is asked to do: apply the windows of ``manifests``, or the records fetched of ``refresh``.

    :param output: folder of the replica.
    :param manifests: URLs of manifests, in any order.
    :param refresh: URL of what ``RefreshDirtyRecordsOperator`` fetched.
    :param table_format: of new tables.
    :param table_prefix: catalog and namespace of new Iceberg tables: ``lake.salesforce``.
    :param deletes: ``"hard"`` removes deleted records, ``"soft"`` marks them.
    :param history: keep ended versions from now on. Once kept, they are kept on.
    :param buckets: of new tables.
    :param keep_snapshots: how many snapshots stay readable.
    """

    output: str
    manifests: tuple[str, ...] = ()
    refresh: str | None = None
    table_format: TableFormat = "parquet"
    table_prefix: str | None = None
    deletes: Deletes = "soft"
    history: bool = False
    buckets: int = 16
    keep_snapshots: int = 10
    decoder: DecoderChoice = "auto"
    metrics_file: str | None = None


@dataclass
class TableMetrics:
    """What became of one table: rows written anew (those of touched buckets), how many of them are deleted records,
    rows of the whole table that have to be fetched, and why the whole table has to be, if it has."""

    rows: int = 0
    deleted: int = 0
    dirty: int = 0
    flag: str | None = None


@dataclass
class ReplicaMetrics:
    """``windows`` taken in, ``events`` in them, those ``held`` until the rest of their transaction comes, those
    ``quarantined``, and the number of the replica's current ``snapshot``."""

    windows: list[str] = field(default_factory=list)
    events: int = 0
    held: int = 0
    quarantined: int = 0
    snapshot: int = 0
    tables: dict[str, TableMetrics] = field(default_factory=dict)
    seconds: float = 0.0

    def of_table(self, name: str) -> TableMetrics:
        """Return the metrics of one table."""
        return self.tables.setdefault(name, TableMetrics())


def run(spark: Any, options: ReplicaOptions) -> ReplicaMetrics:
    """Bring the replica forward.

    :param spark: a ``SparkSession``.
    :raises ManifestError: if a manifest is missing or broken; nothing was written.
    :raises ConfigurationError: if the windows hold no change events, their files were changed, a table is fed by
        another stream or kept in another format, or the refresh is not of this replica; nothing was published.
    :raises PositionConflictError: if another job wrote meanwhile; nothing of this one counts.
    """
    started = time.monotonic()
    configure(spark, _SETTINGS)
    files = HadoopFiles(spark)
    base = files.url(options.output)
    store = SnapshotStore(files, base)
    snapshot = store.current()
    metrics = ReplicaMetrics(snapshot=snapshot.number)
    tables = ReplicaTables(spark, files, base, options.deletes)
    windows = read_windows(files, options.manifests)
    check_windows(windows)
    for of_one_stream in _by_stream(windows):
        step = StreamRun(spark, files, tables, snapshot, of_one_stream, lambda url: read_window(files, url), options)
        snapshot = _publish(store, snapshot, step.run(metrics), metrics)
    if options.refresh is not None:
        snapshot = _publish(store, snapshot, RefreshRun(files, tables, snapshot, options.refresh).run(metrics), metrics)
    tables.tidy(store.forget(options.keep_snapshots))
    metrics.seconds = round(time.monotonic() - started, 2)
    if options.metrics_file:
        files.replace_text(files.url(options.metrics_file), json.dumps(asdict(metrics)))
    return metrics


def _publish(store: SnapshotStore, before: Snapshot, after: Snapshot | None, metrics: ReplicaMetrics) -> Snapshot:
    if after is None:
        return before
    store.publish(after)
    metrics.snapshot = after.number
    for name, table in after.tables.items():
        of_table = metrics.of_table(name)
        of_table.dirty, of_table.flag = table.dirty, table.flag.reason if table.flag else None
    log.info("Snapshot %d of the replica is published.", after.number)
    return after


def _by_stream(windows: Iterable[LandedWindow]) -> list[list[LandedWindow]]:
    streams: dict[str, list[LandedWindow]] = {}
    for window in windows:
        streams.setdefault(window.stream, []).append(window)
    return [streams[name] for name in sorted(streams)]
