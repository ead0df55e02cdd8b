"""Base of the operators that start one of this package's Spark applications."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream import exceptions
from airflow_provider_sfstream._airflow import AirflowException
from airflow_provider_sfstream.actions.arguments import find_connection
from airflow_provider_sfstream.actions.storage import storage_path
from airflow_provider_sfstream.actions.tables.table_job import TableJobOperator
from airflow_provider_sfstream.exceptions import ConfigurationError, SalesforceStreamError, SparkJobError
from airflow_provider_sfstream.extras import require_extra
from airflow_provider_sfstream.monitoring.links import SparkUILink, show_now
from airflow_provider_sfstream.privacy.field_rules import HASH_KEY_VARIABLE
from airflow_provider_sfstream.redaction import quoted
from airflow_provider_sfstream.tables.job_config import JobConfig, WindowsJobConfig

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import BaseOperatorLink, Context

require_extra("spark")
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator  # noqa: E402

_LAST_LINES = 500
"""Lines of the driver's log to store for its error: the cause precedes long traces."""
_APPLICATIONS = Path(__file__).resolve().parents[2] / "tables" / "spark_apps"


class SparkJobOperator(TableJobOperator, SparkSubmitOperator):  # type: ignore[misc]
    """Base of the operators that submit an application of this package.

    If the Spark connection does not exist, it runs on this worker with master ``local[*]``, and a warning.

    :param output_url: folder of the tables, as a URL that Spark can write to. (templated)
    :param output_conn_id: Airflow connection with which the worker reads and writes single files of that folder, such
        as the metrics and the records of a refresh, if it needs one. The job uses Spark's credentials. (templated)
    :param conn_id: Airflow connection that names the Spark master.
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, *TableJobOperator.template_fields)
    operator_extra_links: Collection[BaseOperatorLink] = (SparkUILink(),)
    name_on_spark = ""
    """Default name of the Spark application."""
    py_files: str | None

    def __init__(
        self, *, conn_id: str = "spark_default", durable: bool = False, name: str | None = None, **kwargs: Any
    ) -> None:
        if {"application", "application_args"} & kwargs.keys():
            raise ConfigurationError("This operator sets application and application_args. Remove these arguments.")
        application = str(_APPLICATIONS / f"{self.job}.py")
        name = name or self.name_on_spark
        super().__init__(application=application, conn_id=conn_id, name=name, **_resuming(durable), **kwargs)
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)

    _begun: str | None = None
    """ID of the application in its driver's log."""
    _task_instance: Any = None
    _hash_key: str | None = None
    """The key of hashes for the driver."""

    def run_on_engine(self, context: Context, config: JobConfig) -> dict[str, Any] | None:
        """Run the application and wait for it; return its metrics, ``None`` where they cannot be read here.

        :raises SalesforceStreamError: the driver ended with an error; :class:`SparkJobError` if that is not ours.
        """
        from airflow_provider_sfstream.tables.spark_apps.executor_package import write_executor_package

        self._begun, self._task_instance = None, context["ti"]
        config = self.config_of_run(config, context)
        self._hash_key = config.hash_key if isinstance(config, WindowsJobConfig) else None
        self.application_args = config.to_arguments()
        own_py_files = self.py_files
        with tempfile.TemporaryDirectory() as folder:
            # A driver elsewhere gets the application's one file only, and this.
            self.py_files = ",".join(filter(None, (str(write_executor_package(folder)), own_py_files)))
            # An argument would show the key to ``ps``.
            with _environment({HASH_KEY_VARIABLE: self._hash_key} if self._hash_key else {}):
                self._submit(context)
        self.metrics = self._read_metrics(config)
        return self.metrics

    def _submit(self, context: Context) -> None:
        try:
            super().execute(context)
        except AirflowException as error:
            text = "\n".join([str(error), *self._last_lines])
            raise driver_error(text, self._hook._connection["master"]) from error

    @property
    def spark_conn_id(self) -> str:
        """The Airflow connection that names the Spark master."""
        return str(self._conn_id)

    @property
    def spark_application(self) -> str | None:
        """The id of the Spark application; ``None`` while it is unknown: a driver on the worker logs it when it
        begins, YARN and Kubernetes too; one on a standalone cluster when its job has succeeded."""
        application_id: Any = self._begun or (self.metrics or {}).get("application_id")
        if not application_id and self._hook is not None:
            application_id = self._hook._yarn_application_id or self._hook._kubernetes_application_id
        return application_id or None

    def _read_metrics(self, config: JobConfig) -> dict[str, Any] | None:
        import json

        url = str(config.metrics_url)
        try:
            metrics: dict[str, Any] = json.loads(storage_path(url, self.output_conn_id).read_text())
            job = metrics.pop("job")
        except Exception as error:  # the job has succeeded; a failure to read its report must not fail the task
            self.log.warning("The job succeeded, but the worker cannot read its metrics at %s: %s", url, error)
            return None
        if _run_of(job) != _run_of(config.job):
            text = "spark-submit ended without an error, but the metrics at %s are of %s. Has the job ended?"
            self.log.warning(text, url, job)
            return None
        if self._hook._connection["deploy_mode"] == "cluster":  # else the driver's last line, in this log, has them
            self.log.info("%s metrics: %s", Path(self.application).stem, metrics)
        return metrics

    def _get_hook(self) -> SparkSubmitHook:
        if find_connection(self._conn_id) is not None:
            hook = super()._get_hook()
        else:
            self.log.warning(
                "Connection %r does not exist. Running Spark on this worker, with master local[*].", self._conn_id
            )
            connection = {f"AIRFLOW_CONN_{self._conn_id.upper()}": '{"conn_type": "spark", "host": "local[*]"}'}
            with _environment(connection):  # the hook would fall back to YARN
                hook = super()._get_hook()
        if self._hash_key and hook._connection["deploy_mode"] == "cluster":
            raise ConfigurationError(
                "hash_conn_id passes the key of hashes only to a driver on the worker. This driver runs on a cluster, "
                "where the key would be a readable argument. Remove hash_conn_id, and set the driver's environment "
                f"variable {HASH_KEY_VARIABLE} from a secret of the cluster. Nothing was submitted."
            )
        # Hooks of older providers store no lines; newer ones drop the lines before the first exception.
        read_log = hook._process_spark_submit_log
        hook._process_spark_submit_log = lambda lines: read_log(self._read(lines))
        if hook._connection["master"].startswith("local"):
            hook._env_vars = {**_local_environment(hook), **(self.env_vars or {})}
            # The driver's log is the task's log here: without Spark's hundreds of lines, the job's own can be found.
            hook._conf = {"spark.log.level": "WARN", **hook._conf}
        return hook

    def _read(self, lines: Iterator[str]) -> Iterator[str]:
        """Yield the lines of ``spark-submit``, and keep the last ones. Once a line names the application, its page
        is linked, because it is most useful during the job or after a failure."""
        from airflow_provider_sfstream.tables.spark_apps.application import HAS_BEGUN

        self._last_lines.clear()
        linked = self.spark_application
        for line in lines:
            self._last_lines.append(line.strip())
            if begun := HAS_BEGUN.search(line):
                self._begun = begun[1]
            yield line  # the hook finds the ids of YARN and Kubernetes
            if self.spark_application != linked:
                linked = self.spark_application
                show_now(SparkUILink(), self, self._task_instance)


