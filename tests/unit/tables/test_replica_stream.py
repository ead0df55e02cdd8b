"""Checks of a replica run before it reads an event."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.tables.event_log.table_plans import Schemas
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig
from airflow_provider_sfstream.tables.replica.snapshots import Snapshot, TableState
from airflow_provider_sfstream.tables.replica.stream import StreamRun
from airflow_provider_sfstream.tables.replica.windows import LandedChanges, SeenSchema, UnappliedWindow
from tests.support.windows import manifest


def test_table_of_another_org_is_refused(tmp_path: Path) -> None:
    old = "00D000000000001EAA|pubsub|/data/AccountChangeEvent|airflow"
    plain = manifest(Landing.from_url(str(tmp_path)))
    newer = replace(plain, stream=Stream("00D000000000002EAA", "pubsub", "/data/AccountChangeEvent"))
    nothing: Any = None
    snapshot = Snapshot(number=1, tables={"Account": TableState(old)})
    new = [UnappliedWindow(newer)]
    run = StreamRun(nothing, nothing, snapshot, new, nothing, ReplicaConfig(output_url="file:///replica"))
    seen = {"s1": SeenSchema(1, 1, 1)}
    changes = LandedChanges(nothing, span=(0, 1), seen=seen, windows=(), first_sequences=(), refused={})
    with pytest.raises(ConfigurationError, match="set a separate output_url for each") as caught:
        run._tables_of(Schemas({"Account": {"s1": "{}"}}), changes)
    assert old in str(caught.value)
    assert "00D000000000002EAA" in str(caught.value)
