"""Addresses of pages in Airflow's own UI."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow_provider_sfstream._airflow import conf

if TYPE_CHECKING:
    from airflow_provider_sfstream.protocol.streams import RunIdentity


def task_page(run: RunIdentity) -> str:
    """Return the address of a task run's page, whatever its try: as Airflow writes it in mails."""
    mapped = f"/mapped/{run.map_index}" if run.map_index >= 0 else ""
    return f"{_base()}/dags/{quote(run.dag_id)}/runs/{quote(run.run_id)}/tasks/{quote(run.task_id)}{mapped}"


def stream_page(stream_uri: str) -> str:
    """Return the address of the page that this package has of a stream.

    :param stream_uri: the URI of its asset.
    """
    return f"{_base()}/sfstream/?stream={quote(stream_uri, safe='')}"


def _base() -> str:
    return str(conf.get("api", "base_url", fallback="http://localhost:8080/")).rstrip("/")
