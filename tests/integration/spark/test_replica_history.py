from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.spark.replica.files import ReplicaFiles, rewrite_buckets
from airflow_provider_sfstream.spark.replica.history import (
    closed_versions,
    read_history,
    replaced_versions,
    write_versions,
)
from airflow_provider_sfstream.spark.replica.refresh import refreshed_columns
from airflow_provider_sfstream.spark.replica.refresh_document import IMAGE_ENVELOPE, TableRefresh
from airflow_provider_sfstream.spark.replica.snapshot_store import SnapshotStore
from airflow_provider_sfstream.spark.replica.snapshots import Snapshot, TableState
from airflow_provider_sfstream.spark.rows.history_batches import VERSION_ENVELOPE
from airflow_provider_sfstream.spark.rows.replica_merge import Deletes, folded_changes, merged_columns, with_bucket
from airflow_provider_sfstream.spark.rows.replica_rows import TABLE_ENVELOPE
from airflow_provider_sfstream.spark.storage.column_registry import ColumnRegistry
from airflow_provider_sfstream.spark.storage.hadoop_files import HadoopFiles
from tests.support import history_model, replica_model
from tests.support.replica_changes import COLUMNS, START, random_changes
from tests.support.replica_frames import change_frame, frame_of, rows_of, with_numbers
from tests.support.replica_model import Row

BUCKETS = 4
FIRST = {"Name": COLUMNS["Name"], "AnnualRevenue": COLUMNS["AnnualRevenue"]}
THEN = FIRST | {"Tags__c": COLUMNS["Tags__c"], "Place__c": COLUMNS["Place__c"]}


class Replica:
    """A table with a history, written step by step as the job does."""

    def __init__(self, spark: Any, folder: Path, deletes: Deletes) -> None:
        self.spark, self.folder, self.deletes, self.url = spark, folder, deletes, f"{folder}/lake"
        self.files = HadoopFiles(spark)
        self.parquet = ReplicaFiles(spark, self.files, self.url)
        self.store = SnapshotStore(self.files, self.url)
        self.state = TableState("stream", "parquet", BUCKETS, history=())

    def apply(self, changes: list[Row], columns: dict, run: str) -> None:
        rows = change_frame(self.spark, self.folder, changes, columns)
        base = self.parquet.read("Account", self.state.files, columns)
        closed = closed_versions(base, rows, columns, 2, deletes=self.deletes)
        names = write_versions(self.spark, self.url, "Account", closed, run)
        folded = folded_changes(rows, columns, 2, BUCKETS).persist()
        self._publish(folded, merged_columns(columns, deletes=self.deletes), columns, names, run)

    def refresh(self, images: list[Row], refresh: TableRefresh, columns: dict, run: str, gone_at: datetime) -> None:
        types = {"_found": "boolean", "_deleted": "boolean"} | TABLE_ENVELOPE | columns
        fetched = frame_of(
            self.spark, self.folder, images, {name: types[name] for name in (*IMAGE_ENVELOPE, *refresh.columns)}
        )
        fetched = with_bucket(fetched, BUCKETS).persist()
        merge = refreshed_columns(columns, refresh, deletes=self.deletes)
        base = self.parquet.read("Account", self.state.files, columns)
        replaced = replaced_versions(base, fetched, merge, columns, 2, gone_at)
        names = write_versions(self.spark, self.url, "Account", replaced, run)
        self._publish(fetched, merge, columns, names, run)

    def _publish(self, changes: Any, merge: list[Any], columns: dict, history: list[str], run: str) -> None:
        rewritten = rewrite_buckets(self.parquet, "Account", self.state.files, columns, changes, merge, run)
        changes.unpersist()
        files = {bucket: tuple(names) for bucket, names in rewritten.files.items()}
        past = (*(self.state.history or ()), *history)
        self.state = TableState(
            "stream", "parquet", BUCKETS, columns=ColumnRegistry(columns), files=files, history=past
        )
        self.store.publish(self.store.current().next({}, {"Account": self.state}, START))

    def history(self, **options: Any) -> list[Row]:
        names = [*VERSION_ENVELOPE, "_is_current", *self.state.columns.columns]
        frame = read_history(self.spark, self.url, "Account", **options)
        assert frame.columns == names
        return sorted(rows_of(frame, names), key=lambda row: (row["Id"], row["_sequence"], row["_valid_from"]))


def expected(versions: list[Row], columns: dict) -> list[Row]:
    versions = [version | {"_is_current": version["_valid_to"] is None} for version in versions]
    versions.sort(key=lambda row: (row["Id"], row["_sequence"], row["_valid_from"]))
    return with_numbers(versions, [*VERSION_ENVELOPE, "_is_current", *columns])


