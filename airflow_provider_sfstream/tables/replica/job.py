"""The ``replica`` job: apply landed change events or fetched records, and publish the next snapshot of the tables.

The job can be repeated, and killed at any line: its output counts only once it has published a snapshot. The content of
a snapshot depends only on the previous snapshot and the windows.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import partial

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.delta.landed_windows import load_windows, read_window
from airflow_provider_sfstream.tables.quarantine import Quarantine
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig, ReplicaMetrics
from airflow_provider_sfstream.tables.replica.delta_sink import PROGRESS, DeltaSink, forget_snapshots
from airflow_provider_sfstream.tables.replica.refresh import RefreshRun
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from airflow_provider_sfstream.tables.replica.snapshots import Snapshot, check_deletes
from airflow_provider_sfstream.tables.replica.stream import StreamRun
from airflow_provider_sfstream.tables.replica.table_fields import check_rules
from airflow_provider_sfstream.tables.replica.windows import UnappliedWindow, check_windows, new_windows, stream_key
from airflow_provider_sfstream.tables.runner.engine import Engine

log = logging.getLogger(__name__)

WINDOWS_AT_ONCE = 500
"""Most windows for each published snapshot. A replica that is further behind catches up in steps, and each published
step is final. At most as many windows as fit on a page of window IDs."""


def run(engine: Engine, config: ReplicaConfig) -> ReplicaMetrics:
    """Apply the windows or the refresh of ``config``; return the metrics.

    :raises ManifestError: if a manifest is missing or broken; nothing was written.
    :raises ConfigurationError: if there is nothing to apply, the windows have no change events, their files were
        changed, a table belongs to another stream, has other field protection rules or another choice for deleted
        records, or the refresh belongs to another replica; nothing was published.
    :raises PositionConflictError: if another job has written meanwhile. Earlier snapshots of this job remain published.
    """
    started = time.monotonic()
    if not config.manifests and not config.refresh_url:
        raise ConfigurationError("Set manifests or refresh_url: neither is set. Nothing was written.")
    files = engine.files
    base = files.url(config.output_url)
    read, job = partial(read_window, engine.landing), config.job or engine.application_id
    # Read before the snapshot, so that a job whose snapshot is outdated cannot replace newer rows.
    quarantine = Quarantine(engine, base, job, [PROGRESS])
    store = SnapshotStore(files, base)
    snapshot = store.current()
    if config.refresh_url is None:  # a refresh protects fields before it writes them
        check_rules(snapshot, config.rules, config.output_url)
    metrics = ReplicaMetrics(snapshot=snapshot.number, application_id=engine.application_id)
    sink = DeltaSink(engine, base, config)
    windows = load_windows(engine.landing, config.manifests)
    check_windows(windows)
    streams = {stream_key(manifest) for manifest in windows}
    affected_tables = {name: table for name, table in snapshot.tables.items() if table.stream in streams}
    check_deletes(affected_tables, config.deletes)
    unapplied: dict[str, list[UnappliedWindow]] = {}
    event_counts: list[int] = []
    for stream in sorted(streams):
        state = snapshot.streams.get(stream)
        older = partial(store.older_windows, stream, state.pages if state else 0)
        unapplied[stream] = new_windows([each for each in windows if stream_key(each) == stream], state, read, older)
        event_counts += [new.manifest.window.event_count for new in unapplied[stream]]
        if state is not None and unapplied[stream]:
            event_counts += [window.event_count for window in state.held]
    engine.prepare(event_counts)
    for stream, unapplied_windows in unapplied.items():
        for start in range(0, len(unapplied_windows), WINDOWS_AT_ONCE):
            step_windows = unapplied_windows[start : start + WINDOWS_AT_ONCE]
            step = StreamRun(sink, quarantine, snapshot, step_windows, read, config)
            snapshot = _publish(store, replace(step.run(metrics), job=job), metrics)
            log.info(
                "%s: processed %d of %d windows.",
                step_windows[0].manifest.stream.topic,
                start + len(step_windows),
                len(unapplied_windows),
            )
        if unapplied_windows:
            metrics.held += snapshot.streams[stream].held_events
    if config.refresh_url is not None:
        refresh = RefreshRun(sink, snapshot, config.refresh_url, config)
        snapshot = _publish(store, replace(refresh.run(metrics), job=job), metrics)
    removed, retained = store.divided(config.keep_snapshots)
    forget_snapshots(files, base, removed, retained)
    store.prune(removed, retained)
    metrics.seconds = round(time.monotonic() - started, 2)
    if config.metrics_url:
        files.replace_text(files.url(config.metrics_url), config.metrics_json(metrics))
    return metrics


def _publish(store: SnapshotStore, after: Snapshot, metrics: ReplicaMetrics) -> Snapshot:
    after = store.publish(after)
    metrics.snapshot = after.number
    for name, table in after.tables.items():
        of_table = metrics.of_table(name)
        of_table.dirty, of_table.flag = table.dirty, table.flag.reason if table.flag else None
    log.info("Published snapshot %d of the replica.", after.number)
    return after
