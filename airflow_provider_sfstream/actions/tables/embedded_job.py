"""Base of the operators that run a job in the worker's process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import BaseOperator

from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.actions.tables.table_job import WindowsOperator, config_of_run, hash_key
from airflow_provider_sfstream.arguments import check_positive
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.monitoring.links import ManifestLink, StreamLink
from airflow_provider_sfstream.tables.job_config import WindowsJobConfig

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_sfstream.tables.runner.embedded import EmbeddedEngine

MAX_EVENTS = 1_000_000
"""Default of the most events of a run."""

Config = TypeVar("Config", bound=WindowsJobConfig)


class EmbeddedJobOperator(WindowsOperator, BaseOperator):
    """Base of the operators that run a job in the worker's own process; subclasses document the arguments.

    :param config: of the job, as far as it is known before the task runs.
    :param spark_operator: name of the operator that takes more events.
    """

    template_fields: Sequence[str] = ("windows", "output_url", "output_conn_id", "landing_conn_id", "hash_conn_id")
    operator_extra_links = (StreamLink(), ManifestLink())
    metrics: dict[str, Any] | None = None
    """Metrics of the job of this run, ``None`` before its end."""

    def __init__(
        self,
        *,
        config: WindowsJobConfig,
        spark_operator: str,
        output_url: str,
        output_conn_id: str | None,
        landing_conn_id: str | None,
        hash_conn_id: str | None,
        max_events: int,
        **kwargs: Any,
    ) -> None:
        check_positive(max_events=max_events)
        if config.hash_fields and not hash_conn_id:
            raise ConfigurationError(
                "hash_fields needs hash_conn_id, a connection whose password is the key of hashes."
            )
        super().__init__(**kwargs)
        self.output_url = output_url
        self.output_conn_id = output_conn_id
        self.landing_conn_id = landing_conn_id
        self.hash_conn_id = hash_conn_id
        self.max_events = max_events
        self._spark_operator = spark_operator

    def run_here(
        self, context: Context, config: Config, run: Callable[[EmbeddedEngine, Config], Any]
    ) -> dict[str, Any]:
        """Run a job; return its metrics, with which Spark's job would have ended too.

        :param run: returns a dataclass.
        """
        from airflow_provider_sfstream.tables.runner.embedded import EmbeddedEngine

        config = replace(config_of_run(config, self.output_url, context), hash_key=hash_key(self.hash_conn_id))
        with TemporaryDirectory(prefix="sfstream-") as folder:
            engine = EmbeddedEngine(
                ObjectStorageFiles(self.landing_conn_id),
                ObjectStorageFiles(self.output_conn_id),
                folder,
                max_events=self.max_events,
                elsewhere=self._spark_operator,
            )
            self.metrics = asdict(run(engine, config))
        self.log.info("Job metrics: %s", self.metrics)
        return self.metrics
