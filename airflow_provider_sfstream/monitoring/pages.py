"""Addresses of pages in Airflow's UI: paths below its root, without a slash at the beginning, and whole URLs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_provider_sfstream._airflow import conf
from airflow_provider_sfstream.monitoring.status import task_document

if TYPE_CHECKING:
    from airflow_provider_sfstream.salesforce.streams import RunIdentity


def task_url(run: RunIdentity) -> str:
    """Return the URL of the page of a task run with all its tries, as in Airflow's mails."""
    return f"{_base()}/{_task_page(task_document(run))}"


def stream_url(stream_uri: str) -> str:
    """Return the URL of a stream in the streams page, within Airflow's UI, by the URI of its asset."""
    return f"{_base()}/plugin/salesforce-streams?stream={_segment(stream_uri)}"


def task_page(task: Mapping[str, Any] | None) -> str | None:
    """Return the page of the try in a status document, which shows its log; ``None`` without a task."""
    return None if task is None else f"{_task_page(task)}?try_number={task['try_number']}"


def run_page(task: Mapping[str, Any]) -> str:
    """Return the page of a run, whose menu *Trigger* fills in the form with the params of this run."""
    return f"{dag_page(task['dag_id'])}/runs/{_segment(task['run_id'])}"


def dag_page(dag_id: str) -> str:
    """Return the page of a DAG. Its button *Trigger* opens the form of a run, and that of a backfill."""
    return f"dags/{_segment(dag_id)}"


def backfills_page(dag_id: str) -> str:
    """Return the page of a DAG's backfills."""
    return f"{dag_page(dag_id)}/backfills"


def _task_page(task: Mapping[str, Any]) -> str:
    mapped = f"/mapped/{task['map_index']}" if task["map_index"] >= 0 else ""
    return f"{run_page(task)}/tasks/{_segment(task['task_id'])}{mapped}"


def _base() -> str:
    return str(conf.get("api", "base_url", fallback="http://localhost:8080/")).rstrip("/")


def _segment(name: str) -> str:
    return quote(str(name), safe="")
