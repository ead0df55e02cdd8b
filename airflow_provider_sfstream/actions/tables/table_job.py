"""Bases of the operators whose jobs write tables, on Spark or in the worker."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_sfstream.actions.arguments import find_connection
from airflow_provider_sfstream.actions.retries import RetriedOperator
from airflow_provider_sfstream.actions.status import report_catalog
from airflow_provider_sfstream.actions.tables.iceberg_catalog import NAMESPACE, check_catalog, mirror_tables
from airflow_provider_sfstream.actions.task_runs import run_identity
from airflow_provider_sfstream.actions.windows_argument import all_manifests, flat_windows
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.extras import require_extra
from airflow_provider_sfstream.monitoring.lineage import LineageMixin
from airflow_provider_sfstream.monitoring.links import ManifestLink, StreamLink
from airflow_provider_sfstream.redaction import has_credentials
from airflow_provider_sfstream.tables.job_config import (
    BATCH_BYTES,
    METRICS,
    JobConfig,
    WindowsJobConfig,
    check_characters,
)

if TYPE_CHECKING:
    from airflow.sdk import BaseOperatorLink, Context

Config = TypeVar("Config", bound=JobConfig)
WindowsConfig = TypeVar("WindowsConfig", bound=WindowsJobConfig)


class TableJobOperator(RetriedOperator):
    """Base of the operators whose jobs write tables. A base for each engine runs the job.

    :param catalog_conn_id: Airflow connection of an Iceberg catalog (extra ``iceberg``). After the job, the worker
        publishes all tables of the folder there, as Iceberg tables over the same files (docs/reference/catalogs.md).
        If that fails, it logs a warning, and the next run repairs it; until then
        :class:`~airflow_provider_sfstream.operators.check_streams.CheckSalesforceStreamsOperator` has a finding.
        ``None`` (default): no catalog. (templated)
    :param catalog_namespace: namespace of the tables in the catalog, with dots between its levels. (templated)
    """

    template_fields: Sequence[str] = ("output_url", "output_conn_id", "catalog_conn_id", "catalog_namespace")
    job = ""
    """Name of the job, and of its Spark application."""
    metrics: dict[str, Any] | None = None
    """Metrics of the job of this run, ``None`` before its end."""
    data_loss: str | None = None
    """Data loss in the failure report, ``None`` for that of the error."""

    def __init__(
        self,
        *,
        output_url: str,
        output_conn_id: str | None = None,
        catalog_conn_id: str | None = None,
        catalog_namespace: str = NAMESPACE,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if catalog_conn_id is not None:
            require_extra("iceberg")
        self.output_url = output_url
        self.output_conn_id = output_conn_id
        self.catalog_conn_id = catalog_conn_id
        self.catalog_namespace = catalog_namespace

    def run_job(self, context: Context, config: JobConfig) -> dict[str, Any] | None:
        """Run the job to its end, then mirror its tables; return its metrics, ``None`` where the worker cannot read
        them."""
        if self.catalog_conn_id:
            check_catalog(self.catalog_conn_id, self.catalog_namespace)
        metrics = self.run_on_engine(context, config)
        if self.catalog_conn_id:
            errors = mirror_tables(self.output_url, self.output_conn_id, self.catalog_conn_id, self.catalog_namespace)
            report_catalog(self.output_url, context, errors)
        return metrics

    @abstractmethod
    def run_on_engine(self, context: Context, config: JobConfig) -> dict[str, Any] | None:
        """Run the job to its end, and return its metrics, ``None`` where the worker cannot read them."""

    def config_of_run(self, config: Config, context: Context) -> Config:
        """Return the config with the values of the run: the tables' folder, the job's name, the metrics URL."""
        task: Any = context["ti"]
        mapped = "" if task.map_index in (None, -1) else f".{task.map_index}"
        # Not the ID of the task, which a drain's own jobs share.
        name = re.sub(r"[^A-Za-z0-9_.-]", "-", f"{task.dag_id}.{self.task_id}{mapped}")
        metrics_url = f"{self.output_url.rstrip('/')}/{METRICS}/{name}.json"
        return replace(config, output_url=self.output_url, metrics_url=metrics_url, job=str(run_identity(context)))


class WindowsOperator(LineageMixin, TableJobOperator):
    """Base of the operators whose jobs read landed windows.

    :param batch_bytes: most bytes of rows, with all their columns, that a task of the job decodes, sends or merges at a
        time (default 12 MiB, at most 1 GiB). A smaller value needs less memory and more time, and writes the same rows.
    :param verify_files: compare landed files with the SHA-256 of their manifest before anything is written.
    :param exclude_fields: fields that the tables must not have: ``"Phone"``, ``"Name.FirstName"``, or only for one
        table ``"Contact.Phone"`` (docs/reference/personal-data.md). Then required for each run.
    :param mask_fields: fields that are stored as ``***`` instead of a text, and as null instead of another value.
    :param hash_fields: fields that are stored as the HMAC-SHA-256 (hex) of a text, and as null instead of another
        value.
    """

    operator_extra_links: Sequence[BaseOperatorLink] = (StreamLink(), ManifestLink())

    def __init__(
        self,
        *,
        windows: Any,
        config: WindowsJobConfig,
        batch_bytes: int = BATCH_BYTES,
        verify_files: bool = True,
        exclude_fields: Sequence[str] = (),
        mask_fields: Sequence[str] = (),
        hash_fields: Sequence[str] = (),
        hash_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        self._config = replace(
            config,
            batch_bytes=batch_bytes,
            verify_files=verify_files,
            exclude_fields=exclude_fields,
            mask_fields=mask_fields,
            hash_fields=hash_fields,
        )
        super().__init__(**kwargs)
        self.windows = windows
        self.hash_conn_id = hash_conn_id

    @property
    def stream_uri(self) -> str | None:
        """The URI of the asset of the landed stream that the windows are of; ``None`` if they are of several, or the
        task received manifests, which do not name it."""
        uris = {each.get("asset_uri") if isinstance(each, dict) else None for each in flat_windows(self.windows)}
        return uris.pop() if len(uris) == 1 else None

    @property
    def window_manifests(self) -> list[str]:
        """The URLs of the windows' manifests."""
        return list(all_manifests(self.windows)[0])

    def with_hash_key(self, config: WindowsConfig) -> WindowsConfig:
        """Return the config with the key of its hashes. Without ``hash_conn_id`` the driver has it from elsewhere."""
        if not self.hash_conn_id or not config.hash_fields:
            return config
        config = replace(config, hash_key=hash_key(self.hash_conn_id))
        _ = config.rules
        return config


def check_output(output_url: Any) -> None:
    """Check that the folder of the tables is set, and has neither a password nor an unsafe character."""
    if not isinstance(output_url, str) or not output_url.strip():
        raise ConfigurationError("output_url is empty. Set the URL of the folder for the tables.")
    if has_credentials(output_url):
        raise ConfigurationError(
            "output_url contains a password or a signature. Remove it, and set the credentials in Spark's settings or "
            "in the connection of the storage. Nothing was written."
        )
    check_characters(output_url)


def hash_key(hash_conn_id: str | None) -> str | None:
    """Return the password of an Airflow connection, ``None`` where none is named, or it has none."""
    if not hash_conn_id:
        return None
    connection = find_connection(hash_conn_id)
    if connection is None:
        raise ConfigurationError(
            f"The Airflow connection hash_conn_id={hash_conn_id!r} does not exist. Create it, with the key of hashes "
            "as its password. Nothing was written."
        )
    password: str | None = connection.password
    return password
