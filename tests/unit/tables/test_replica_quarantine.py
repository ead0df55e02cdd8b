from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_sfstream.tables.replica import rewriting
from airflow_provider_sfstream.tables.replica.quarantine import REPLICA_QUARANTINE, QuarantinePlan, write_quarantine
from tests.support.change_lake import ChangeLake, change
from tests.support.engines import embedded
from tests.support.landing_files import LandedEvent

RECORD = "a0W000000000001AAA"


def written_twice(plan: QuarantinePlan, blocks: Iterable[Any]) -> list[dict[str, Any]]:
    """Write all files twice, as a task that is retried after the loss of its executor."""
    changes = list(blocks)
    write_quarantine(plan, changes)
    return write_quarantine(plan, changes)


def test_files_of_a_task_that_was_lost_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = ChangeLake(None, tmp_path, lambda: embedded(tmp_path / "engines"))
    monkeypatch.setattr(rewriting, "write_quarantine", written_twice)
    created = change(1, "CREATE", [RECORD], "t1", Name="one")
    manifest = lake.land(created, LandedEvent(2, created.schema_id, b"\xff"), LandedEvent(3, "none", b""))
    assert lake.run(manifest).quarantined == 2
    (file,) = (tmp_path / "replica" / REPLICA_QUARANTINE).rglob("*.parquet")
    assert file.relative_to(tmp_path / "replica").parts[1:-1] == (
        "window_id=20260110T000000Z-window0",
        "from_ordinal=0",
    )
    assert pq.ParquetFile(file).read(columns=["ordinal"])["ordinal"].to_pylist() == [1, 2]
