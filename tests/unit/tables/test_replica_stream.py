"""Checks of a replica run before it reads an event."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.delta.landed_windows import LandedWindow
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig
from airflow_provider_sfstream.tables.replica.snapshots import Snapshot, TableState
from airflow_provider_sfstream.tables.replica.stream import StreamRun, _EventSchemas
from airflow_provider_sfstream.tables.replica.windows import LandedChanges, SeenSchema, UnappliedWindow


def test_table_of_another_org_is_refused() -> None:
    old = "00D000000000001EAA|pubsub|/data/AccountChangeEvent|airflow"
    window = LandedWindow(
        window_id="20260110T000000Z-1",
        org_id="00D000000000002EAA",
        topic="/data/AccountChangeEvent",
        files=(),
        schemas={},
        event_count=1,
        first_event_time=None,
        last_event_time=None,
    )
    nothing: Any = None
    snapshot = Snapshot(number=1, tables={"Account": TableState(old)})
    new = [UnappliedWindow(window)]
    run = StreamRun(nothing, nothing, snapshot, new, nothing, ReplicaConfig(output_url="file:///replica"))
    seen = {"s1": SeenSchema(1, 1, 1)}
    changes = LandedChanges(nothing, span=(0, 1), seen=seen, windows=(), first_sequences=(), refused={})
    with pytest.raises(ConfigurationError, match="set a separate output_url for each") as caught:
        run._tables_of(_EventSchemas({"Account": {"s1": "{}"}}, {}), changes)
    assert old in str(caught.value)
    assert "00D000000000002EAA" in str(caught.value)
