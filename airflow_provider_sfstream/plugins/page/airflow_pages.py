"""Where Airflow's UI shows a task, a run or a DAG: paths below its root, without a slash at the beginning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote


def task_page(task: Mapping[str, Any] | None) -> str | None:
    """Return the page of a task run, which opens with its log; ``None`` for a task that is not told."""
    if task is None:
        return None
    mapped = f"/mapped/{task['map_index']}" if task["map_index"] >= 0 else ""
    page = f"{run_page(task)}/tasks/{_segment(task['task_id'])}{mapped}"
    return f"{page}?try_number={task['try_number']}"


def run_page(task: Mapping[str, Any]) -> str:
    """Return the page of a run: its menu *Trigger* fills in the form with what this run was given."""
    return f"{dag_page(task['dag_id'])}/runs/{_segment(task['run_id'])}"


def dag_page(dag_id: str) -> str:
    """Return the page of a DAG. Its button *Trigger* opens the form of a run, and that of a backfill."""
    return f"dags/{_segment(dag_id)}"


def backfills_page(dag_id: str) -> str:
    """Return the page of a DAG's backfills."""
    return f"{dag_page(dag_id)}/backfills"


def _segment(name: str) -> str:
    return quote(str(name), safe="")
