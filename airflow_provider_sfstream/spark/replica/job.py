"""The ``replica`` job: landed change events, or records fetched anew, in; the next snapshot of the tables out.

Safe to repeat and to kill at any line: until a snapshot is published nothing counts, and what it says follows from the
snapshot before and the windows alone.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from airflow_provider_sfstream.spark.apps.application import configure
from airflow_provider_sfstream.spark.decode.avro_decoding import DecoderChoice
from airflow_provider_sfstream.spark.replica.quarantine import ReplicaQuarantine
from airflow_provider_sfstream.spark.replica.refresh_run import RefreshRun
from airflow_provider_sfstream.spark.replica.snapshots import Snapshot, SnapshotStore, StreamState, TableFormat
from airflow_provider_sfstream.spark.replica.stream import StreamRun
from airflow_provider_sfstream.spark.replica.tables import ReplicaTables
from airflow_provider_sfstream.spark.replica.windows import check_windows, new_windows
from airflow_provider_sfstream.spark.rows.replica_merge import SETTINGS, Deletes
from airflow_provider_sfstream.spark.storage.hadoop_files import HadoopFiles
from airflow_provider_sfstream.spark.storage.landed_windows import LandedWindow, read_window, read_windows

log = logging.getLogger(__name__)

WINDOWS_AT_ONCE = 500
"""For each state that is published: a replica that catches up with more is brought there in steps, each of which counts
for good. Not more than fit on a page of window ids."""


@dataclass(frozen=True)
class ReplicaOptions:
    """What the job is asked to do: apply the windows of ``manifests``, or the records fetched of ``refresh``.

    :param output: folder of the replica.
    :param manifests: URLs of manifests, in any order.
    :param refresh: URL of what ``RefreshDirtyRecordsOperator`` fetched.
    :param max_deleted_fraction: the share of a table's rows (0 to 1) that a refresh may find gone from
        the org. Up to ten rows always may.
    :param table_format: of new tables.
    :param table_prefix: catalog and namespace of new Iceberg tables: ``lake.salesforce``.
    :param deletes: ``"hard"`` removes deleted records, ``"soft"`` marks them.
    :param history: keep ended versions from now on. Once kept, they are kept on.
    :param buckets: of new tables.
    :param keep_snapshots: how many snapshots stay readable.
    :param verify_files: compare landed files with their SHA-256 first.
    """

    output: str
    manifests: tuple[str, ...] = ()
    refresh: str | None = None
    max_deleted_fraction: float = 0.2
    table_format: TableFormat = "parquet"
    table_prefix: str | None = None
    deletes: Deletes = "soft"
    history: bool = False
    buckets: int = 16
    keep_snapshots: int = 10
    decoder: DecoderChoice = "auto"
    metrics_file: str | None = None
    verify_files: bool = True


@dataclass
class TableMetrics:
    """What became of one table: rows written anew (those of touched buckets), how many of them are deleted records,
    rows of the whole table that have to be fetched, why the whole table has to be, if it has, how many rows had other
    values in the columns that no event carries, if those of all records were fetched, and what a comparison of the
    table with the org gave."""

    rows: int = 0
    deleted: int = 0
    dirty: int = 0
    flag: str | None = None
    differed: int = 0
    reconciliation: dict[str, Any] | None = None


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
    configure(spark, SETTINGS)
    files = HadoopFiles(spark)
    base = files.url(options.output)
    store = SnapshotStore(files, base)
    snapshot = store.current()
    metrics = ReplicaMetrics(snapshot=snapshot.number)
    read = partial(read_window, files)
    tables, quarantine = ReplicaTables(spark, files, base, options.deletes), ReplicaQuarantine(spark, files, base)
    windows = read_windows(files, options.manifests)
    check_windows(windows)
    for of_one_stream in _by_stream(windows):
        stream = of_one_stream[0].stream
        state = snapshot.streams.get(stream)
        new = new_windows(of_one_stream, state, read, partial(_older_windows, store, stream, state))
        for done in range(0, len(new), WINDOWS_AT_ONCE):
            some = new[done : done + WINDOWS_AT_ONCE]
            step = StreamRun(spark, files, tables, quarantine, snapshot, some, read, options)
            snapshot = _publish(store, step.run(metrics), metrics)
            log.info("%s: %d of %d windows are taken in.", some[0].window.topic, done + len(some), len(new))
        if new:
            metrics.held += snapshot.streams[stream].held_events
    if options.refresh is not None:
        refresh = RefreshRun(files, tables, snapshot, options.refresh, options.max_deleted_fraction)
        snapshot = _publish(store, refresh.run(metrics), metrics)
    tables.tidy(store.forget(options.keep_snapshots))
    metrics.seconds = round(time.monotonic() - started, 2)
    if options.metrics_file:
        files.replace_text(files.url(options.metrics_file), json.dumps(asdict(metrics)))
    return metrics


def _older_windows(store: SnapshotStore, stream: str, state: StreamState | None) -> Iterable[Sequence[str]]:
    return store.older_windows(stream, state.pages) if state else ()


def _publish(store: SnapshotStore, after: Snapshot, metrics: ReplicaMetrics) -> Snapshot:
    after = store.publish(after)
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