def _run_of(job: str) -> str:
    """Return the run of a job without its try: a later try may continue with the driver of an earlier one."""
    return job.rpartition(" try ")[0]


def _resuming(durable: bool) -> dict[str, Any]:
    """Return the argument of the Spark provider that decides whether to continue with an earlier driver."""
    known = inspect.signature(SparkSubmitOperator.__init__).parameters
    name = next((name for name in ("durable", "reconnect_on_retry") if name in known), None)
    if name is None and durable:
        raise ConfigurationError(
            "durable=True requires a newer apache-airflow-providers-apache-spark: the installed version cannot "
            "reconnect to an earlier driver. Upgrade the provider, or remove durable."
        )
    return {} if name is None else {name: durable}


def driver_error(text: str, master: str) -> SalesforceStreamError:
    """Return the error with which a driver ended: this package's own, by its class, or else a SparkJobError."""
    code = re.search(r"Error code is: (-?\d+)", text)
    raised = re.findall(r"^(?:Caused by: )?([A-Za-z_][\w.$]*(?:Error|Exception)): (.*)$", text, re.MULTILINE)
    for name, message in reversed(raised):
        kind = getattr(exceptions, name.removeprefix(f"{exceptions.__name__}."), None)
        if name.startswith(exceptions.__name__) and kind is not None:
            error: SalesforceStreamError = kind(message)
            return error
    # Spark's log has the cause of an application's end; the later error of its driver has only the end itself.
    killed = re.findall(r"Application has been killed\. Reason: (.*)$", text, re.MULTILINE)
    cause = f": {raised[-1][0]} ({quoted(raised[-1][1])})" if raised else ""
    cause = f": {quoted(killed[-1])}" if killed else cause
    ended = f"exit code {code[1]}" if code else "an error"
    return SparkJobError(f"spark-submit to {master} ended with {ended}{cause}.")


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables that are not set, for the processes and hooks of the block."""
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


def _local_environment(hook: SparkSubmitHook) -> dict[str, str]:
    """Return the settings with which a local ``spark-submit`` uses this Python environment, unless they are set."""
    environment = {}
    if "PYSPARK_PYTHON" not in os.environ and "spark.pyspark.python" not in hook._conf:
        environment["PYSPARK_PYTHON"] = sys.executable
    beside_python = str(Path(sys.executable).parent)
    if not shutil.which(hook._connection["spark_binary"]):
        environment["PATH"] = os.pathsep.join(filter(None, (os.environ.get("PATH"), beside_python)))
    return environment
