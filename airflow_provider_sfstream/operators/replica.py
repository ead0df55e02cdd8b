"""Apply landed change events to replica tables in the worker's own process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream._airflow import AirflowSkipException
from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.actions.status import report_tables
from airflow_provider_sfstream.actions.tables.embedded_job import MAX_EVENTS, EmbeddedJobOperator
from airflow_provider_sfstream.actions.tables.replica import holds_events, snapshot_if_readable
from airflow_provider_sfstream.actions.tables.table_job import check_output
from airflow_provider_sfstream.actions.windows_argument import all_manifests, stream_uris
from airflow_provider_sfstream.tables.job_config import Deletes
from airflow_provider_sfstream.tables.replica.config import TARGET_FILE_BYTES, ReplicaConfig

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context


class ReplicaOperator(EmbeddedJobOperator):
    """Apply landed change events to replica tables in the worker's process, for small windows, or without Spark.

    The alternative on Spark is :class:`SparkSubmitReplicaOperator`.

    The same functions write the same Delta tables, one file group after another: columns, quarantine, dirty lists,
    history, metrics and the effect of a retry are the same, and each operator can continue the other's tables. It needs
    neither Java nor pyspark. The process needed 387 to 451 MiB for up to 200,000 changed records of 80 columns,
    including 192 MiB before the job; all changes of one record are in memory together. Landed files are copied to the
    worker's temporary folder. :class:`RefreshReplicaOperator` fetches data that events lack; maintenance runs on Spark.

    One job at a time may write below one ``output_url``, refreshes and Spark's jobs included (``max_active_runs=1``, or
    a pool of one slot).

    The XCom result is the job's metrics, as of that operator; ``application_id`` is empty. Without events, and without
    held events, the task is skipped.

    :param windows: the windows to apply: the XCom result of a drain of change events over the Pub/Sub API, a manifest
        URL, or a list of these. (templated)
    :param output_url: folder of the replica, as a URL of Airflow's object storage. (templated)
    :param output_conn_id: Airflow connection of its storage, if it needs one. Delta's log on S3 is written with the
        connection's credentials, elsewhere with those of the worker's environment. (templated)
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
    :param hash_conn_id: Airflow connection whose password is the key of hashes. (templated)
    :param max_events: most events of all windows to apply, including missing windows between; with more, the task
        fails before it writes anything.
    :param landing_conn_id: Airflow connection of the landing, as in the drain. (templated)
    :raises ConfigurationError: at construction, if an argument is unusable.
    """

    def __init__(
        self,
        *,
        windows: Any,
        output_url: str,
        output_conn_id: str | None = None,
        deletes: Deletes = "soft",
        history: bool = False,
        target_file_bytes: int = TARGET_FILE_BYTES,
        keep_snapshots: int = 10,
        verify_files: bool = True,
        max_events: int = MAX_EVENTS,
        landing_conn_id: str | None = None,
        exclude_fields: Sequence[str] = (),
        mask_fields: Sequence[str] = (),
        hash_fields: Sequence[str] = (),
        hash_conn_id: str | None = None,
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
            config=self._config,
            spark_operator="SparkSubmitReplicaOperator",
            windows=windows,
            output_url=output_url,
            output_conn_id=output_conn_id,
            landing_conn_id=landing_conn_id,
            hash_conn_id=hash_conn_id,
            max_events=max_events,
            **kwargs,
        )

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the job here; return its metrics."""
        from airflow_provider_sfstream.tables.replica.job import run

        with airflow_errors(self):
            check_output(self.output_url)
            manifests, are_empty = all_manifests(self.windows)
            if not manifests or (are_empty and not holds_events(self.output_url, self.output_conn_id)):
                raise AirflowSkipException("There are no windows with events to apply.")
            config = replace(self._config, manifests=manifests)
            metrics = self.run_here(context, config, run)
        report_tables(self.output_url, "replica", context, metrics, stream_uris(self.windows))
        return metrics

    def lineage(self, *, has_ended: bool) -> OperatorLineage:
        """Return the landed streams as inputs; as outputs, once the job has succeeded, the tables that it wrote."""
        from airflow_provider_sfstream.actions.open_lineage import replica_lineage

        metrics = self.metrics if has_ended else None
        snapshot = snapshot_if_readable(self.output_url, self.output_conn_id) if metrics else None
        return replica_lineage(self.windows, self.output_url, metrics, snapshot, has_ended=has_ended)
