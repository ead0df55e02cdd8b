"""What the operators share that run a job in the worker's own process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.actions.parts import check_positive, run_identity
from airflow_provider_sfstream.actions.tables.table_job import metrics_url
from airflow_provider_sfstream.actions.worker_files import WorkerFiles
from airflow_provider_sfstream.monitoring.links import ManifestLink, StreamLink

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_sfstream.tables.runner.embedded import EmbeddedEngine

MAX_EVENTS = 1_000_000
"""How many events a worker takes at once, if nothing else is said."""


class EmbeddedJobOperator(BaseOperator):
    """Run a job of this package here; subclasses say which, and document the arguments."""

    template_fields: Sequence[str] = ("windows", "output_url", "output_conn_id", "landing_conn_id")
    operator_extra_links = (StreamLink(), ManifestLink())
    metrics: dict[str, Any] | None
    elsewhere: str
    """The operator that takes more events."""

    def __init__(
        self,
        *,
        windows: Any,
        output_url: str,
        output_conn_id: str | None,
        landing_conn_id: str | None,
        max_events: int,
        **kwargs: Any,
    ) -> None:
        check_positive(max_events=max_events)
        super().__init__(**kwargs)
        self.windows = windows
        self.output_url = output_url
        self.output_conn_id = output_conn_id
        self.landing_conn_id = landing_conn_id
        self.max_events = max_events

    def run_here(self, context: Context, run: Callable[[EmbeddedEngine, str, str], Any]) -> dict[str, Any]:
        """Run a job; return its metrics, with which Spark's job would have ended too.

        :param run: is given the engine, where the metrics are to be, and who runs, and returns a dataclass.
        """
        from airflow_provider_sfstream.tables.runner.embedded import EmbeddedEngine

        with airflow_errors(self), TemporaryDirectory(prefix="sfstream-") as folder:
            engine = EmbeddedEngine(
                WorkerFiles(self.landing_conn_id),
                WorkerFiles(self.output_conn_id),
                folder,
                max_events=self.max_events,
                elsewhere=self.elsewhere,
            )
            metrics = asdict(run(engine, metrics_url(self.output_url, context), str(run_identity(context))))
        self.log.info("The job's metrics: %s", metrics)
        self.metrics = metrics
        return metrics
