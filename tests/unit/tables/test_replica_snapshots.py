from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError, PositionConflictError
from airflow_provider_sfstream.privacy.field_rules import FieldRules
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from airflow_provider_sfstream.tables.replica.snapshots import (
    AppliedWindow,
    ComputedColumns,
    Flag,
    Snapshot,
    StreamState,
    TableState,
)
from airflow_provider_sfstream.tables.replica.table_schemas import StoredSchema

NOW = datetime(2026, 1, 10, 12, tzinfo=UTC)
WINDOW = AppliedWindow("20260110T000000Z-1", "file:///w/manifest.json", 5, 3)
STREAM = StreamState(
    "00D", "pubsub", "/data/ChangeEvents", "airflow", WINDOW, "0a", 6, "09", (WINDOW,), recent=("w0", "w1")
)
TABLE = TableState(
    stream="00D|pubsub|/data/ChangeEvents|airflow",
    version=7,
    history=3,
    columns={"Name": "string", "Tags": {"array": "string"}, "Z": {"struct": {"b": "int", "a": "int"}}},
    dirty=2,
    dirty_list="_sfstream/replica/dirty/Account/c",
    flag=Flag("overflow", NOW.isoformat(), 7),
    computed=ComputedColumns(("Sum__c",), NOW.isoformat(), on_change=True, changed=3),
    fields={"Name": "Data:Text", "Tags": ""},
    rules=FieldRules(mask=("Phone",)),
    hidden={"phone": "mask"},
    deletes="hard",
)


class FolderFiles:
    """Storage of a job in a folder. It records the size of each text that was read."""

    def __init__(self) -> None:
        self.read: list[tuple[str, int]] = []

    def read_text(self, url: str) -> str:
        text = Path(url).read_text()
        self.read.append((url, len(text)))
        return text

    def file_names(self, url: str) -> list[str]:
        return [path.name for path in Path(url).iterdir()] if Path(url).is_dir() else []

    def create_text(self, url: str, text: str) -> None:
        Path(url).parent.mkdir(parents=True, exist_ok=True)
        with Path(url).open("x") as file:
            file.write(text)

    def replace_text(self, url: str, text: str) -> None:
        Path(url).parent.mkdir(parents=True, exist_ok=True)
        Path(url).write_text(text)

    def delete(self, url: str) -> None:
        Path(url).unlink()


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(FolderFiles(), str(tmp_path))


def test_published_snapshots_are_read_back(store: SnapshotStore) -> None:
    assert store.current() == Snapshot()
    first = Snapshot().next({"s": STREAM}, {"Account": TABLE}, NOW)
    store.publish(first)
    assert store.current() == first
    second = first.next({}, {"Contact": TableState("s")}, NOW)
    store.publish(second)
    assert store.current() == second
    assert set(second.tables) == {"Account", "Contact"}
    assert store.read(1) == first


def test_second_job_cannot_publish_the_same_snapshot_number(store: SnapshotStore) -> None:
    store.publish(replace(Snapshot().next({}, {"Account": TABLE}, NOW), job="the first"))
    with pytest.raises(PositionConflictError, match=r"Snapshot 1 .* was published by the first while"):
        store.publish(Snapshot().next({}, {}, NOW))
    assert set(store.current().tables) == {"Account"}


def test_old_snapshots_are_removed(store: SnapshotStore) -> None:
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
def test_invalid_snapshot_is_refused(broken: str | None) -> None:
    document: dict[str, Any] = json.loads(Snapshot().to_json({})) | {"version": 3}
    with pytest.raises(ConfigurationError, match="at/this/place is not a replica snapshot"):
        Snapshot.from_json(json.dumps(document) if broken is None else broken, "at/this/place", StoredSchema)


def test_a_flag_keeps_its_first_reason_and_its_last_event() -> None:
    flagged = TABLE.flagged(Flag("gap", "later", 20)).flagged(Flag("all_records", "later", 10))
    assert flagged.flag == Flag("overflow", NOW.isoformat(), 20)


def wide(columns: int) -> TableState:
    names = [f"Custom_Field_Number_{n}__c" for n in range(columns)]
    fields = dict.fromkeys(names, "Data:Text:00N0000000abcde")
    return TableState("s", version=0, columns=dict.fromkeys(names, "string"), fields=fields)


def schemas(folder: Path, table: str = "Account") -> list[str]:
    """Return the names of the stored schemas of a table."""
    return sorted(path.name for path in (folder / "_sfstream/replica/schemas" / table).glob("*"))


