"""Apply landed change events to replica tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_sfstream.actions.parts import check_choice, check_positive
from airflow_provider_sfstream.actions.tables.field_rules import rule_arguments
from airflow_provider_sfstream.actions.tables.spark_job import SparkJobOperator
from airflow_provider_sfstream.actions.tables.table_job import ReplicaTask
from airflow_provider_sfstream.monitoring.links import ManifestLink, SparkUILink, StreamLink

if TYPE_CHECKING:
    from airflow.sdk import Context


class SparkSubmitReplicaOperator(ReplicaTask, SparkJobOperator):
    """Run the ``replica`` job: apply change events of landed windows to one table for each Salesforce object.

    The tables follow the live windows of the stream without a hole: windows applied already are left out, windows
    between are found by the job. So a retry, a clear, a run before the retry of an earlier one, or a backfill change
    nothing that they should not. What the events alone cannot tell (gaps, records from before the stream) is marked
    dirty; :class:`SparkSubmitRefreshReplicaOperator` fetches it.

    One job at a time may write below one ``output_url``, refreshes included (``max_active_runs=1``, or a pool of one
    slot for all DAGs that share it).

    The XCom result is the job's metrics: ``windows`` applied, ``events`` in them, ``held`` events of a transaction
    whose rest is yet to come, ``quarantined``, ``snapshot``, ``tables`` (of each: ``rows`` rewritten, ``deleted``,
    ``dirty`` rows in all, ``flag``), ``seconds`` and ``application_id`` (of Spark); ``None`` where the
    worker cannot read the metrics file at ``{output_url}/_sfstream/metrics/``. Without events, and with none held, the
    task is skipped.

    :param windows: what to apply: the XCom result of a drain of change events over the Pub/Sub API, a manifest URL,
        or a list of these. (templated)
    :param output_url: folder of the replica, as a URL that Spark can write to. (templated)
    :param deletes: ``"soft"`` keeps deleted records with ``_deleted``; ``"hard"`` removes them.
    :param history: keep every version of each record too, from now on
        (docs/replica.md#every-version-of-each-record).
    :param target_file_bytes: how large the files of tables are to be. A run rewrites only the files that have a changed
        record.
    :param keep_snapshots: how many snapshots, and so how many runs back, readers may still be reading.
    :param verify_files: compare landed files with the SHA-256 of their manifest before anything is written.
    :param exclude_fields: fields that the tables may not have, such as ``"Phone"``, ``"Name.FirstName"`` or, of one
        table alone, ``"Contact.Phone"`` (docs/reference/personal-data.md). To be given with each run then.
    :param mask_fields: fields of which the tables have ``***`` in place of a text, and null in place of another value.
    :param hash_fields: fields of which the tables have the HMAC-SHA-256 (hex) of a text, and null in place of another
        value.
    :param hash_conn_id: Airflow connection whose password is the key of hashes. A driver that Spark runs on a cluster
        is given the key by the cluster, as ``SFSTREAM_HASH_KEY``: leave it out there. (templated)
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
        deletes: Literal["soft", "hard"] = "soft",
        history: bool = False,
        target_file_bytes: int = 128 << 20,
        keep_snapshots: int = 10,
        verify_files: bool = True,
        exclude_fields: Sequence[str] = (),
        mask_fields: Sequence[str] = (),
        hash_fields: Sequence[str] = (),
        hash_conn_id: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        check_choice("deletes", deletes, ("soft", "hard"))
        check_positive(target_file_bytes=target_file_bytes, keep_snapshots=keep_snapshots)
        super().__init__(script="replica.py", output_url=output_url, name=name or "sfstream-replica", **kwargs)
        self.windows = windows
        self.deletes = deletes
        self.history = history
        self.target_file_bytes = target_file_bytes
        self.keep_snapshots = keep_snapshots
        self.verify_files = verify_files
        self.exclude_fields = exclude_fields
        self.mask_fields = mask_fields
        self.hash_fields = hash_fields
        self.hash_conn_id = hash_conn_id
        self.given_rules()

    def run_job(self, context: Context, manifests: tuple[str, ...]) -> dict[str, Any] | None:
        """Submit the job and wait for it; return its metrics."""
        arguments = [part for url in manifests for part in ("--manifest", url)]
        arguments += ["--deletes", self.deletes, "--target-file-bytes", str(self.target_file_bytes)]
        arguments += ["--keep-snapshots", str(self.keep_snapshots)]
        if not self.verify_files:
            arguments.append("--trust-files")
        if self.history:
            arguments.append("--history")
        self._rules = self.submitted_rules()
        return self.submit(context, [*arguments, *rule_arguments(self._rules)])
