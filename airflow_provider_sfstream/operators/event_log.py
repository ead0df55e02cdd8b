"""Write landed replay windows to tables in the worker's own process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.actions.parts import time_from_text
from airflow_provider_sfstream.actions.tables.embedded_job import MAX_EVENTS, EmbeddedJobOperator
from airflow_provider_sfstream.actions.tables.table_job import EventLogTask
from airflow_provider_sfstream.exceptions import ConfigurationError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_sfstream.actions.landed import Landed


class EventLogOperator(EventLogTask, EmbeddedJobOperator):
    """Do in the worker's own process what :class:`SparkSubmitEventLogOperator` does on Spark, for small windows and
    for those who have no Spark.

    The same functions write the same tables, one row group after another: columns, quarantine, metrics and what a retry
    changes are the same, and either operator may go on where the other stopped. It needs neither Java nor pyspark. One
    million change events of a hundred columns took 389 MiB of memory beside what the worker had. Landed files are
    copied to its temporary folder.

    The XCom result is the job's metrics, as of that operator; ``application_id`` is empty.

    :param windows: what to process: the XCom result of a drain, a manifest URL, or a list of these. Windows without
        events are left out; with none left, the task is skipped. The result of an interval bounds the job by
        itself; several results must be of one interval. (templated)
    :param output_url: folder of the tables, as a URL of Airflow's object storage. (templated)
    :param output_conn_id: Airflow connection of its storage, where it needs one. Delta's log on S3 is written with the
        connection's credentials, elsewhere with those of the worker's environment. (templated)
    :param event_time_from: only process events at or after this time (ISO 8601, with time zone). Not needed, and not
        to be contradicted, with the result of an interval. (templated)
    :param event_time_to: only process events before this time. (templated)
    :param verify_files: compare landed files with the SHA-256 of their manifest before anything is written.
    :param replay_quarantine: take back what is in the quarantine for want of a schema, as that operator does.
    :param exclude_fields: fields that the tables may not have, such as ``"Phone"``, ``"Name.FirstName"`` or, of one
        table alone, ``"Contact.Phone"`` (docs/reference/personal-data.md). To be given with each run then.
    :param mask_fields: fields of which the tables have ``***`` in place of a text, and null in place of another value.
    :param hash_fields: fields of which the tables have the HMAC-SHA-256 (hex) of a text, and null in place of another
        value.
    :param hash_conn_id: Airflow connection whose password is the key of hashes. (templated)
    :param max_events: how many events the windows may have together; with more, the task fails before anything is
        written. Memory grows by some 100 bytes an event.
    :param salesforce_conn_id: Airflow connection of the org, for ``replay_quarantine``. (templated)
    :param landing_conn_id: Airflow connection of the landing, as given to the drain. (templated)
    :raises ConfigurationError: at construction, if ``max_events`` or a rule for fields is unusable.
    """

    template_fields: Sequence[str] = (
        *EmbeddedJobOperator.template_fields,
        "event_time_from",
        "event_time_to",
        "salesforce_conn_id",
        "hash_conn_id",
    )
    elsewhere = "SparkSubmitEventLogOperator"

    def __init__(
        self,
        *,
        windows: Any,
        output_url: str,
        output_conn_id: str | None = None,
        event_time_from: str | None = None,
        event_time_to: str | None = None,
        verify_files: bool = True,
        replay_quarantine: bool = False,
        max_events: int = MAX_EVENTS,
        salesforce_conn_id: str = "salesforce_default",
        landing_conn_id: str | None = None,
        exclude_fields: Sequence[str] = (),
        mask_fields: Sequence[str] = (),
        hash_fields: Sequence[str] = (),
        hash_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            windows=windows,
            output_url=output_url,
            output_conn_id=output_conn_id,
            landing_conn_id=landing_conn_id,
            max_events=max_events,
            **kwargs,
        )
        self.event_time_from = event_time_from
        self.event_time_to = event_time_to
        self.verify_files = verify_files
        self.replay_quarantine = replay_quarantine
        self.salesforce_conn_id = salesforce_conn_id
        self.exclude_fields = exclude_fields
        self.mask_fields = mask_fields
        self.hash_fields = hash_fields
        self.hash_conn_id = hash_conn_id
        if self.given_rules().hash and not hash_conn_id:
            raise ConfigurationError(
                "hash_fields needs hash_conn_id, a connection whose password is the key of hashes."
            )

    def run_job(self, context: Context, landed: Landed) -> dict[str, Any]:
        """Run the job here; return its metrics."""
        from airflow_provider_sfstream.tables.event_log.job import EventLogOptions, run

        def job(engine: Any, metrics_file: str, name: str) -> Any:
            options = EventLogOptions(
                landed.manifests,
                self.output_url,
                time_from_text("event_time_from", landed.event_time_from),
                time_from_text("event_time_to", landed.event_time_to),
                landed.own_windows,
                metrics_file,
                self.verify_files,
                name,
                self.rules(),
            )
            return run(engine, options)

        return self.run_here(context, job)
