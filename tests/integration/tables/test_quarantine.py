"""The quarantine of a folder that has an event log and a replica: one table, in which each job replaces its rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_provider_sfstream.exceptions import PositionConflictError
from airflow_provider_sfstream.tables.delta.delta_table import TableFile
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.event_log.config import EventLogConfig
from airflow_provider_sfstream.tables.event_log.job import run as run_event_log
from airflow_provider_sfstream.tables.quarantine import QUARANTINE_TABLE, Quarantine
from airflow_provider_sfstream.tables.replica import rewriting
from airflow_provider_sfstream.tables.replica.delta_sink import PROGRESS
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from tests.support.change_lake import ChangeLake, change
from tests.support.engines import embedded
from tests.support.landing_files import LandedEvent

RECORD = "a0W000000000001AAA"
FIRST, SECOND = "20260110T000000Z-window0", "20260110T000100Z-window1"


@pytest.fixture
def lake(tmp_path: Path) -> ChangeLake:
    return ChangeLake(None, tmp_path, lambda: embedded(tmp_path / "engines"))


def write_event_log(lake: ChangeLake, *manifests: str) -> int:
    """Write the windows to an event log in the folder of the replica; return the number of quarantined events."""
    return run_event_log(lake.engine(), EventLogConfig(output_url=lake.output, manifests=manifests)).quarantined


def killed(lake: ChangeLake, monkeypatch: pytest.MonkeyPatch, manifest: str) -> None:
    """Run the replica job up to its snapshot, which is not published."""
    with monkeypatch.context() as patch:
        patch.setattr(SnapshotStore, "publish", mock.Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            lake.run(manifest)


def quarantined(lake: ChangeLake) -> list[tuple[str, int]]:
    return [(row["window_id"], row["ordinal"]) for row in lake.quarantine()]


def test_both_jobs_replace_only_their_own_rows_in_one_table(lake: ChangeLake) -> None:
    created = change(1, "CREATE", [RECORD], "t1", Name="one")
    first = lake.land(created, LandedEvent(2, created.schema_id, b"\xff"))
    assert (write_event_log(lake, first), lake.run(first).quarantined) == (1, 1)
    assert quarantined(lake) == [(FIRST, 1), (f"{FIRST}.replica-0", 1)]
    of_event_log, of_replica = ({**row, "window_id": ""} for row in lake.quarantine())
    assert of_event_log == of_replica

    second = lake.land(LandedEvent(3, "lost", b""))
    assert lake.run(second).quarantined == 1
    DeltaTable(f"{lake.output}/{QUARANTINE_TABLE}").optimize.compact()
    lake.schemas.clear()
    assert write_event_log(lake, first, second) == 2
    assert quarantined(lake) == [
        (FIRST, 1),
        (f"{FIRST}.replica-0", 1),
        (SECOND, 0),
        (f"{SECOND}.replica-0", 0),
    ]


def test_a_repeated_run_replaces_the_rows_of_the_killed_one(lake: ChangeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    created = change(1, "CREATE", [RECORD], "t1", Name="one")
    manifest = lake.land(created, LandedEvent(2, created.schema_id, b"\xff"))
    for is_compacted in (False, True):
        killed(lake, monkeypatch, manifest)
        if is_compacted:
            write_event_log(lake, manifest)
            DeltaTable(f"{lake.output}/{QUARANTINE_TABLE}").optimize.compact()
    assert lake.run(manifest).quarantined == 1
    assert quarantined(lake) == [(FIRST, 1), (f"{FIRST}.replica-0", 1)]


def test_an_outdated_job_does_not_replace_the_rows_of_a_newer_one(lake: ChangeLake) -> None:
    outdated = Quarantine(lake.engine(), lake.output, "outdated", [PROGRESS])
    assert lake.run(lake.land(LandedEvent(1, "lost", b""))).quarantined == 1
    with pytest.raises(PositionConflictError):
        outdated.replace({f"{FIRST}.replica-0"}, [TableFile(f"{FIRST}.replica-0/part.parquet", 1, 1)])
    assert quarantined(lake) == [(FIRST + ".replica-0", 0)]


def test_files_of_a_task_that_was_lost_are_not_committed(lake: ChangeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    write = rewriting.write_rows

    def written_twice(location: TableLocation, batches: Iterable[pa.RecordBatch]) -> list[TableFile]:
        """Write all files twice, as a task that is retried after the loss of its executor."""
        events = list(batches)
        write(location, events)
        return write(location, events)

    monkeypatch.setattr(rewriting, "write_rows", written_twice)
    created = change(1, "CREATE", [RECORD], "t1", Name="one")
    manifest = lake.land(created, LandedEvent(2, created.schema_id, b"\xff"), LandedEvent(3, "none", b""))
    assert lake.run(manifest).quarantined == 2
    assert len(list((Path(lake.output) / QUARANTINE_TABLE).rglob("*.parquet"))) == 2
    assert quarantined(lake) == [(f"{FIRST}.replica-0", 1), (f"{FIRST}.replica-0", 2)]
