"""Table jobs in the task of a drain: each is the operator of the job, which the task runs on its own result."""

from __future__ import annotations

import inspect
import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, BaseOperator, Context

from airflow_provider_sfstream._airflow import AirflowSkipException, execute_within
from airflow_provider_sfstream.actions.arguments import is_template
from airflow_provider_sfstream.actions.landed_stream import LandedStreamOperator
from airflow_provider_sfstream.exceptions import ConfigurationError

if TYPE_CHECKING:
    from airflow_provider_sfstream.actions.tables.embedded_job import EmbeddedWindowsOperator

log = logging.getLogger(__name__)

_OF_DRAIN = frozenset({"windows", "landing_conn_id", "salesforce_conn_id"})
_OF_TASK = frozenset(inspect.signature(BaseOperator.__init__).parameters)


class TableJobsOperator(LandedStreamOperator):
    """Base of the drain operator: the table jobs of its task."""

    table_jobs: Sequence[EmbeddedWindowsOperator] = ()
    """The operators of the jobs, once the drain has ended."""

    def __init__(
        self,
        *,
        event_log: Mapping[str, Any] | None = None,
        replica: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.event_log, self.replica = event_log, replica
        self.check_table_jobs()

    @abstractmethod
    def table_job(self, name: str) -> Callable[..., EmbeddedWindowsOperator]:
        """Return the constructor of the operator of a job, by the attribute with its arguments."""

    def check_table_jobs(self) -> None:
        """Check the arguments of the jobs, when the DAG is parsed as far as they are known then.

        :raises ConfigurationError: naming the unusable argument.
        """
        for name, arguments in self._arguments().items():
            values = arguments.values() if isinstance(arguments, Mapping) else [arguments]
            # The operator accepts Jinja, but would make its own DAG depend on the task whose output it receives.
            if not any(is_template(each) and not isinstance(each, str) for each in values):
                self._new_job(name, arguments, windows=[])

    def run_table_jobs(self, result: dict[str, Any], context: Context) -> dict[str, Any]:
        """Run the jobs on the windows of the result; return the metrics of each, ``None`` of a job without events."""
        jobs = {name: self._new_job(name, arguments, result) for name, arguments in self._arguments().items()}
        self.table_jobs = list(jobs.values())
        return {name: _metrics(name, job, context) for name, job in jobs.items()}

    def _arguments(self) -> dict[str, Any]:
        arguments = {"event_log": self.event_log, "replica": self.replica}
        return {name: each for name, each in arguments.items() if each is not None}

    def _new_job(self, name: str, arguments: Any, windows: Any) -> EmbeddedWindowsOperator:
        """Return the operator of a job, in a DAG of its own: the DAG of the drain has no task for it."""
        if not isinstance(arguments, Mapping):
            raise ConfigurationError(f"{name} is a {type(arguments).__name__}. Set a dict: {{'output_url': '...'}}.")
        if refused := sorted(arguments.keys() & (_OF_DRAIN | _OF_TASK)):
            raise ConfigurationError(f"{name} has {', '.join(refused)}, which the drain determines. Remove it there.")
        dag = DAG("table_jobs", schedule=None)
        job = self.table_job(name)(
            task_id=f"{self.task_id}.{name}",
            dag=dag,
            task_group=dag.task_group,  # else that of the drain
            windows=windows,
            landing_conn_id=self.landing_conn_id,
            **arguments,
        )
        job.data_loss = f"Nothing: the windows of this run are landed. The cleared task runs {name} on them again."
        return job


def _metrics(name: str, job: EmbeddedWindowsOperator, context: Context) -> dict[str, Any] | None:
    try:
        metrics: dict[str, Any] = execute_within(job, context)
    except AirflowSkipException as skipped:
        log.info("%s: %s", name, skipped)
        return None
    return metrics
