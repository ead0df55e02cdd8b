"""Write landed replay windows to tables in the worker's own process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream._airflow import AirflowSkipException
from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.actions.status import report_event_log
from airflow_provider_sfstream.actions.tables.embedded_job import MAX_EVENTS, EmbeddedJobOperator
from airflow_provider_sfstream.actions.tables.missing_schemas import fetch_missing_schemas
from airflow_provider_sfstream.actions.tables.table_job import check_output
from airflow_provider_sfstream.actions.windows_argument import WindowsArgument
from airflow_provider_sfstream.tables.event_log.config import EventLogConfig

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context


class EventLogOperator(EmbeddedJobOperator):
    """Write landed events to typed tables in the worker's process, for small windows, or without Spark.

    The alternative on Spark is :class:`SparkSubmitEventLogOperator`.

    The same functions write the same tables, one row group after another: columns, quarantine, metrics and the effect
    of a retry are the same, and each operator can continue the other's tables. It needs neither Java nor pyspark. One
    million change events of a hundred columns needed 389 MiB of memory in addition to the worker's. Landed files are
    copied to the worker's temporary folder.

    The XCom result is the job's metrics, as of that operator; ``application_id`` is empty.

    :param windows: the windows to process: the XCom result of a drain, a manifest URL, or a list of these. Windows
        without events are omitted; without any other, the task is skipped. The result of an interval limits the job to
        that interval; several results must have the same one. (templated)
    :param output_url: folder of the tables, as a URL of Airflow's object storage. (templated)
    :param output_conn_id: Airflow connection of its storage, if it needs one. Delta's log on S3 is written with the
        connection's credentials, elsewhere with those of the worker's environment. (templated)
    :param event_time_from: only process events at or after this time (ISO 8601, with time zone). Omit it with the
        result of an interval; another time than the interval's is an error. (templated)
    :param event_time_to: only process events before this time. (templated)
    :param verify_files: compare landed files with the SHA-256 of their manifest before anything is written.
    :param replay_quarantine: process quarantined events without a schema again, as that operator does.
    :param exclude_fields: fields that the tables must not have: ``"Phone"``, ``"Name.FirstName"``, or only for one
        table ``"Contact.Phone"`` (docs/reference/personal-data.md). Then required for each run.
    :param mask_fields: fields that are stored as ``***`` instead of a text, and as null instead of another value.
    :param hash_fields: fields that are stored as the HMAC-SHA-256 (hex) of a text, and as null instead of another
        value.
    :param hash_conn_id: Airflow connection whose password is the key of hashes. (templated)
    :param max_events: most events of all windows; with more, the task fails before it writes anything. Each event needs
        about 100 bytes of memory.
    :param salesforce_conn_id: Airflow connection of the org, for ``replay_quarantine``. (templated)
    :param landing_conn_id: Airflow connection of the landing, as in the drain. (templated)
    :raises ConfigurationError: at construction, if ``max_events`` or a rule for fields is unusable.
    """

    template_fields: Sequence[str] = (
        *EmbeddedJobOperator.template_fields,
        "event_time_from",
        "event_time_to",
        "salesforce_conn_id",
    )

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
        self._config = EventLogConfig(
            output_url="",
            verify_files=verify_files,
            exclude_fields=exclude_fields,
            mask_fields=mask_fields,
            hash_fields=hash_fields,
        )
        super().__init__(
            config=self._config,
            spark_operator="SparkSubmitEventLogOperator",
            windows=windows,
            output_url=output_url,
            output_conn_id=output_conn_id,
            landing_conn_id=landing_conn_id,
            hash_conn_id=hash_conn_id,
            max_events=max_events,
            **kwargs,
        )
        self.event_time_from = event_time_from
        self.event_time_to = event_time_to
        self.replay_quarantine = replay_quarantine
        self.salesforce_conn_id = salesforce_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the job here; return its metrics."""
        from airflow_provider_sfstream.tables.event_log.job import run

        with airflow_errors(self):
            check_output(self.output_url)
            landed = WindowsArgument.from_argument(self.windows, self.event_time_from, self.event_time_to)
            config = landed.added_to(self._config)
            if not config.manifests:
                raise AirflowSkipException("There are no windows with events to process.")
            if self.replay_quarantine:
                fetch_missing_schemas(
                    config.manifests, salesforce_conn_id=self.salesforce_conn_id, landing_conn_id=self.landing_conn_id
                )
            metrics = self.run_here(context, config, run)
        for stream in landed.streams:
            report_event_log(stream, self.output_url, context, metrics, replayed=self.replay_quarantine)
        return metrics

    def lineage(self, *, has_ended: bool) -> OperatorLineage:
        """Return the landed streams as inputs; as outputs, once the job has succeeded, the tables that it wrote."""
        from airflow_provider_sfstream.actions.open_lineage import event_log_lineage

        metrics = self.metrics if has_ended else None
        return event_log_lineage(self.windows, self.output_url, self.output_conn_id, metrics, has_ended=has_ended)
