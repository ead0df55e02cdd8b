"""Base of the operators that run the ``event_log`` job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream._airflow import AirflowSkipException
from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.actions.status import report_event_log
from airflow_provider_sfstream.actions.tables.missing_schemas import fetch_missing_schemas
from airflow_provider_sfstream.actions.tables.table_job import WindowsOperator, check_output
from airflow_provider_sfstream.actions.windows_argument import WindowsArgument, reason_to_skip
from airflow_provider_sfstream.tables.event_log.config import EventLogConfig

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context


class EventLogJobOperator(WindowsOperator):
    """Base of the operators that run the ``event_log`` job.

    :param windows: the windows to process: the XCom result of a drain, a manifest URL, or a list of these. Windows
        without events are omitted; without any other, the task is skipped. The result of an interval limits the job to
        that interval; several results must have the same one. (templated)
    :param event_time_from: only process events at or after this time (ISO 8601, with time zone). Omit it with the
        result of an interval; another time than the interval's is an error. (templated)
    :param event_time_to: only process events before this time. (templated)
    :param replay_quarantine: process quarantined events without a schema again: fetch the missing schemas of the
        windows from Salesforce into the landing, then run the job on the windows. Salesforce is called only if a schema
        is missing. A schema that it still refuses is logged, and its events stay in the quarantine.
    :param salesforce_conn_id: Airflow connection of the org, for ``replay_quarantine``. (templated)
    :param landing_conn_id: Airflow connection of the landing, as in the drain. (templated)
    """

    own_template_fields = (
        *("windows", "event_time_from", "event_time_to"),
        *("salesforce_conn_id", "landing_conn_id", "hash_conn_id"),
    )
    job = "event_log"
    _config: EventLogConfig

    def __init__(
        self,
        *,
        windows: Any,
        output_url: str,
        event_time_from: str | None = None,
        event_time_to: str | None = None,
        replay_quarantine: bool = False,
        salesforce_conn_id: str = "salesforce_default",
        landing_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        config = EventLogConfig(output_url="")
        super().__init__(windows=windows, output_url=output_url, config=config, **kwargs)
        self.event_time_from = event_time_from
        self.event_time_to = event_time_to
        self.replay_quarantine = replay_quarantine
        self.salesforce_conn_id = salesforce_conn_id
        self.landing_conn_id = landing_conn_id

    def execute(self, context: Context) -> dict[str, Any] | None:
        """Run the job; return its metrics."""
        with airflow_errors(self):
            check_output(self.output_url)
            landed = WindowsArgument.from_argument(self.windows, self.event_time_from, self.event_time_to)
            config = landed.added_to(self._config)
            if not config.manifests:
                raise AirflowSkipException(reason_to_skip(self.windows))
            if self.replay_quarantine:
                fetch_missing_schemas(
                    config.manifests, salesforce_conn_id=self.salesforce_conn_id, landing_conn_id=self.landing_conn_id
                )
            metrics = self.run_job(context, self.with_hash_key(config))
        for stream in landed.streams:
            report_event_log(stream, self.output_url, context, metrics, landed.interval)
        return metrics

    def lineage(self, *, has_ended: bool) -> OperatorLineage:
        """Return the landed streams as inputs; as outputs, once the job has succeeded, the tables that it wrote."""
        from airflow_provider_sfstream.actions.open_lineage import event_log_lineage

        metrics = self.metrics if has_ended else None
        return event_log_lineage(self.windows, self.output_url, self.output_conn_id, metrics, has_ended=has_ended)
