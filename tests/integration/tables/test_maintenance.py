"""Maintenance of local tables without Spark: merged files, deleted files, snapshot versions and skipped tables."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.table import TableFeatures, TableOptimizer

from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.delta.delta_table import TableFile
from airflow_provider_sfstream.tables.delta.table_files import TableFileWriter
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.delta.table_versions import TableVersions
from airflow_provider_sfstream.tables.maintenance import job
from airflow_provider_sfstream.tables.maintenance.config import MaintenanceConfig, MaintenanceMetrics
from airflow_provider_sfstream.tables.maintenance.job import run
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from airflow_provider_sfstream.tables.replica.snapshots import TableState
from airflow_provider_sfstream.tables.runner.embedded import EmbeddedEngine
from tests.support.killed import Killed, killed_at
from tests.support.old_files import make_older

FILES = ObjectStorageFiles(None)
NOW = datetime(2026, 1, 10, tzinfo=UTC)
EVENTS = pa.schema([("_replay_id", pa.binary()), ("_topic", pa.string()), ("window_id", pa.string())])
QUARANTINE = pa.schema([("window_id", pa.string()), ("payload", pa.binary()), ("reason", pa.string())])
ROWS = pa.schema([("Id", pa.string()), ("Name", pa.string())])
SAFE = [(SnapshotStore, "publish"), (TableOptimizer, "compact"), (DeltaTable, "vacuum")]
STEPS = [*SAFE, (DeltaTable, "create_checkpoint"), (DeltaTable, "cleanup_metadata")]


class Tables:
    """Tables below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.base = folder, str(folder)
        self.store = SnapshotStore(FILES, self.base)

    def log(self, name: str, job: str = "a job") -> TableVersions:
        return TableVersions(TableLocation(f"{self.base}/{name}"), job, cuts_log=name.endswith("__e"))

    def write(self, name: str, path: str, schema: pa.Schema, rows: Sequence[dict[str, Any]]) -> TableFile:
        filesystem = self.log(name).location
        Path(filesystem.uri).mkdir(parents=True, exist_ok=True)
        writer = TableFileWriter(filesystem.filesystem(), path, schema)
        writer.append(pa.RecordBatch.from_pylist(list(rows), schema=schema))
        return writer.close({"event_date": "2026-01-10"} if "event_date" in path else None)

    def add(self, name: str, schema: pa.Schema, rows: Sequence[dict[str, Any]], *removed: str) -> int:
        """Commit a file of these rows; return the version."""
        file = self.write(name, f"{uuid.uuid4().hex}.parquet", schema, rows)
        log = self.log(name)
        return log.commit(log.version(), schema, [file], removed)

    def add_events(self, window: str, *numbers: int, table: str = "Order__e") -> str:
        """Commit events of a window; return the path of their file."""
        rows = [{"_replay_id": bytes([n]), "_topic": "/event/Order__e", "window_id": window} for n in numbers]
        path = f"event_date=2026-01-10/{window}/part-{uuid.uuid4().hex}.parquet"
        file, log = self.write(table, path, EVENTS, rows), self.log(table)
        log.commit(log.version(), EVENTS.append(pa.field("event_date", pa.date32())), [file], [], ["event_date"])
        return path

    def replica(self, version: int, history: int | None = None, **tables: TableState) -> None:
        """Publish the next snapshot of a replica of Account."""
        account = TableState("s", version=version, history=history)
        self.store.publish(self.store.current().next({}, {"Account": account, **tables}, NOW))

    def maintain(self, **options: Any) -> MaintenanceMetrics:
        given = MaintenanceConfig(output_url=self.base, **{"job": "the upkeep", **options})
        return run(EmbeddedEngine(FILES, FILES, self.folder), given)

    def rows(self, name: str, version: int | None = None) -> list[dict[str, Any]]:
        rows = DeltaTable(f"{self.base}/{name}", version).to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda row: json.dumps(row, default=str))

    def state(self) -> dict[str, Any]:
        """Return the size of each file by path; for JSON files of the log, the content."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes() if path.suffix == ".json" else path.stat().st_size
            for path in self.folder.rglob("*")
            if path.is_file()
        }


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path / "lake")


def account(*numbers: int) -> list[dict[str, Any]]:
    return [{"Id": str(number), "Name": f"n{number}"} for number in numbers]


def test_files_of_an_event_log_are_merged_and_its_rows_are_unchanged(tables: Tables) -> None:
    for number in range(5):
        tables.add_events(f"w{number}", number, number + 10)
    for number in range(3):
        tables.add("_quarantine", QUARANTINE, [{"window_id": f"w{number}", "payload": b"x", "reason": "none"}])
    rows, failed_rows = tables.rows("Order__e"), tables.rows("_quarantine")
    metrics = tables.maintain()
    result = metrics.tables["Order__e"]
    assert (result.files_before, result.files, result.version_before, result.version, result.left) == (5, 1, 4, 5, None)
    assert (result.removed_files, result.removed_bytes) == (0, 0), "the files are younger than the retention"
    assert metrics.tables["_quarantine"].files == 1
    assert metrics.snapshot == 0
    assert (tables.rows("Order__e"), tables.rows("_quarantine")) == (rows, failed_rows)
    assert rows[0]["event_date"] == date(2026, 1, 10)
    entry = DeltaTable(f"{tables.base}/Order__e").history(1)[0]
    assert (entry["operation"], entry["sfstream"]["job"]) == ("OPTIMIZE", "the upkeep")
    before = tables.state()
    assert tables.maintain().tables["Order__e"] == replace(result, files_before=1, version_before=5)
    assert tables.state() == before, "a second run changes nothing"


def test_only_small_files_are_merged(tables: Tables) -> None:
    for number in range(4):
        tables.add_events(f"w{number}", *range(number * 50, number * 50 + 50))
    assert tables.maintain(target_file_bytes=500).tables["Order__e"].files == 4


def test_only_old_unreferenced_files_are_deleted(tables: Tables) -> None:
    merged = [tables.add_events(f"w{number}", number) for number in range(3)]
    rows = [{"_replay_id": b"9", "_topic": "/event/Order__e", "window_id": "w9"}]
    paths = [f"event_date=2026-01-10/w9/{name}.parquet" for name in ("old", "new")]
    unreferenced = [tables.write("Order__e", path, EVENTS, rows) for path in paths]
    make_older(tables.folder, 8)
    young = tables.folder / "Order__e" / unreferenced[1].path
    young.touch()
    result = tables.maintain().tables["Order__e"]
    assert (result.removed_files, result.removed_bytes) == (1, unreferenced[0].size)
    assert not (tables.folder / "Order__e" / unreferenced[0].path).exists()
    assert young.exists(), "the file may belong to a running job"
    assert all((tables.folder / "Order__e" / path).exists() for path in merged), (
        "the files were removed from the table within the retention"
    )
    assert len(tables.rows("Order__e", 2)) == 3
    operations = [
        (entry["operation"], entry["sfstream"]["job"]) for entry in DeltaTable(f"{tables.base}/Order__e").history(3)
    ]
    assert operations == [(name, "the upkeep") for name in ("VACUUM END", "VACUUM START", "OPTIMIZE")]


def move_log_back(table: Path, days: float) -> None:
    """Move all times in a table's log ``days`` days into the past."""
    for path in (table / "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            for action in line.values():
                for key in ("timestamp", "deletionTimestamp", "modificationTime"):
                    if isinstance(action, dict) and key in action:
                        action[key] -= int(days * 86_400_000)
        path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    make_older(table / "_delta_log", days, "*")


def test_merged_files_older_than_the_retention_are_deleted(tables: Tables) -> None:
    paths = [tables.add_events(f"w{number}", number) for number in range(3)]
    DeltaTable(f"{tables.base}/Order__e").optimize.compact()
    make_older(tables.folder, 20)
    move_log_back(tables.folder / "Order__e", 9)
    rows = tables.rows("Order__e")
    assert tables.maintain(retention_hours=10 * 24).tables["Order__e"].removed_files == 0
    assert len(tables.rows("Order__e", 2)) == 3
    assert tables.maintain(retention_hours=8 * 24).tables["Order__e"].removed_files == 3
    assert not any((tables.folder / "Order__e" / path).exists() for path in paths)
    assert tables.rows("Order__e") == rows


def test_a_retention_longer_than_the_log_deletes_nothing(tables: Tables) -> None:
    path = tables.add_events("w0", 0)
    tables.add_events("w1", 1)
    DeltaTable(f"{tables.base}/Order__e").optimize.compact()
    make_older(tables.folder, 60)
    move_log_back(tables.folder / "Order__e", 9)
    # The checkpoint omits files that were removed nine days ago.
    DeltaTable(f"{tables.base}/Order__e").create_checkpoint()
    assert tables.maintain(retention_hours=30 * 24).tables["Order__e"].removed_files == 0
    assert (tables.folder / "Order__e" / path).exists()


def test_a_new_snapshot_names_the_compacted_versions_of_a_replica(tables: Tables) -> None:
    first = tables.add("Account", ROWS, account(1))
    old = next(iter(tables.log("Account").version().files))
    for number in range(3):
        tables.add("Account__history", ROWS, account(number))
    tables.replica(first, 2)
    second = tables.add("Account", ROWS, account(1, 2), old)
    tables.replica(second, 2)
    tables.write("Account", "killed.parquet", ROWS, account(9))
    make_older(tables.folder, 30)
    metrics = tables.maintain()
    assert metrics.snapshot == tables.store.current().number == 3
    named = tables.store.current()
    assert named.job == "the upkeep"
    assert (named.tables["Account"].version, named.tables["Account"].history) == (second + 2, 3)
    assert (metrics.tables["Account"].files, metrics.tables["Account"].removed_files) == (1, 1)
    assert (metrics.tables["Account__history"].files_before, metrics.tables["Account__history"].files) == (3, 1)
    assert tables.rows("Account", second + 2) == account(1, 2)
    assert tables.rows("Account__history", 3) == account(0, 1, 2)
    # Every kept snapshot reads its own rows, and a job has nothing to restore.
    assert (tables.rows("Account", first), tables.rows("Account__history", 2)) == (account(1), account(0, 1, 2))
    for name, number in (("Account", second + 2), ("Account__history", 3)):
        tables.log(name).restore(number)
        assert tables.log(name).version().number == number
    before = tables.state()
    assert tables.maintain().snapshot == 3
    assert tables.state() == before


def test_old_versions_named_by_a_kept_snapshot_are_not_deleted(tables: Tables) -> None:
    versions = []
    for number in range(6):
        gone = list(tables.log("Account").version().files)
        versions.append(tables.add("Account", ROWS, account(number), *gone))
        if number >= 2:
            tables.replica(versions[-1])
    make_older(tables.folder, 90)
    move_log_back(tables.folder / "Account", 80)
    for number in (1, 4):
        DeltaTable(f"{tables.base}/Account", number).create_checkpoint()
    make_older(tables.folder / "Account/_delta_log", 80, "*")
    metrics = tables.maintain()
    assert metrics.tables["Account"].removed_files == 2
    logged = {path.name for path in (tables.folder / "Account/_delta_log").iterdir()}
    assert "00000000000000000007.checkpoint.parquet" in logged
    assert "00000000000000000000.json" not in logged
    for number in range(2, 6):
        assert tables.rows("Account", versions[number]) == account(number)
    # When only the newest snapshot is kept, the maintenance deletes the older part of the log.
    for snapshot in tables.store.kept()[:-1]:
        tables.store.remove(snapshot)
    move_log_back(tables.folder / "Account", 80)
    tables.maintain()
    logged = {path.name for path in (tables.folder / "Account/_delta_log").iterdir()}
    assert not any(f"{number:020d}.json" in logged for number in range(6))
    assert tables.rows("Account") == tables.rows("Account", 7) == account(5)


def test_tables_newer_than_the_snapshot_are_skipped(tables: Tables) -> None:
    tables.add("Account", ROWS, account(1))
    tables.add("Account__history", ROWS, account(1))
    tables.replica(0, 0)
    for number in range(2):
        tables.add("Account", ROWS, account(2 + number))
        tables.add("Account__history", ROWS, account(2 + number))
    tables.add("Contact", ROWS, account(1))
    make_older(tables.folder, 30)
    before = tables.state()
    metrics = tables.maintain()
    assert tables.state() == before
    for name in ("Account", "Account__history"):
        assert "not the version in the replica's snapshot" in str(metrics.tables[name].left)
    assert "not a table of an event log" in str(metrics.tables["Contact"].left), (
        "the first run ended before it published a snapshot"
    )


def test_a_table_that_no_snapshot_names_is_skipped(tables: Tables) -> None:
    tables.replica(-1, -1, Contact=TableState("s"))
    assert tables.maintain().tables == {}
    tables.add("Account", ROWS, account(1))
    assert "not the version in the replica's snapshot" in str(tables.maintain().tables["Account"].left)


def test_rows_added_during_a_compaction_are_not_in_the_snapshot(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        tables.add("Account__history", ROWS, account(number))
    tables.add("Account", ROWS, account(1))
    tables.replica(0, 2)
    compact = TableOptimizer.compact

    def after_another(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(TableOptimizer, "compact", compact)
        tables.add("Account__history", ROWS, account(9))
        return compact(*arguments, **named)

    monkeypatch.setattr(TableOptimizer, "compact", after_another)
    metrics = tables.maintain()
    assert metrics.snapshot == 1
    assert tables.store.current().tables["Account"].history == 2
    assert len(tables.rows("Account__history")) == 4
    tables.log("Account__history").restore(2)  # the next run of the replica does the same
    assert tables.rows("Account__history") == account(0, 1, 2)


def test_a_snapshot_published_during_maintenance_takes_precedence(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        tables.add("Account__history", ROWS, account(number))
    tables.add("Account", ROWS, account(1))
    tables.replica(0, 2)
    publish = SnapshotStore.publish

    def late(store: SnapshotStore, snapshot: Any) -> Any:
        monkeypatch.setattr(SnapshotStore, "publish", publish)
        tables.replica(0, 2)
        return publish(store, snapshot)

    monkeypatch.setattr(SnapshotStore, "publish", late)
    metrics = tables.maintain()
    assert metrics.snapshot == 1
    assert "published a snapshot during this run" in str(metrics.tables["Account__history"].left)
    assert tables.store.current().tables["Account"].history == 2
    assert tables.maintain().snapshot == 3
    assert tables.store.current().tables["Account"].history == 3


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("nth", range(1, 12))
def test_maintenance_killed_at_any_step_is_completed_by_the_next_run(tables: Tables, nth: int, after: bool) -> None:
    for number in range(3):
        tables.add("Account__history", ROWS, account(number))
        tables.add_events(f"w{number}", number)
    tables.add("Account", ROWS, account(1))
    tables.replica(0, 2)
    for name in ("Account", "Account__history"):
        tables.write(name, "killed.parquet", ROWS, account(9))
    make_older(tables.folder, 30)
    names = ("Order__e", "Account", "Account__history")
    rows = [tables.rows(name) for name in names]
    try:
        with killed_at(STEPS, nth, after=after):
            tables.maintain()
    except Killed:
        assert [tables.rows(name) for name in names] == rows
        state = tables.store.current().tables["Account"]
        assert [tables.rows("Account", state.version), tables.rows("Account__history", state.history)] == rows[1:]
    metrics = tables.maintain()
    assert {name: (result.files, result.left) for name, result in metrics.tables.items()} == dict.fromkeys(
        names, (1, None)
    )
    state = tables.store.current().tables["Account"]
    newest = [tables.log(name).version().number for name in names[1:]]
    assert [state.version, state.history] == newest
    assert [tables.rows(name) for name in names] == rows
    assert not list(tables.folder.rglob("killed.parquet"))
    before = tables.state()
    tables.maintain()
    assert tables.state() == before


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_compaction_that_loses_a_conflict_is_retried(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    for number in range(3):
        tables.add_events(f"w{number}", number)
    compact, times = TableOptimizer.compact, [lost]

    def losing(*arguments: Any, **named: Any) -> Any:
        if times[0]:
            times[0] -= 1
            raise CommitFailedError("a file was removed")
        return compact(*arguments, **named)

    monkeypatch.setattr(TableOptimizer, "compact", losing)
    result = tables.maintain().tables["Order__e"]
    assert (result.files, result.left is None) == ((1, True) if lost < job._TRIES else (3, False))


def test_a_table_with_unsupported_features_is_skipped(tables: Tables) -> None:
    tables.add_events("w0", 0)
    tables.add_events("w1", 1, table="Other__e")
    tables.add_events("w2", 2, table="Other__e")
    table = DeltaTable(f"{tables.base}/Order__e")
    table.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    metrics = tables.maintain()
    assert "cannot read: deletionVectors" in str(metrics.tables["Order__e"].left)
    assert metrics.tables["Other__e"].files == 1


def test_an_invalid_snapshot_fails_the_maintenance_without_changes(tables: Tables) -> None:
    tables.add_events("w0", 0)
    tables.add_events("w1", 1)
    tables.replica(-1)
    next((tables.folder / "_sfstream/replica/snapshots").iterdir()).write_text("broken")
    before = tables.state()
    with pytest.raises(ConfigurationError, match="not a replica snapshot"):
        tables.maintain()
    assert tables.state() == before
