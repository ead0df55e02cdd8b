"""Apply landed change events to replica tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream._airflow import AirflowSkipException
from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.actions.status import report_tables
from airflow_provider_sfstream.actions.tables.replica import holds_events, snapshot_if_readable
from airflow_provider_sfstream.actions.tables.spark_job import SparkJobOperator
from airflow_provider_sfstream.actions.tables.table_job import WindowsOperator, check_output
from airflow_provider_sfstream.actions.windows_argument import all_manifests, stream_uris
from airflow_provider_sfstream.monitoring.links import ManifestLink, SparkUILink, StreamLink
from airflow_provider_sfstream.tables.job_config import Deletes
from airflow_provider_sfstream.tables.replica.config import TARGET_FILE_BYTES, ReplicaConfig

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context


class SparkSubmitReplicaOperator(WindowsOperator, SparkJobOperator):
    """Run the ``replica`` job: apply change events of landed windows to one table for each Salesforce object.

    The job applies all live windows of the stream in order: it skips applied windows, and finds missing ones. So a
    retry, a clear, a run before the retry of an earlier one, and a backfill are harmless. Rows with incomplete data
    (after gap events, or of records older than the stream) are marked dirty, and
    :class:`SparkSubmitRefreshReplicaOperator` fetches them.

    One job at a time may write below one ``output_url``, refreshes included (``max_active_runs=1``, or a pool of one
    slot for all DAGs that share it).

    The XCom result is the job's metrics: ``windows`` applied, ``events`` in them, ``held`` events of an
    incomplete transaction, ``quarantined``, ``snapshot``, ``tables`` (of each: ``rows`` rewritten, ``deleted``,
    ``dirty`` rows in all, ``flag``), ``seconds`` and ``application_id`` (of Spark); ``None`` where the
    worker cannot read the metrics file at ``{output_url}/_sfstream/metrics/``. Without events, and with none held, the
    task is skipped.

    :param windows: the windows to apply: the XCom result of a drain of change events over the Pub/Sub API, a manifest
        URL, or a list of these. (templated)
    :param output_url: folder of the replica, as a URL that Spark can write to. (templated)
    :param deletes: ``"soft"`` (default) keeps deleted records with ``_deleted``; ``"hard"`` removes them. A table
        records the choice of the run that creates it, and a run with another choice fails before anything is written.
    :param history: keep every version of each record too, from now on
        (docs/replica.md#every-version-of-each-record).
    :param target_file_bytes: target size of the tables' files, in bytes. A run rewrites only files with a changed
        record.
    :param keep_snapshots: number of snapshots, and so of previous runs, that readers can read.
    :param verify_files: compare landed files with the SHA-256 of their manifest before anything is written.
    :param exclude_fields: fields that the tables must not have: ``"Phone"``, ``"Name.FirstName"``, or only for one
        table ``"Contact.Phone"`` (docs/reference/personal-data.md). Then required for each run.
    :param mask_fields: fields that are stored as ``***`` instead of a text, and as null instead of another value.
    :param hash_fields: fields that are stored as the HMAC-SHA-256 (hex) of a text, and as null instead of another
        value.
    :param hash_conn_id: Airflow connection whose password is the key of hashes. A driver that Spark runs on a cluster
        reads the key from ``SFSTREAM_HASH_KEY``, which the cluster sets: omit it there. (templated)
    :param output_conn_id: Airflow connection with which the worker reads the replica's state and the metrics file,
        where it needs one. The job itself uses Spark's credentials. (templated)
    :param conn_id: Airflow connection that names the Spark master.
    """

    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, "windows", "hash_conn_id")
    operator_extra_links = (StreamLink(), ManifestLink(), SparkUILink())

    def __init__(
        self,
        *,
        windows: Any,
        output_url: str,
        deletes: Deletes = "soft",
        history: bool = False,
        target_file_bytes: int = TARGET_FILE_BYTES,
        keep_snapshots: int = 10,
        verify_files: bool = True,
        exclude_fields: Sequence[str] = (),
        mask_fields: Sequence[str] = (),
        hash_fields: Sequence[str] = (),
        hash_conn_id: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        self._config = ReplicaConfig(
            output_url="",
            deletes=deletes,
            history=history,
            target_file_bytes=target_file_bytes,
            keep_snapshots=keep_snapshots,
            verify_files=verify_files,
            exclude_fields=exclude_fields,
            mask_fields=mask_fields,
            hash_fields=hash_fields,
        )
        super().__init__(
            script="replica.py",
            windows=windows,
            output_url=output_url,
            name=name or "sfstream-replica",
            **kwargs,
        )
        self.hash_conn_id = hash_conn_id

    def execute(self, context: Context) -> dict[str, Any] | None:
        """Submit the job and wait for it; return its metrics."""
        with airflow_errors(self):
            check_output(self.output_url)
            manifests, are_empty = all_manifests(self.windows)
            if not manifests or (are_empty and not holds_events(self.output_url, self.output_conn_id)):
                raise AirflowSkipException("There are no windows with events to apply.")
            config = replace(self._config, manifests=manifests)
            metrics = self.submit(context, config, self.hash_conn_id)
        report_tables(self.output_url, "replica", context, metrics or {}, stream_uris(self.windows))
        return metrics

    def lineage(self, *, has_ended: bool) -> OperatorLineage:
        """Return the landed streams as inputs; as outputs, once the job has succeeded, the tables that it wrote."""
        from airflow_provider_sfstream.actions.open_lineage import replica_lineage

        metrics = self.metrics if has_ended else None
        snapshot = snapshot_if_readable(self.output_url, self.output_conn_id) if metrics else None
        return replica_lineage(self.windows, self.output_url, metrics, snapshot, has_ended=has_ended)