@pytest.mark.parametrize("deletes", ["soft", pytest.param("hard", marks=pytest.mark.extended)])
def test_the_history_is_what_the_model_says_and_a_second_run_adds_nothing(
    spark: Any, tmp_path: Path, deletes: Deletes
) -> None:
    shape, replica = random.Random(11), Replica(spark, tmp_path, deletes)
    table: dict[str, Row] = {}
    past: list[Row] = []
    records = [f"001{number:03d}" for number in range(12)]
    for run, (first, columns) in enumerate([(1, FIRST), (41, THEN)]):
        changes = random_changes(shape, records, 40, columns, first)
        past += history_model.closed_versions(table, changes, columns, hard=deletes == "hard")
        replica_model.apply_window(table, changes, columns, hard=deletes == "hard")
        replica.apply(changes, columns, f"run{run}")
    current = [history_model.version_of(row, THEN) for row in table.values()]
    assert replica.history() == expected(past + current, THEN)
    if deletes == "soft":  # a dropped row cannot tell that it saw a change: the chain of windows does
        files = replica.state.history
        replica.apply(changes, THEN, "again")
        assert replica.history() == expected(past + current, THEN)
        assert files == replica.state.history[: len(files)]


def test_a_refresh_ends_the_span_in_which_nobody_knew(spark: Any, tmp_path: Path) -> None:
    replica = Replica(spark, tmp_path, "soft")
    second = timedelta(seconds=1)

    def change(sequence: int, record_id: str, operation: str, name: str | None = None) -> Row:
        chosen = frozenset(FIRST) if operation == "full" else frozenset()
        made = {"Id": record_id, "_sequence": sequence, "_operation": operation, "_set": chosen, "Name": name}
        return made | {
            "_commit_time": START + sequence * second,
            "_dirty_reason": "gap" if operation == "gap" else None,
        }

    replica.apply(
        [change(1, "0011", "full", "known"), change(2, "0012", "full", "stays"), change(3, "0011", "gap")],
        FIRST,
        "changes",
    )
    refresh = TableRefresh("records", ("Name",), (), 1, "stream", 3, 4, "window", "2026-01-01T00:00:00+00:00")
    images = [
        {"Id": "0011", "_found": True, "_sequence": 3, "_deleted": False, "Name": "fetched"}
        | {"_refreshed_at": START + 7 * second}
    ]
    replica.refresh(images, refresh, FIRST, "refresh", START)
    spans = [
        (row["Id"], row["_operation"], row["Name"], row["_is_current"], row["_valid_from"], row["_valid_to"])
        for row in replica.history()
    ]
    one, two, three, seven = (int((START + n * second).timestamp()) * 1_000_000 for n in (1, 2, 3, 7))
    assert spans == [
        ("0011", "upsert", "known", False, one, three),
        ("0011", "unknown", "known", False, three, seven),
        ("0011", "refresh", "fetched", True, seven, None),
        ("0012", "upsert", "stays", True, two, None),
    ]
    assert len(replica.history(snapshot=1)) == 3


def test_a_row_that_a_full_refresh_drops_ends_when_the_caller_says(spark: Any, tmp_path: Path) -> None:
    replica = Replica(spark, tmp_path, "hard")
    full = {"_operation": "full", "_set": frozenset(FIRST), "_commit_time": START}
    rows = [full | {"Id": record, "_sequence": number, "Name": record} for number, record in enumerate(("a", "b"), 1)]
    replica.apply(rows, FIRST, "changes")
    refresh = TableRefresh("full", ("Name",), (), 1, "stream", 2, 3, "window", "2026-01-01T00:00:00+00:00")
    # All buckets have an image, or their rows would not be looked at.
    images = [
        {"Id": record, "_found": True, "_deleted": False, "Name": record, "_refreshed_at": START}
        for record in ("a", *(f"new{number}" for number in range(20)))
    ]
    gone_at = datetime(2026, 4, 1, tzinfo=UTC)
    replica.refresh(images, refresh, FIRST, "refresh", gone_at)
    history = {row["Id"]: row for row in replica.history() if not row["Id"].startswith("new")}
    assert history["a"]["_is_current"]
    assert history["b"]["_valid_to"] == int(gone_at.timestamp()) * 1_000_000


def test_a_table_without_a_history_says_so(spark: Any, tmp_path: Path) -> None:
    store = SnapshotStore(HadoopFiles(spark), str(tmp_path))
    store.publish(Snapshot().next({}, {"Account": TableState("stream", "parquet", 4)}, START))
    with pytest.raises(ConfigurationError, match="without a history"):
        read_history(spark, str(tmp_path), "Account")
