from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError, PositionConflictError
from airflow_provider_sfstream.tables.delta.column_registry import ColumnRegistry
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from airflow_provider_sfstream.tables.replica.snapshots import (
    AppliedWindow,
    Computed,
    Flag,
    Snapshot,
    StreamState,
    TableState,
)

NOW = datetime(2026, 1, 10, 12, tzinfo=UTC)
WINDOW = AppliedWindow("20260110T000000Z-1", "file:///w/manifest.json", 5, 3)
STREAM = StreamState("00D", "pubsub", "/data/ChangeEvents", "airflow", WINDOW, "0a", 6, "09", (WINDOW,), ("w0", "w1"))
TABLE = TableState(
    stream="00D|pubsub|/data/ChangeEvents|airflow",
    version=7,
    history=3,
    columns=ColumnRegistry({"Name": "string", "Tags": {"array": "string"}}),
    dirty=2,
    dirty_list="_sfstream/replica/dirty/Account/c",
    flag=Flag("overflow", NOW.isoformat(), 7),
    computed=Computed(("Sum__c",), NOW.isoformat(), on_change=True, changed=3),
    deletes="hard",
)


class FolderFiles:
    """A folder as the job's storage."""

    def read_text(self, url: str) -> str:
        return Path(url).read_text()

    def file_names(self, url: str) -> list[str]:
        return [path.name for path in Path(url).iterdir()] if Path(url).is_dir() else []

    def create_text(self, url: str, text: str) -> None:
        Path(url).parent.mkdir(parents=True, exist_ok=True)
        with Path(url).open("x") as file:
            file.write(text)

    def delete(self, url: str) -> None:
        Path(url).unlink()


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(FolderFiles(), str(tmp_path))


def test_there_and_back(store: SnapshotStore) -> None:
    assert store.current() == Snapshot()
    first = Snapshot().next({"s": STREAM}, {"Account": TABLE}, NOW)
    store.publish(first)
    assert store.current() == first
    second = first.next({}, {"Contact": TableState("s")}, NOW)
    store.publish(second)
    assert store.current() == second
    assert set(second.tables) == {"Account", "Contact"}
    assert store.read(1) == first


def test_two_jobs_cannot_publish_one_number(store: SnapshotStore) -> None:
    store.publish(replace(Snapshot().next({}, {"Account": TABLE}, NOW), job="the first"))
    with pytest.raises(PositionConflictError, match=r"Snapshot 1 .* was published by the first meanwhile"):
        store.publish(Snapshot().next({}, {}, NOW))
    assert set(store.current().tables) == {"Account"}


def test_old_ones_are_forgotten(store: SnapshotStore) -> None:
    snapshot = Snapshot()
    for _ in range(12):
        snapshot = snapshot.next({}, {}, NOW)
        store.publish(snapshot)
    gone, kept = store.divided(3)
    assert [each.number for each in (*gone, *kept)] == list(range(1, 13))
    assert [each.number for each in kept] == [10, 11, 12]
    for each in gone:
        store.remove(each)
    with pytest.raises(FileNotFoundError):
        store.read(9)
    assert store.divided(5) == ([], kept)


@pytest.mark.parametrize("broken", ["", "{}", '{"format": "other", "version": 1}', "[]", None])
def test_what_is_no_snapshot(broken: str | None) -> None:
    document: dict[str, Any] = json.loads(Snapshot().to_json()) | {"version": 2}
    with pytest.raises(ConfigurationError, match="at/this/place is not a replica snapshot"):
        Snapshot.from_json(json.dumps(document) if broken is None else broken, "at/this/place")


def test_a_snapshot_of_an_earlier_version_has_no_record_of_deletes() -> None:
    document = json.loads(Snapshot().next({"s": STREAM}, {"Account": TABLE}, NOW).to_json())
    del document["tables"]["Account"]["deletes"]
    table = Snapshot.from_json(json.dumps(document), "at/this/place").tables["Account"]
    assert table == replace(TABLE, deletes=None)


def test_a_flag_keeps_its_first_reason_and_its_last_event() -> None:
    flagged = TABLE.flagged(Flag("gap", "later", 20)).flagged(Flag("all_records", "later", 10))
    assert flagged.flag == Flag("overflow", NOW.isoformat(), 20)
