"""Bases of the operators that run a job in the worker's process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from importlib.abc import MetaPathFinder
from tempfile import TemporaryDirectory
from threading import get_ident
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.actions.tables.table_job import TableJobOperator, WindowsOperator
from airflow_provider_sfstream.arguments import check_positive
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.extras import require_extra

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_sfstream.tables.job_config import JobConfig
    from airflow_provider_sfstream.tables.runner.embedded import EmbeddedEngine

require_extra("tables")


class EmbeddedJobOperator(TableJobOperator):
    """Base of the operators that run a job in the worker's process.

    :param output_url: folder of the tables, as a URL of Airflow's object storage. (templated)
    :param output_conn_id: Airflow connection of its storage, if it needs one. Delta's log on S3, Azure and Google is
        written with the connection's credentials, elsewhere with those of the worker's environment. (templated)
    """

    landing_conn_id: str | None = None
    max_events: int | None = None
    spark_operator = ""
    """Name of the operator that accepts more events."""

    def run_on(self, engine: EmbeddedEngine, config: JobConfig) -> Any:
        """Run the function of the job, in its folder of ``tables``, and return its metrics, a dataclass."""
        return import_module(f"airflow_provider_sfstream.tables.{self.job}.job").run(engine, config)

    def run_on_engine(self, context: Context, config: JobConfig) -> dict[str, Any]:
        """Run the job here; return the metrics that Spark's job would have returned."""
        convert_without_pandas()
        with allocated_by_system(), TemporaryDirectory(prefix="sfstream-") as folder:
            metrics = self.run_on(self._engine(folder), self.config_of_run(config, context))
        self.metrics = asdict(metrics)
        self.log.info("Job metrics: %s", self.metrics)
        return self.metrics

    def _engine(self, folder: str) -> EmbeddedEngine:
        from airflow_provider_sfstream.tables.runner.embedded import EmbeddedEngine

        return EmbeddedEngine(
            ObjectStorageFiles(self.landing_conn_id),
            ObjectStorageFiles(self.output_conn_id),
            folder,
            max_events=self.max_events,
            elsewhere=self.spark_operator,
        )


class EmbeddedWindowsOperator(WindowsOperator, EmbeddedJobOperator):
    """Base of the operators that run a job on landed windows in the worker's process.

    :param hash_conn_id: Airflow connection whose password is the key of hashes. (templated)
    :param landing_conn_id: Airflow connection of the landing, as in the drain. (templated)
    """

    def __init__(
        self,
        *,
        hash_fields: Sequence[str] = (),
        hash_conn_id: str | None = None,
        landing_conn_id: str | None = None,
        max_events: int = 1_000_000,
        **kwargs: Any,
    ) -> None:
        check_positive(max_events=max_events)
        if hash_fields and not hash_conn_id:
            raise ConfigurationError(
                "hash_fields needs hash_conn_id, a connection whose password is the key of hashes."
            )
        super().__init__(hash_fields=hash_fields, hash_conn_id=hash_conn_id, **kwargs)
        self.landing_conn_id = landing_conn_id
        self.max_events = max_events

    def run_on_engine(self, context: Context, config: JobConfig) -> dict[str, Any]:
        """Run the job here; return its metrics, and keep its lineage."""
        metrics = super().run_on_engine(context, config)
        self.keep_lineage()
        return metrics


class _NoPandas(MetaPathFinder):
    """Finder of modules that refuses pandas to the thread that made it."""

    def __init__(self) -> None:
        self._thread = get_ident()

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas" and get_ident() == self._thread:
            raise ModuleNotFoundError("pandas is not needed here")


def convert_without_pandas() -> None:
    """Let pyarrow convert values without pandas, which its first conversion imports if it is installed.

    That import needs as much CPU time as the rest of a small job. If this process imports pandas later,
    ``pyarrow.array`` reads its objects as plain sequences until the first ``to_pandas`` or ``from_pandas``.
    """
    import pyarrow as pa

    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(finder)


@contextmanager
def allocated_by_system() -> Iterator[None]:
    """Let pyarrow allocate from the system's memory pool, unless the environment sets another one. Arrow's other pools
    retain freed memory: a job needs up to 100 MiB more with them."""
    import pyarrow as pa

    before = pa.default_memory_pool()
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)
