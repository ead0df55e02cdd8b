"""Base of the operators whose jobs write tables, on Spark or in the worker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_sfstream.actions.task_runs import run_identity
from airflow_provider_sfstream.actions.windows_argument import all_manifests, flat_windows
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.monitoring.lineage import LineageMixin
from airflow_provider_sfstream.privacy.field_rules import HASH_KEY_VARIABLE
from airflow_provider_sfstream.redaction import has_credentials
from airflow_provider_sfstream.tables.job_config import METRICS, JobConfig, check_characters

if TYPE_CHECKING:
    from airflow.sdk import Context

Config = TypeVar("Config", bound=JobConfig)


class WindowsOperator(LineageMixin):
    """Base of the operators whose jobs read landed windows: the links of a task show the stream and the manifest."""

    def __init__(self, *, windows: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.windows = windows

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


def config_of_run(config: Config, output_url: str, context: Context) -> Config:
    """Return the config with the values of the run: the tables' folder, the job's name, the metrics URL."""
    job = str(run_identity(context))
    return replace(config, output_url=output_url, metrics_url=metrics_url(output_url, context), job=job)


def check_output(output_url: Any) -> None:
    """Check where tables are to be.

    :raises ConfigurationError: if it is empty, carries a password, or has a character that no table's folder may have.
    """
    if not isinstance(output_url, str) or not output_url.strip():
        raise ConfigurationError("output_url is empty. Set the URL of the folder for the tables.")
    if has_credentials(output_url):
        raise ConfigurationError(
            "output_url contains a password or a signature. Remove it, and set the credentials in Spark's settings or "
            "in the connection of the storage. Nothing was written."
        )
    check_characters(output_url)


def metrics_url(output_url: str, context: Context) -> str:
    """Return where the metrics of a task's last job are."""
    task_instance: Any = context["ti"]
    mapped = "" if task_instance.map_index in (None, -1) else f".{task_instance.map_index}"
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", f"{task_instance.dag_id}.{task_instance.task_id}{mapped}")
    return f"{output_url.rstrip('/')}/{METRICS}/{name}.json"


def hash_key(hash_conn_id: str | None) -> str | None:
    """Return the password of an Airflow connection, ``None`` where none is named, or it has none.

    :raises ConfigurationError: if the connection does not exist.
    """
    if not hash_conn_id:
        return None
    from airflow.sdk import Connection

    from airflow_provider_sfstream._airflow import AirflowNotFoundException

    try:
        connection: Any = Connection.get(hash_conn_id)
    except AirflowNotFoundException:
        raise ConfigurationError(
            f"The Airflow connection hash_conn_id={hash_conn_id!r} does not exist. Create it, with the key of hashes "
            "as its password. Nothing was written."
        ) from None
    password: str | None = connection.password
    return password


@contextmanager
def key_in_environment(key: str | None) -> Iterator[None]:
    """Give the key to the processes that are started meanwhile. An argument would show it to ``ps``."""
    import os

    if not key:
        yield
        return
    os.environ[HASH_KEY_VARIABLE] = key
    try:
        yield
    finally:
        del os.environ[HASH_KEY_VARIABLE]
