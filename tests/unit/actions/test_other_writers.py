"""Warnings of a drain about a second writer of its position."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_sfstream.actions.task_runs import warn_of_other_writers
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.replay_stores.base import Position
from airflow_provider_sfstream.replay_windows.landed_stream import LandedStream
from airflow_provider_sfstream.salesforce.streams import RunIdentity, Stream

STREAM = Stream("00D000000000001EAA", "pubsub", "/event/Order__e")
NOW = datetime(2026, 11, 20, tzinfo=UTC)


def warned(
    caplog: pytest.LogCaptureFixture,
    *,
    position: Position | None = None,
    compares_and_sets: bool = False,
    active_runs: int = 1,
    map_index: int = -1,
    **arguments: Any,
) -> str:
    with DAG("orders", schedule=None, max_active_runs=active_runs):
        drain = DrainReplayWindowOperator(task_id="drain", topic=STREAM.topic, landing_url="/lake", **arguments)
    store: Any = SimpleNamespace(compares_and_sets=compares_and_sets, read=lambda stream: position or Position())
    landed = LandedStream(STREAM, SimpleNamespace(), store)  # type: ignore[arg-type]
    warn_of_other_writers(landed, drain, RunIdentity("orders", "drain", "run-2", NOW, map_index))
    return caplog.text


def moved_by(writer: str) -> Position:
    return Position(b"\1", 1, "20261120T000000Z-1", NOW, f"{writer} run run-1 try 1")


def test_one_active_run_causes_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert warned(caplog) == ""
    assert warned(caplog, position=moved_by("orders.drain")) == ""
    assert (
        warned(caplog, position=moved_by("orders.drain[3]"), map_index=3, active_runs=9, max_active_tis_per_dag=1) == ""
    )


def test_compare_and_set_store_causes_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert warned(caplog, position=moved_by("others.drain"), active_runs=9, compares_and_sets=True) == ""


def test_concurrent_runs_cause_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert "9 runs of orders may be active at a time. Run one" in warned(caplog, active_runs=9)


@pytest.mark.parametrize("writer", ["others.drain", "orders.drain[1]"])
def test_position_of_another_writer_causes_a_warning(caplog: pytest.LogCaptureFixture, writer: str) -> None:
    assert f"{writer} moved this one too, at 2026-11-20" in warned(caplog, position=moved_by(writer), map_index=0)


def test_position_reset_causes_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert warned(caplog, position=Position(b"\1", 2, None, NOW, "others.reset run manual try 1")) == ""
