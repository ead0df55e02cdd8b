"""Replica of an operator: its current snapshot, and the base of the operators that apply change events to it."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream._airflow import AirflowSkipException
from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.actions.status import report_tables
from airflow_provider_sfstream.actions.tables.table_job import WindowsOperator, check_output
from airflow_provider_sfstream.actions.windows_argument import all_manifests, reason_to_skip, stream_uris
from airflow_provider_sfstream.redaction import quoted
from airflow_provider_sfstream.tables.job_config import Deletes
from airflow_provider_sfstream.tables.replica.config import TARGET_FILE_BYTES, ReplicaConfig

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from airflow_provider_sfstream.tables.replica.snapshots import Snapshot

log = logging.getLogger(__name__)


class ReplicaJobOperator(WindowsOperator):
    """Base of the operators that apply change events with the ``replica`` job.

    :param windows: the windows to apply: the XCom result of a drain of change events over the Pub/Sub API, a manifest
        URL, or a list of these. (templated)
    :param deletes: ``"soft"`` (default) keeps deleted records with ``_deleted``; ``"hard"`` removes them. A table
        records the choice of the run that creates it, and a run with another choice fails before anything is written.
    :param history: keep every version of each record too, from now on
        (docs/replica.md#every-version-of-each-record).
    :param target_file_bytes: target size of the tables' files, in bytes. A run rewrites only files with a changed
        record.
    :param keep_snapshots: number of snapshots, and so of previous runs, that readers can read.
    """

    job = "replica"

    def __init__(
        self,
        *,
        windows: Any,
        output_url: str,
        deletes: Deletes = "soft",
        history: bool = False,
        target_file_bytes: int = TARGET_FILE_BYTES,
        keep_snapshots: int = 10,
        **kwargs: Any,
    ) -> None:
        config = ReplicaConfig(
            output_url="",
            deletes=deletes,
            history=history,
            target_file_bytes=target_file_bytes,
            keep_snapshots=keep_snapshots,
        )
        super().__init__(windows=windows, output_url=output_url, config=config, **kwargs)

    def execute(self, context: Context) -> dict[str, Any] | None:
        """Run the job; return its metrics."""
        with airflow_errors(self):
            check_output(self.output_url)
            manifests, are_empty = all_manifests(self.windows)
            if not manifests or (are_empty and not _holds_events(self.output_url, self.output_conn_id)):
                raise AirflowSkipException(reason_to_skip(self.windows))
            config = replace(self._config, manifests=manifests)
            metrics = self.run_job(context, self.with_hash_key(config))
        report_tables(self.output_url, "replica", context, metrics or {}, stream_uris(self.windows))
        return metrics

    def lineage(self, *, has_ended: bool) -> OperatorLineage:
        """Return the landed streams as inputs; as outputs, once the job has succeeded, the tables that it wrote."""
        from airflow_provider_sfstream.actions.open_lineage import replica_lineage

        metrics = self.metrics if has_ended else None
        snapshot = snapshot_if_readable(self.output_url, self.output_conn_id) if metrics else None
        return replica_lineage(self.windows, self.output_url, metrics, snapshot, has_ended=has_ended)


def read_snapshot(output_url: str, output_conn_id: str | None) -> Snapshot:
    """Return the current replica below ``output_url``; its number is 0 where there is none."""
    from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore

    return SnapshotStore(ObjectStorageFiles(output_conn_id), output_url.rstrip("/")).current()


def snapshot_if_readable(output_url: str, output_conn_id: str | None) -> Snapshot | None:
    """Return the current replica below ``output_url``; ``None`` where the worker cannot read it."""
    try:
        return read_snapshot(output_url, output_conn_id)
    except Exception as error:  # the job is Spark's, which may read where the worker may not
        log.info("The worker cannot read the replica at %s: %s", output_url, quoted(str(error)))
        return None


def _holds_events(output_url: str, output_conn_id: str | None) -> bool:
    """Return whether the replica holds events of incomplete transactions, or the worker cannot read it: the job can."""
    snapshot = snapshot_if_readable(output_url, output_conn_id)
    return snapshot is None or any(stream.held for stream in snapshot.streams.values())
