"""Start a Spark job on landed replay windows."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.operators._landed import Landed
from airflow_provider_sfstream.operators._parts import airflow_errors

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

JOBS = {"event_log": "event_log.py"}
_SPARK = Path(__file__).resolve().parent.parent / "spark"


class SparkSubmitReplayWindowsOperator(SparkSubmitOperator):  # type: ignore[misc]
    """Run a job of this package with ``spark-submit`` on windows that a drain landed.

    Only manifest URLs travel through XCom, never events. The jobs are idempotent by window: a retry, a clear or
    two windows that overlap change nothing. One job at a time may write below one ``output_url``
    (``max_active_runs=1``; where backfills run beside live runs, ``max_active_tis_per_dag=1`` on this task; or a pool
    of one slot for all DAGs that share it).

    The XCom result is the job's metrics: ``windows``, ``rows_in``, ``rows_written``, ``duplicates``, ``quarantined``,
    ``outside_interval``, ``tables``, ``decoders`` and ``seconds``; ``None`` where the worker cannot read the metrics
    file at ``{output_url}/_sfstream/metrics/``.

    Where the Spark connection does not exist, the job runs on this worker with master ``local[*]``, and a warning.

    :param windows: what to process: the XCom result of a drain, a manifest URL, or a list of these. Windows without
        events are left out; with none left, the task is skipped. The result of an interval bounds the job by
        itself; several results must be of one interval. (templated)
    :param output_url: folder of the tables, as a URL that Spark can write to. (templated)
    :param job: ``"event_log"``.
    :param output_conn_id: Airflow connection with which the worker reads the metrics file, where it needs one. The
        job itself uses Spark's credentials. (templated)
    :param event_time_from: only process events at or after this time (ISO 8601, with time zone). Not needed, and not
        to be contradicted, with the result of an interval. (templated)
    :param event_time_to: only process events before this time. (templated)
    :param decoder: ``"auto"`` or ``"fastavro"``.
    :param writer: who writes the tables' files: ``"auto"``, ``"spark"``, or ``"arrow"`` for executors that share a file
        system (see docs/event-log.md).
    :param conn_id: Airflow connection that names the Spark master.
    :param durable: ``False`` here: with ``True``, Airflow remembers a finished driver, and a cleared or backfilled
        task returns without submitting anything.
    """

    py_files: str | None
    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        "windows",
        "output_url",
        "output_conn_id",
        "event_time_from",
        "event_time_to",
    )

    def __init__(
        self,
        *,
        windows: Any,
        output_url: str,
        job: str = "event_log",
        output_conn_id: str | None = None,
        event_time_from: str | None = None,
        event_time_to: str | None = None,
        decoder: str = "auto",
        writer: str = "auto",
        conn_id: str = "spark_default",
        name: str | None = None,
        durable: bool = False,
        **kwargs: Any,
    ) -> None:
        if job not in JOBS:
            raise ConfigurationError(f"job={job!r} is not a job of this package. Use one of: {', '.join(JOBS)}.")
        if {"application", "application_args"} & kwargs.keys():
            raise ConfigurationError("application and application_args are set by this operator; leave them out.")
        super().__init__(
            application=str(_SPARK / JOBS[job]),
            conn_id=conn_id,
            name=name or f"sfstream-{job}",
            durable=durable,
            **kwargs,
        )
        self.windows = windows
        self.output_url = output_url
        self.job = job
        self.output_conn_id = output_conn_id
        self.event_time_from = event_time_from
        self.event_time_to = event_time_to
        self.decoder = decoder
        self.writer = writer

    def execute(self, context: Context) -> dict[str, Any] | None:
        """Submit the job and wait for it; return its metrics."""
        from airflow_provider_sfstream.spark.executor_package import write_executor_package

        with airflow_errors():
            landed = Landed.of(self.windows, self.event_time_from, self.event_time_to)
            self._check_output()
            metrics_url = f"{self.output_url.rstrip('/')}/_sfstream/metrics/{_file_name(context)}.json"
            self.application_args = self._arguments(landed, metrics_url)
        if not landed.manifests:
            raise AirflowSkipException("There are no windows with events to process.")
        own_py_files = self.py_files
        with tempfile.TemporaryDirectory() as folder:
            # A driver elsewhere gets the application's one file only, and this.
            self.py_files = ",".join(filter(None, (str(write_executor_package(folder)), own_py_files)))
            super().execute(context)
        return self._read_metrics(metrics_url)

    def _check_output(self) -> None:
        if not isinstance(self.output_url, str) or not self.output_url.strip():
            raise ConfigurationError("output_url is empty. Give the URL of the folder that tables are written to.")
        if urlsplit(self.output_url).password is not None:
            raise ConfigurationError(
                "output_url carries a password. Leave it out and give the credentials to Spark; nothing was written."
            )

    def _arguments(self, landed: Landed, metrics_url: str) -> list[str]:
        arguments = [part for url in landed.manifests for part in ("--manifest", url)]
        arguments += ["--output", self.output_url, "--metrics-file", metrics_url]
        arguments += ["--decoder", self.decoder, "--writer", self.writer]
        if landed.event_time_from and landed.event_time_to:
            arguments += ["--event-time-from", landed.event_time_from, "--event-time-to", landed.event_time_to]
        return arguments

    def _read_metrics(self, url: str) -> dict[str, Any] | None:
        import json

        from airflow.sdk import ObjectStoragePath

        try:
            metrics: dict[str, Any] = json.loads(ObjectStoragePath(url, conn_id=self.output_conn_id).read_text())
        except (
            Exception
        ) as error:  # the job is done; whatever keeps the worker from reading a report must not undo that
            self.log.warning("The job succeeded, but its metrics at %s cannot be read here: %s", url, error)
            return None
        self.log.info("event_log metrics: %s", metrics)
        return metrics

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        if not self._has_connection():
            # The hook itself would fall back to YARN, which nobody asked for.
            self.log.warning("There is no connection %r; running Spark here, with master local[*].", self._conn_id)
            hook._connection["master"] = "local[*]"
            hook._is_yarn = hook._is_yarn_cluster_mode = False
        if hook._connection["master"].startswith("local"):
            hook._env_vars = {**_local_environment(hook), **(self.env_vars or {})}
            # The driver's log is the task's log here: without Spark's hundreds of lines, the job's own can be found.
            hook._conf = {"spark.log.level": "WARN", **hook._conf}
        return hook

    def _has_connection(self) -> bool:
        from airflow.sdk import Connection
        from airflow.sdk.exceptions import AirflowNotFoundException

        try:
            Connection.get(self._conn_id)
        except AirflowNotFoundException:
            return False
        return True


def _local_environment(hook: SparkSubmitHook) -> dict[str, str]:
    """Return what lets a local ``spark-submit`` use this very Python environment, unless it is told otherwise."""
    environment = {}
    if "PYSPARK_PYTHON" not in os.environ and "spark.pyspark.python" not in hook._conf:
        environment["PYSPARK_PYTHON"] = sys.executable
    beside_python = str(Path(sys.executable).parent)
    if not shutil.which(hook._connection["spark_binary"]):
        environment["PATH"] = os.pathsep.join(filter(None, (os.environ.get("PATH"), beside_python)))
    return environment


def _file_name(context: Context) -> str:
    task_instance: Any = context["ti"]
    mapped = "" if task_instance.map_index in (None, -1) else f".{task_instance.map_index}"
    return re.sub(r"[^A-Za-z0-9_.-]", "-", f"{task_instance.dag_id}.{task_instance.task_id}{mapped}")