def test_run_reads_only_the_columns_of_tables_that_it_uses(tmp_path: Path) -> None:
    tables = {f"Thing{n}__c": wide(40) for n in range(200)}
    SnapshotStore(FolderFiles(), str(tmp_path)).publish(Snapshot().next({"s": STREAM}, tables, NOW))
    for number in range(12):
        files = FolderFiles()
        store = SnapshotStore(files, str(tmp_path))
        current = store.current()
        (name, table), *_ = current.tables.items()
        columns = dict(table.columns)
        changed = replace(table, version=number + 1, columns=columns, fields=dict(table.fields))
        store.publish(current.next({}, {name: changed}, NOW))
        gone, kept = store.divided(10)
        assert all(each.tables[name].version >= 0 for each in (*gone, *kept))
        store.prune(gone, kept)
    assert len(store.kept()) == 10
    assert [url for url, _ in files.read if "/schemas/" in url] == [
        f"{tmp_path}/_sfstream/replica/schemas/{name}/{schemas(tmp_path, name)[0]}"
    ]
    assert sum(size for _, size in files.read) < 1 << 20
    assert all(len(schemas(tmp_path, name)) == 1 for name in tables)


def test_columns_are_written_before_the_snapshot_and_only_if_they_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    files = FolderFiles()
    store = SnapshotStore(files, str(tmp_path))
    for write in ("create_text", "replace_text"):
        monkeypatch.setattr(files, write, _noting(written, getattr(files, write)))
    first = store.publish(Snapshot().next({}, {"Account": TABLE, "Contact": wide(3)}, NOW))
    assert [place.split("/")[0] for place in written] == ["schemas", "schemas", "snapshots"]
    written.clear()
    second = store.publish(first.next({}, {"Account": replace(TABLE, version=8)}, NOW))
    assert written == ["snapshots/000000000002.json"]
    wider = replace(TABLE, columns={**TABLE.columns, "New__c": "string"})
    store.publish(second.next({}, {"Account": wider}, NOW))
    assert [place.rpartition("-")[0] for place in written[1:]] == ["schemas/Account/000000000003", ""]
    assert written[2:] == ["snapshots/000000000003.json"]
    again = SnapshotStore(files, str(tmp_path))
    assert again.current().tables == {"Account": wider, "Contact": wide(3)}
    assert again.read(1).tables == first.tables == {"Account": TABLE, "Contact": wide(3)}
    assert list(again.read(1).tables["Account"].columns["Z"]["struct"]) == ["b", "a"]  # type: ignore[index]
    assert not files.read[-1][0].endswith("000000000002.json")


def _noting(written: list[str], write: Any) -> Any:
    def noting(url: str, text: str) -> None:
        written.append(url.split("/_sfstream/replica/")[1])
        write(url, text)

    return noting


def test_rules_shared_by_tables_are_stored_once(tmp_path: Path, store: SnapshotStore) -> None:
    rules = FieldRules(exclude=("SSN__c",), hash=("Email",), key_id="abc")
    tables = {"A": replace(TABLE, rules=rules), "B": TABLE, "C": replace(TABLE, rules=rules), "D": wide(1)}
    store.publish(Snapshot().next({}, tables, NOW))
    assert (tmp_path / "_sfstream/replica/snapshots/000000000001.json").read_text().count("SSN__c") == 1
    assert SnapshotStore(FolderFiles(), str(tmp_path)).current().tables == tables


@pytest.mark.parametrize("name", ["../../../x", "000000000001-0123456789abcdef/..", 3, ["x"], {}])
def test_invalid_schema_name_is_refused(store: SnapshotStore, tmp_path: Path, name: Any) -> None:
    store.publish(Snapshot().next({}, {"Account": TABLE}, NOW))
    path = tmp_path / "_sfstream/replica/snapshots/000000000001.json"
    document = json.loads(path.read_text())
    document["tables"]["Account"]["schema"] = name
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigurationError, match="is not a replica snapshot"):
        SnapshotStore(FolderFiles(), str(tmp_path)).current()


@pytest.mark.parametrize("broken", ["", "{}", "[]", '{"format": "sfstream-replica-schema", "version": 2}'])
def test_invalid_schema_document_is_named(store: SnapshotStore, tmp_path: Path, broken: str) -> None:
    store.publish(Snapshot().next({}, {"Account": TABLE}, NOW))
    (name,) = schemas(tmp_path)
    (tmp_path / "_sfstream/replica/schemas/Account" / name).write_text(broken)
    table = SnapshotStore(FolderFiles(), str(tmp_path)).current().tables["Account"]
    assert table.rules == TABLE.rules
    with pytest.raises(ConfigurationError, match=f"{name} is not a replica table schema"):
        _ = dict(table.columns)


