"""What operators have in common that write tables, wherever their job runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream._airflow import AirflowSkipException
from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.actions.landed import Landed, all_manifests, flat_windows, stream_uris
from airflow_provider_sfstream.actions.status import tell_of_event_log, tell_of_tables
from airflow_provider_sfstream.actions.tables.field_rules import HidesFields
from airflow_provider_sfstream.actions.tables.missing_schemas import fetch_missing_schemas
from airflow_provider_sfstream.actions.tables.replica import read_snapshot, snapshot_if_readable
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.monitoring.lineage import TellsLineage
from airflow_provider_sfstream.redaction import has_credentials

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context


class WritesTables(TellsLineage, HidesFields):
    """For operators on landed windows with tables below ``output_url``."""

    windows: Any
    output_url: str
    output_conn_id: str | None
    metrics: dict[str, Any] | None = None
    """What the job told of this run, once it has."""
    log: Any

    @property
    def stream_uri(self) -> str | None:
        """The URI of the asset of the landed stream that the windows are of; ``None`` if they are of several, or the
        task was given manifests, which do not tell.

        :raises ConfigurationError: if something else is among the windows.
        """
        uris = {each.get("asset_uri") if isinstance(each, dict) else None for each in flat_windows(self.windows)}
        return uris.pop() if len(uris) == 1 else None

    @property
    def window_manifests(self) -> list[str]:
        """The URLs of the windows' manifests.

        :raises ConfigurationError: if something else is among the windows.
        """
        return list(all_manifests(self.windows)[0])


class EventLogTask(WritesTables):
    """For operators that run the ``event_log`` job; subclasses say how, and document the arguments."""

    event_time_from: str | None
    event_time_to: str | None
    replay_quarantine: bool
    salesforce_conn_id: str
    landing_conn_id: str | None

    def run_job(self, context: Context, landed: Landed) -> dict[str, Any] | None:
        """Run the job; return its metrics, ``None`` if they cannot be read here."""
        raise NotImplementedError

    def execute(self, context: Context) -> dict[str, Any] | None:
        """Run the job and wait for it; return its metrics."""
        with airflow_errors(self):  # type: ignore[arg-type]
            landed = Landed.of(self.windows, self.event_time_from, self.event_time_to)
            check_output(self.output_url)
        if not landed.manifests:
            raise AirflowSkipException("There are no windows with events to process.")
        if self.replay_quarantine:
            with airflow_errors(self):  # type: ignore[arg-type]
                fetched = fetch_missing_schemas(
                    landed.manifests, salesforce_conn_id=self.salesforce_conn_id, landing_conn_id=self.landing_conn_id
                )
            self.log.info("Schemas fetched into the landing: %s", ", ".join(fetched) or "none")
        metrics = self.run_job(context, landed)
        for stream in landed.streams:
            tell_of_event_log(stream, self.output_url, context, metrics, replayed=self.replay_quarantine)
        return metrics

    def lineage(self, *, has_ended: bool) -> OperatorLineage:
        """Return the landed streams as inputs; as outputs, once the job has succeeded, the tables that it wrote."""
        from airflow_provider_sfstream.actions.open_lineage import event_log_lineage

        metrics = self.metrics if has_ended else None
        return event_log_lineage(self.windows, self.output_url, self.output_conn_id, metrics, has_ended=has_ended)


class ReplicaTask(WritesTables):
    """For operators that run the ``replica`` job; subclasses say how, and document the arguments."""

    def run_job(self, context: Context, manifests: tuple[str, ...]) -> dict[str, Any] | None:
        """Run the job; return its metrics, ``None`` if they cannot be read here."""
        raise NotImplementedError

    def execute(self, context: Context) -> dict[str, Any] | None:
        """Run the job and wait for it; return its metrics."""
        with airflow_errors(self):  # type: ignore[arg-type]
            manifests, are_empty = all_manifests(self.windows)
            check_output(self.output_url)
        if not manifests or (are_empty and not self._holds_events()):
            raise AirflowSkipException("There are no windows with events to apply.")
        metrics = self.run_job(context, manifests)
        tell_of_tables(self.output_url, "replica", context, metrics or {}, stream_uris(self.windows))
        return metrics

    def lineage(self, *, has_ended: bool) -> OperatorLineage:
        """Return the landed streams as inputs; as outputs, once the job has succeeded, the tables that it wrote."""
        from airflow_provider_sfstream.actions.open_lineage import replica_lineage

        metrics = self.metrics if has_ended else None
        snapshot = snapshot_if_readable(self.output_url, self.output_conn_id) if metrics else None
        return replica_lineage(self.windows, self.output_url, metrics, snapshot, has_ended=has_ended)

    def _holds_events(self) -> bool:
        """Tell whether an empty window may complete a transaction of which events are held back."""
        try:
            snapshot = read_snapshot(self.output_url, self.output_conn_id)
        except Exception as error:  # whatever keeps the worker from knowing: the job itself will know
            self.log.warning("The replica at %s cannot be read here (%s); starting the job.", self.output_url, error)
            return True
        return any(stream.held for stream in snapshot.streams.values())


def check_output(output_url: Any) -> None:
    """Check where tables are to be.

    :raises ConfigurationError: if it is empty or carries a password.
    """
    if not isinstance(output_url, str) or not output_url.strip():
        raise ConfigurationError("output_url is empty. Give the URL of the folder that tables are written to.")
    if has_credentials(output_url):
        raise ConfigurationError(
            "output_url carries a password or a signature. Leave it out and give the credentials to Spark, or to the "
            "connection of the storage; nothing was written."
        )


def metrics_url(output_url: str, context: Context) -> str:
    """Return where the metrics of a task's last job are."""
    task_instance: Any = context["ti"]
    mapped = "" if task_instance.map_index in (None, -1) else f".{task_instance.map_index}"
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", f"{task_instance.dag_id}.{task_instance.task_id}{mapped}")
    return f"{output_url.rstrip('/')}/_sfstream/metrics/{name}.json"
