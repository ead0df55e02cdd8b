"""Apply landed change events to replica tables in the worker's own process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_sfstream.actions.parts import check_choice, check_positive
from airflow_provider_sfstream.actions.tables.embedded_job import MAX_EVENTS, EmbeddedJobOperator
from airflow_provider_sfstream.actions.tables.table_job import ReplicaTask
from airflow_provider_sfstream.exceptions import ConfigurationError

if TYPE_CHECKING:
    from airflow.sdk import Context


class ReplicaOperator(ReplicaTask, EmbeddedJobOperator):
    """Do in the worker's own process what :class:`SparkSubmitReplicaOperator` does on Spark, for small windows and for
    those who have no Spark.

    The same functions write the same Delta tables, one piece after another: columns, quarantine, dirty lists, history,
    metrics and what a retry changes are the same, and either operator may go on where the other stopped. It needs
    neither Java nor pyspark. One million changes of a hundred columns, spread over records, took 301 MiB of memory
    beside what the worker had; all changes of one record are held at once, so that more of one need more. Landed files
    are copied to its temporary folder. Refreshes, comparisons and upkeep run on Spark.

    One job at a time may write below one ``output_url``, refreshes and Spark's jobs included (``max_active_runs=1``, or
    a pool of one slot).

    The XCom result is the job's metrics, as of that operator; ``application_id`` is empty. Without events, and with
    none held, the task is skipped.

    :param windows: what to apply: the XCom result of a drain of change events over the Pub/Sub API, a manifest URL,
        or a list of these. (templated)
    :param output_url: folder of the replica, as a URL of Airflow's object storage. (templated)
    :param output_conn_id: Airflow connection of its storage, where it needs one. Delta's log on S3 is written with the
        connection's credentials, elsewhere with those of the worker's environment. (templated)
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
    :param hash_conn_id: Airflow connection whose password is the key of hashes. (templated)
    :param max_events: how many events the windows that are to be taken in may have together, those between included;
        with more, the task fails before anything is written.
    :param landing_conn_id: Airflow connection of the landing, as given to the drain. (templated)
    :raises ConfigurationError: at construction, if an argument is unusable.
    """

    template_fields: Sequence[str] = (*EmbeddedJobOperator.template_fields, "hash_conn_id")
    elsewhere = "SparkSubmitReplicaOperator"

    def __init__(
        self,
        *,
        windows: Any,
        output_url: str,
        output_conn_id: str | None = None,
        deletes: Literal["soft", "hard"] = "soft",
        history: bool = False,
        target_file_bytes: int = 128 << 20,
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
        check_choice("deletes", deletes, ("soft", "hard"))
        check_positive(target_file_bytes=target_file_bytes, keep_snapshots=keep_snapshots)
        super().__init__(
            windows=windows,
            output_url=output_url,
            output_conn_id=output_conn_id,
            landing_conn_id=landing_conn_id,
            max_events=max_events,
            **kwargs,
        )
        self.deletes = deletes
        self.history = history
        self.target_file_bytes = target_file_bytes
        self.keep_snapshots = keep_snapshots
        self.verify_files = verify_files
        self.exclude_fields = exclude_fields
        self.mask_fields = mask_fields
        self.hash_fields = hash_fields
        self.hash_conn_id = hash_conn_id
        if self.given_rules().hash and not hash_conn_id:
            raise ConfigurationError(
                "hash_fields needs hash_conn_id, a connection whose password is the key of hashes."
            )

    def run_job(self, context: Context, manifests: tuple[str, ...]) -> dict[str, Any]:
        """Run the job here; return its metrics."""
        from airflow_provider_sfstream.tables.replica.job import run
        from airflow_provider_sfstream.tables.replica.options import ReplicaOptions

        def job(engine: Any, metrics_file: str, name: str) -> Any:
            options = ReplicaOptions(
                self.output_url,
                manifests,
                deletes=self.deletes,
                history=self.history,
                target_file_bytes=self.target_file_bytes,
                keep_snapshots=self.keep_snapshots,
                metrics_file=metrics_file,
                verify_files=self.verify_files,
                job=name,
                rules=self.rules(),
            )
            return run(engine, options)

        return self.run_here(context, job)
