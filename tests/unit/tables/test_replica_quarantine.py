from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from airflow_provider_sfstream.tables.delta.partition_files import write_files
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.replica import quarantine
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows
from tests.support.change_lake import ChangeLake, change
from tests.support.engines import embedded
from tests.support.landing_files import LandedEvent

RECORD = "a0W000000000001AAA"


def written_twice(rows: Rows, location: TableLocation, partition_by: Sequence[str]) -> Rows:
    """Write all files once more, as a task does that runs again because its executor was lost."""

    def write(batches: Batches) -> Batches:
        given = list(batches)
        list(write_files(rows, location, partition_by)(iter(given)))
        yield from write_files(rows, location, partition_by)(iter(given))

    return write


def test_files_of_a_task_that_was_lost_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = ChangeLake(None, tmp_path, lambda: embedded(tmp_path / "engines"))
    monkeypatch.setattr(quarantine, "write_files", written_twice)
    created = change(1, "CREATE", [RECORD], "t1", Name="one")
    manifest = lake.land(created, LandedEvent(2, created.schema_id, b"\xff"), LandedEvent(3, "none", b""))
    assert lake.run(manifest).quarantined == 2
    (file,) = (tmp_path / "replica" / quarantine.REPLICA_QUARANTINE).rglob("*.parquet")
    assert file.relative_to(tmp_path / "replica").parts[1:-1] == (
        "window_id=20260110T000000Z-window0",
        "from_ordinal=0",
    )
    assert pq.ParquetFile(file).read(columns=["ordinal"])["ordinal"].to_pylist() == [1, 2]
