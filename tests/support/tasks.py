"""Run an operator as a task process would, with connections from the environment, without an Airflow beside it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.execution_time.context import OutletEventAccessors

from tests.support.airflow_names import TaskDeferred


def context_for(task_id: str, run_id: str = "run-1", try_number: int = 1, hour: int = 1, **dag_run: Any) -> Any:
    """Return the part of a task's context that the operators use, of a run with these fields beside the usual ones."""
    usual = {"run_id": run_id, "run_type": "scheduled", "run_after": datetime(2026, 11, 20, hour, tzinfo=UTC)}
    without = dict.fromkeys(("data_interval_start", "data_interval_end", "partition_date"))
    return {
        "ti": SimpleNamespace(dag_id="orders", task_id=task_id, run_id=run_id, map_index=-1, try_number=try_number),
        "dag_run": SimpleNamespace(**{**usual, **without, **dag_run}),
        "outlet_events": OutletEventAccessors(),
    }


def set_connection(monkeypatch: pytest.MonkeyPatch, connection_id: str, **fields: Any) -> None:
    """Define an Airflow connection for this process."""
    monkeypatch.setenv(f"AIRFLOW_CONN_{connection_id.upper()}", json.dumps(fields))


def told(error: BaseException) -> str:
    """Return all that an error of a task says: its text, its notes and the same of its cause."""
    cause = "" if error.__cause__ is None else told(error.__cause__)
    return "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ()), cause])


def deferred(execute: Callable[[], Any]) -> TaskDeferred:
    """Return the deferral that ``execute`` ends with."""
    with pytest.raises(TaskDeferred) as caught:
        execute()
    return caught.value


def fired(deferral: TaskDeferred) -> dict[str, Any]:
    """Run the trigger as the triggerer does, and return what it fires."""

    async def first() -> dict[str, Any]:
        async with asyncio.timeout(60):
            async for event in deferral.trigger.run():
                return dict(event.payload)
        raise AssertionError("the trigger ended without firing")

    return asyncio.run(first())
