"""Helpers that run operators and triggers without Airflow components, with connections from the environment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from airflow.sdk.execution_time.context import OutletEventAccessors

from tests.support.airflow_names import TaskDeferred


def context_for(task_id: str, run_id: str = "run-1", try_number: int = 1, hour: int = 1, **dag_run: Any) -> Any:
    """Return the part of a task's context that operators use; ``dag_run`` contains further fields of the DAG run."""
    usual = {"run_id": run_id, "run_type": "scheduled", "run_after": datetime(2026, 11, 20, hour, tzinfo=UTC)}
    without = dict.fromkeys(("data_interval_start", "data_interval_end", "partition_date"))
    names = {"dag_id": "orders", "task_id": task_id, "run_id": run_id, "map_index": -1, "try_number": try_number}
    task_instance = SimpleNamespace(id=uuid4(), **names)
    return {
        "ti": task_instance,
        "task_instance": task_instance,
        "dag_run": SimpleNamespace(**{**usual, **without, **dag_run}),
        "outlet_events": OutletEventAccessors(),
    }


def set_connection(monkeypatch: pytest.MonkeyPatch, connection_id: str, **fields: Any) -> None:
    """Define an Airflow connection for this process."""
    monkeypatch.setenv(f"AIRFLOW_CONN_{connection_id.upper()}", json.dumps(fields))


def error_text(error: BaseException) -> str:
    """Return the text and the notes of an error and of its causes."""
    cause = "" if error.__cause__ is None else error_text(error.__cause__)
    return "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ()), cause])


def deferral_of(execute: Callable[[], Any]) -> TaskDeferred:
    """Run ``execute``, and return the deferral that it raises."""
    with pytest.raises(TaskDeferred) as caught:
        execute()
    return caught.value


def run_trigger(deferral: TaskDeferred) -> dict[str, Any]:
    """Run the trigger of a deferral, as the triggerer does, and return the payload of its event."""

    async def first() -> dict[str, Any]:
        async with asyncio.timeout(60):
            async for event in deferral.trigger.run():
                return dict(event.payload)
        raise AssertionError("the trigger ended without firing")

    return asyncio.run(first())
