"""Table maintenance between and during jobs that write the same tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake.table import TableOptimizer

from airflow_provider_sfstream.exceptions import PositionConflictError
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog
from airflow_provider_sfstream.tables.maintenance.config import MaintenanceConfig, MaintenanceMetrics
from airflow_provider_sfstream.tables.maintenance.job import run
from airflow_provider_sfstream.tables.replica.reader import read_history
from airflow_provider_sfstream.tables.runner.on_spark import SparkEngine
from tests.integration.tables.test_event_log import ORDER, order
from tests.support.change_lake import ChangeLake, change
from tests.support.event_log import Lake
from tests.support.landing_files import LandedEvent
from tests.support.old_files import make_older

ONE, TWO = "a0W000000000001AAA", "a0W000000000002AAA"
TABLES = ("Order__e", "_quarantine")


@pytest.fixture
def maintain(spark: Any) -> Callable[..., MaintenanceMetrics]:
    return lambda output, **options: run(SparkEngine(spark), MaintenanceConfig(output_url=str(output), **options))


def test_repeated_windows_change_nothing_after_a_compaction(
    spark: Any, tmp_path: Path, maintain: Callable[..., MaintenanceMetrics]
) -> None:
    lake = Lake(spark, tmp_path)
    manifests = []
    for number in range(2):
        events = [*(order(n) for n in range(number * 5, number * 5 + 7)), LandedEvent(90 + number, "one", b"\xff")]
        manifests.append(lake.land(f"w{number}", events, {"one": ORDER}))
        lake.run(manifests[-1])

    def rows_without_reasons() -> list[list[Any]]:
        """Return all rows without the quarantine reasons, since the decoder's text for truncated bytes varies."""
        rows = ([{**row, "reason": None} for row in lake.rows(table)] for table in TABLES)
        return [sorted(each, key=repr) for each in rows]

    rows = rows_without_reasons()
    file = str(tmp_path / "metrics.json")
    metrics = maintain(lake.output, metrics_url=file, job="the upkeep")
    assert json.loads(Path(file).read_text())["tables"]["Order__e"] == vars(metrics.tables["Order__e"])
    for table in TABLES:
        assert metrics.tables[table].files < metrics.tables[table].files_before, table
    assert rows_without_reasons() == rows
    again = lake.run(*manifests)
    assert again.rows_written + again.duplicates + again.quarantined == again.rows_in
    assert again.duplicates > 0, "rows in compacted files are not written again"
    assert rows_without_reasons() == rows
    assert lake.run(lake.land("w9", [order(n) for n in range(10, 15)], {"one": ORDER})).rows_written == 3
    maintain(lake.output)
    assert [row["_replay_id"] for row in lake.rows()] == sorted({row["_replay_id"] for row in lake.rows()})
    assert len(lake.rows()) == 15


def test_a_job_that_conflicts_with_maintenance_names_the_maintenance_job(
    spark: Any, tmp_path: Path, maintain: Callable[..., MaintenanceMetrics], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(spark, tmp_path)
    one, two = (lake.land(f"w{n}", [order(n), order(n + 3)], {"one": ORDER}) for n in (0, 1))
    lake.run(one)
    lake.run(two)
    rows, commit = lake.rows(), DeltaTableLog.commit

    def commit_after_maintenance(self: DeltaTableLog, *arguments: Any) -> int:
        monkeypatch.setattr(DeltaTableLog, "commit", commit)
        maintain(lake.output, job="the upkeep")
        return commit(self, *arguments)

    monkeypatch.setattr(DeltaTableLog, "commit", commit_after_maintenance)
    with pytest.raises(PositionConflictError, match="the upkeep"):
        lake.run(two)
    assert lake.rows() == rows
    lake.run(two)
    assert lake.rows() == rows


def test_a_compaction_during_a_job_that_replaces_a_window_changes_no_row(
    spark: Any, tmp_path: Path, maintain: Callable[..., MaintenanceMetrics], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(spark, tmp_path)
    one, two = (lake.land(f"w{n}", [order(n), order(n + 3)], {"one": ORDER}) for n in (0, 1))
    lake.run(one)
    lake.run(two)
    rows, compact = lake.rows(), TableOptimizer.compact

    def compact_after_a_job(optimizer: TableOptimizer, **arguments: Any) -> Any:
        monkeypatch.setattr(TableOptimizer, "compact", compact)
        lake.run(two)  # the optimizer has opened the table before this run
        return compact(optimizer, **arguments)

    monkeypatch.setattr(TableOptimizer, "compact", compact_after_a_job)
    assert maintain(lake.output).tables["Order__e"].left is None
    assert lake.rows() == rows
    lake.run(one, two)
    assert lake.rows() == rows


def test_a_replica_applies_new_windows_after_maintenance(
    spark: Any, tmp_path: Path, maintain: Callable[..., MaintenanceMetrics]
) -> None:
    lake = ChangeLake(spark, tmp_path)
    lake.run(lake.land(change(1, "CREATE", [ONE, TWO], "t1", Name="1")), history=True)
    for number in (2, 3):
        lake.run(lake.land(change(number, "UPDATE", [ONE], f"t{number}", Name=str(number))))

    def versions(snapshot: int | None = None) -> list[tuple[Any, ...]]:
        found = read_history(spark, lake.output, "Widget__c", snapshot=snapshot).collect()
        return sorted((row["Id"], row["_sequence"], row["Name"], row["_is_current"]) for row in found)

    before, rows = [versions(number) for number in (1, 2, 3)], lake.rows()
    (tmp_path / "replica/Widget__c/left-by-a-kill.parquet").write_bytes(b"x" * 1000)
    make_older(tmp_path / "replica", 30)
    metrics = maintain(lake.output)
    assert (metrics.snapshot, lake.snapshot().number) == (4, 4)
    assert metrics.tables["Widget__c"].removed_bytes >= 1000
    assert (metrics.tables["Widget__c__history"].files_before, metrics.tables["Widget__c__history"].files) == (2, 1)
    assert [versions(number) for number in (1, 2, 3)] == before
    assert (versions(), lake.rows()) == (before[-1], rows)
    lake.run(lake.land(change(4, "UPDATE", [ONE, TWO], "t4", Name="4")))
    assert lake.values("Name") == {ONE: "4", TWO: "4"}
    assert len(versions()) == len(before[-1]) + 2
    assert maintain(lake.output).snapshot == 6
    lake.run(lake.land(change(5, "DELETE", [TWO], "t5")), keep_snapshots=1)
    assert lake.values("_deleted") == {ONE: False, TWO: True}
    assert len(versions()) == len(before[-1]) + 3
