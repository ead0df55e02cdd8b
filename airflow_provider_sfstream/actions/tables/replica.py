"""What operators read of a replica: its current snapshot, on the worker, through Airflow's object storage."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_provider_sfstream.actions.worker_files import WorkerFiles
from airflow_provider_sfstream.redaction import quoted

if TYPE_CHECKING:
    from airflow_provider_sfstream.tables.replica.snapshots import Snapshot

log = logging.getLogger(__name__)


def read_snapshot(output_url: str, output_conn_id: str | None) -> Snapshot:
    """Return the replica below ``output_url`` as it is now; its number is 0 where there is none.

    :raises ConfigurationError: if its newest snapshot cannot be understood.
    """
    from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotReader

    return SnapshotReader(WorkerFiles(output_conn_id), output_url.rstrip("/")).current()


def snapshot_if_readable(output_url: str, output_conn_id: str | None) -> Snapshot | None:
    """Return the replica below ``output_url`` as it is now; ``None`` where the worker cannot read it."""
    try:
        return read_snapshot(output_url, output_conn_id)
    except Exception as error:  # the job is Spark's, which may read where the worker may not
        log.info("The replica at %s cannot be read here: %s", output_url, quoted(str(error)))
        return None


def holds_events(output_url: str, output_conn_id: str | None) -> bool:
    """Tell whether the replica holds events back until the rest of their transaction comes. An empty window may
    complete it. ``True`` where the worker cannot read the replica: the job can."""
    snapshot = snapshot_if_readable(output_url, output_conn_id)
    return snapshot is None or any(stream.held for stream in snapshot.streams.values())