def grow(store: SnapshotStore, *columns: str) -> Snapshot:
    """Publish a snapshot for each of ``columns``. Its table gets that column, or no new column for ``""``."""
    snapshot = store.current()
    for column in columns:
        table = snapshot.tables.get("Account", TABLE)
        if column:
            columns_after = {**table.columns, column: "string"}
            table = replace(table, columns=columns_after, fields={**table.fields, column: ""})
        snapshot = store.publish(snapshot.next({}, {"Account": table}, NOW))
    return snapshot


def test_unreferenced_schemas_are_removed(store: SnapshotStore, tmp_path: Path) -> None:
    grow(store, "A", "", "B", "", "C", "")
    orphan = tmp_path / "_sfstream/replica/schemas/Account/000000000002-0123456789abcdef.json"
    pending = orphan.with_name("000000000007-0123456789abcdef.json")
    for each in (orphan, pending):
        each.write_text("{}")
    assert len(schemas(tmp_path)) == 5
    for keep, numbers in [(5, [1, 2, 3, 5, 7]), (4, [3, 5, 7]), (3, [3, 5, 7]), (1, [5, 7])]:
        store.prune(*store.divided(keep))
        assert [int(name[:12]) for name in schemas(tmp_path)] == numbers
        others = SnapshotStore(FolderFiles(), str(tmp_path))
        assert all(each.tables["Account"].columns for each in others.kept())


def test_returning_schema_is_stored_as_a_new_document(store: SnapshotStore, tmp_path: Path) -> None:
    """A job that removes old schemas cannot remove a schema that a concurrent job has just written."""
    snapshot = store.publish(Snapshot().next({}, {"Account": TABLE}, NOW))
    snapshot = store.publish(snapshot.next({}, {"Account": replace(TABLE, fields={"Name": ""})}, NOW))
    slow = SnapshotStore(FolderFiles(), str(tmp_path))
    gone, kept = slow.divided(1)
    store.publish(snapshot.next({}, {"Account": TABLE}, NOW))
    slow.prune(gone, kept)
    assert SnapshotStore(FolderFiles(), str(tmp_path)).current().tables["Account"] == TABLE
    assert [int(name[:12]) for name in schemas(tmp_path)] == [2, 3]


@pytest.mark.parametrize("step", range(1, 6))
def test_kill_during_the_removal_of_snapshots_preserves_the_kept_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    files = FolderFiles()
    store = SnapshotStore(files, str(tmp_path))
    grow(store, "A", "B", "C", "D")
    delete, deleted = files.delete, list[str]()

    def killed(url: str) -> None:
        deleted.append(url)
        if len(deleted) == step:
            raise KeyboardInterrupt
        delete(url)

    monkeypatch.setattr(files, "delete", killed)
    with pytest.raises(KeyboardInterrupt):
        store.prune(*store.divided(1))
    monkeypatch.undo()
    again = SnapshotStore(files, str(tmp_path))
    names = {*TABLE.columns, "A", "B", "C", "D"}
    assert again.current().tables["Account"].columns.keys() == names
    again.prune(*again.divided(1))
    assert again.current().tables["Account"].columns.keys() == names
    assert (len(schemas(tmp_path)), len(again.kept())) == (1, 1)


def test_columns_of_the_losing_job_do_not_replace_the_winners(tmp_path: Path, store: SnapshotStore) -> None:
    other = SnapshotStore(FolderFiles(), str(tmp_path))
    before = store.publish(Snapshot().next({}, {"Account": TABLE}, NOW))
    assert other.current() == before
    store.publish(before.next({}, {"Account": replace(TABLE, fields={"Name": "won"})}, NOW))
    with pytest.raises(PositionConflictError):
        other.publish(before.next({}, {"Account": replace(TABLE, fields={"Name": "lost"})}, NOW))
    current = SnapshotStore(FolderFiles(), str(tmp_path)).current()
    assert current.tables["Account"].fields == {"Name": "won"}


def test_columns_read_in_one_folder_are_written_to_another(tmp_path: Path) -> None:
    here, there = (SnapshotStore(FolderFiles(), str(tmp_path / name)) for name in ("here", "there"))
    there.publish(here.publish(Snapshot().next({}, {"Account": TABLE}, NOW)))
    (tmp_path / "here").rename(tmp_path / "gone")
    assert SnapshotStore(FolderFiles(), str(tmp_path / "there")).current().tables["Account"] == TABLE
