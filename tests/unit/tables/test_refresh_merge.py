"""Merge of fetched records into the rows of a table."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType
from airflow_provider_sfstream.tables.replica.refresh import image_schema, refresh_merge
from airflow_provider_sfstream.tables.replica.refresh_document import Mode, TableRefresh
from airflow_provider_sfstream.tables.rows.merging import Deletes, MarkMerge, Merge
from airflow_provider_sfstream.tables.rows.replica_columns import TABLE_ENVELOPE
from tests.support.local_table import LocalTable
from tests.support.replica_changes import batch_of
from tests.support.replica_model import refresh_all, refresh_columns, refresh_listed

COLUMNS: dict[str, ColumnType] = {"Name": "string", "Amount__c": "double", "Secret__c": "string"}
FETCHED = TableRefresh(
    "records", ("Name", "Amount__c"), (), 0, "stream", 10, 13, "window-1", "2026-01-01T00:00:00+00:00"
)
COMMIT, REFRESHED = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
Row = dict[str, Any]


def stored(record_id: str, sequence: int, **values: Any) -> Row:
    """Return a row of the table. It is dirty since ``COMMIT`` if ``values`` has a reason."""
    envelope = dict.fromkeys(TABLE_ENVELOPE) | {"Id": record_id, "_sequence": sequence, "_deleted": False}
    usual = {"_commit_time": COMMIT, "_replay_id": b"x", "_transaction_key": "t", "_dirty": "_dirty_reason" in values}
    dirty = {"_dirty_since": COMMIT} if "_dirty_reason" in values else {}
    return {**envelope, **usual, **dirty, "Name": "old", "Amount__c": 1.0, "Secret__c": "kept", **values}


def dirty(record_id: str, sequence: int, **values: Any) -> Row:
    return stored(record_id, sequence, _dirty_reason="gap", **values)


def fetched(record_id: str, sequence: int | None = None, **values: Any) -> Row:
    """Return the fetched line of a record that exists in the org."""
    listed = {} if sequence is None else {"_sequence": str(sequence)}
    usual = {"_found": "true", "_deleted": "false", "_refreshed_at": "2026-01-02T00:00:00.000+0000"}
    return {"Id": record_id, **usual, **listed, "Name": "new", **values}


def missing(record_id: str, sequence: int) -> Row:
    return {"Id": record_id, "_found": "false", "_sequence": str(sequence)}


class Refresher:
    def __init__(self, folder: Path) -> None:
        self._folder, self._tables = folder, 0

    def table(self, rows: Iterable[Row], deletes: Deletes = "soft") -> LocalTable:
        self._tables += 1
        table = LocalTable(self._folder / str(self._tables))
        table.merge([batch_of(list(rows), TABLE_ENVELOPE | COLUMNS)], _ReplacedRows())
        return table

    def __call__(
        self,
        rows: Iterable[Row],
        lines: Iterable[Row],
        refresh: TableRefresh = FETCHED,
        *,
        deletes: Deletes = "soft",
        moved_on: bool = True,
    ) -> dict[str, Row]:
        table = self.table(rows, deletes)
        merge = refresh_merge(COLUMNS, refresh, (), deletes=deletes, moved_on=moved_on)
        table.merge([typed(lines, refresh)], merge, gone_at=0)
        return table.rows()


class _ReplacedRows:
    """Merge that replaces rows by the incoming rows."""

    columns = COLUMNS

    def __call__(self, base: pa.RecordBatch, change: pa.RecordBatch, /) -> tuple[pa.RecordBatch, pa.BooleanArray]:
        return change, pa.array([False] * len(change), pa.bool_())


def typed(lines: Iterable[Row], refresh: TableRefresh) -> pa.RecordBatch:
    """Return lines in the form that the job reads, with one line for each record."""
    rows = []
    for line in {line["Id"]: line for line in lines}.values():
        row = {**line, "_found": line["_found"] == "true", "_deleted": line.get("_deleted") == "true"}
        row["_sequence"] = None if line.get("_sequence") is None else int(line["_sequence"])
        row["_refreshed_at"] = REFRESHED if "_refreshed_at" in line else None
        row["Amount__c"] = None if line.get("Amount__c") is None else float(line["Amount__c"])
        rows.append(row)
    schema = image_schema(refresh, COLUMNS)
    return pa.RecordBatch.from_pylist(rows, schema=schema)


@pytest.fixture
def refresh(tmp_path: Path) -> Refresher:
    return Refresher(tmp_path)


CLEAN: Mapping[str, Any] = {"_dirty": False, "_dirty_since": None, "_dirty_reason": None}
TAKEN: Mapping[str, Any] = {**CLEAN, "Name": "new", "Amount__c": None, "_refreshed_at": REFRESHED}
FULL = replace(FETCHED, mode="full")


def records_cases() -> dict[str, tuple[Row | None, Row | None, Row | None]]:
    """Return cases by name: a row, its fetched line, and the row after the merge. ``None`` means absent."""
    taken = dirty("taken", 5)
    bin_ = dirty("in_recycle_bin", 5)
    back = dirty("back", 5, _deleted=True)
    moved = dirty("moved_on", 6)
    clean = stored("cleaned_by_another_refresh", 5, _refreshed_at=REFRESHED)
    gone = dirty("gone", 5, _refreshed_at=REFRESHED)
    other = stored("not_asked_for", 99)
    dirty_since = dirty("dirty_since", 7)
    cases: list[tuple[Row | None, Row | None, Row | None]] = [
        (taken, fetched("taken", 5), {**taken, **TAKEN}),
        (bin_, fetched("in_recycle_bin", 5, _deleted="true"), {**bin_, **TAKEN, "_deleted": True}),
        (back, fetched("back", 5), {**back, **TAKEN, "_deleted": False}),
        (moved, fetched("moved_on", 5), {**moved, "_dirty_reason": "changed_while_refreshed"}),
        (clean, fetched(clean["Id"], 5), clean),
        (gone, missing("gone", 5), {**gone, **CLEAN, "_deleted": True}),
        (other, None, other),
        (dirty_since, None, dirty_since),
        (None, fetched("dropped_since", 5), None),
    ]
    return {str((row or line or {})["Id"]): (row, line, after) for row, line, after in cases}


@pytest.mark.parametrize("deletes", ["soft", "hard"])
def test_listed_records_are_merged(refresh: Refresher, deletes: Deletes) -> None:
    cases = records_cases()
    rows = [row for row, _, _ in cases.values() if row]
    lines = [line for _, line, _ in cases.values() if line]
    expected = {name: after for name, (_, _, after) in cases.items() if after}
    if deletes == "hard":
        expected = {name: row for name, row in expected.items() if name not in ("in_recycle_bin", "gone")}
    once = refresh(rows, lines, deletes=deletes)
    assert once == expected
    if deletes == "soft":
        assert refresh(once.values(), lines) == once, "a second run changed something"


def test_all_records_are_merged(refresh: Refresher) -> None:
    rows = {
        "seen": stored("seen", 10),
        "gap": dirty("gap", 3),
        "gone": stored("gone", 10),
        "later": stored("later", 11),
        "later_dirty": dirty("later_dirty", 12),
        "later_gone": stored("later_gone", 11),
    }
    lines = [fetched(name) for name in ("seen", "gap", "later", "later_dirty", "new")]
    lines += [fetched("new_deleted", _deleted="true"), fetched("new")]  # one line twice
    late = {"_dirty": True, "_dirty_since": COMMIT, "_dirty_reason": "changed_while_refreshed"}
    inserted = {**dict.fromkeys(TABLE_ENVELOPE), **dict.fromkeys(COLUMNS), **TAKEN, "_sequence": 10, "_deleted": False}
    expected = {
        "seen": {**rows["seen"], **TAKEN},
        "gap": {**rows["gap"], **TAKEN},
        "gone": {**rows["gone"], **CLEAN, "_deleted": True},
        "later": {**rows["later"], **late},
        "later_dirty": {**rows["later_dirty"], **late},
        "later_gone": {**rows["later_gone"], **late},
        "new": {**inserted, "Id": "new"},
        "new_deleted": {**inserted, "Id": "new_deleted", "_deleted": True},
    }
    once = refresh(rows.values(), lines, FULL)
    assert once == expected
    assert refresh(once.values(), lines, FULL) == once, "a second run changed something"
    hard = {name: row for name, row in expected.items() if name not in ("gone", "new_deleted")}
    assert refresh(rows.values(), lines, FULL, deletes="hard", moved_on=False) == hard
    # The replica advanced after the fetch: a record without a row may have been deleted, and its row dropped.
    unsure = {"_dirty": True, "_dirty_since": REFRESHED, "_dirty_reason": "changed_while_refreshed"}
    hard |= {name: {**expected[name], **unsure} for name in ("new", "new_deleted")}
    assert refresh(rows.values(), lines, FULL, deletes="hard") == hard


@pytest.mark.parametrize("deletes", ["soft", "hard"])
@pytest.mark.parametrize("mode", ["full", "records", "columns"])
def test_model_and_job_merge_alike(refresh: Refresher, mode: Mode, deletes: Deletes) -> None:
    """``test_silent_differences`` relies on this model of the job."""
    shape = random.Random(f"{mode} {deletes}")
    rows = {
        name: (dirty if shape.random() < 0.4 else stored)(name, shape.randint(5, 15)) for name in map(str, range(80))
    }
    for row in rows.values():
        row["_deleted"] = shape.random() < 0.2
    asked = {name: row["_sequence"] - (shape.random() < 0.2) for name, row in rows.items() if shape.random() < 0.7}
    known = asked if mode == "records" else [*asked, *map(str, range(90, 110))]
    present = {name: shape.choice(("false", "false", "true")) for name in known if shape.random() < 0.8}
    lines = [fetched(name, asked.get(name), _deleted=deleted, Amount__c="2.5") for name, deleted in present.items()]
    if mode == "records":
        lines += [missing(name, sequence) for name, sequence in asked.items() if name not in present]
    moved_on = shape.random() < 0.5
    found = refresh(rows.values(), lines, replace(FETCHED, mode=mode), deletes=deletes, moved_on=moved_on)
    values = {"Name": "new", "Amount__c": 2.5, "_refreshed_at": REFRESHED}
    records = {name: {**values, "_deleted": deleted == "true"} for name, deleted in present.items()}
    if mode == "full":
        options = {"hard": deletes == "hard", "moved_on": moved_on}
        refresh_all(rows, records, FETCHED.columns, FETCHED.applied_sequence, **options)
    elif mode == "records":
        refresh_listed(rows, asked, records, FETCHED.columns, hard=deletes == "hard")
    else:
        refresh_columns(rows, records, FETCHED.columns, FETCHED.applied_sequence)
    assert found == {name: dict.fromkeys(COLUMNS) | row for name, row in rows.items()}


def test_differing_rows_become_dirty_and_missing_rows_are_inserted(refresh: Refresher) -> None:
    same, differs, was_dirty = stored("same", 5), stored("differs", 6), dirty("was_dirty", 7)
    table = refresh.table([same, differs, was_dirty])
    ids = pa.RecordBatch.from_pylist([{"Id": name} for name in ("differs", "missing", "was_dirty")])
    table.merge([ids], MarkMerge(COLUMNS, 9, int(REFRESHED.timestamp()) * 1_000_000), gone_at=0)
    marked = {"_dirty": True, "_dirty_since": REFRESHED, "_dirty_reason": "differs"}
    made = {**dict.fromkeys([*TABLE_ENVELOPE, *COLUMNS]), "Id": "missing", "_deleted": False, "_sequence": 9}
    assert table.rows() == {
        "same": same,
        "differs": differs | marked,
        "missing": made | marked,
        "was_dirty": was_dirty | marked,
    }


def test_refresh_ends_the_versions_of_changed_rows(refresh: Refresher) -> None:
    rows = [stored("seen", 10), dirty("gap", 3), stored("gone", 10), stored("same", 10, _refreshed_at=REFRESHED)]
    table = refresh.table(rows, "hard")
    merge: Merge = refresh_merge(COLUMNS, FULL, (), deletes="hard", moved_on=False)
    lines = [fetched("seen"), fetched("gap"), fetched("same", Name="other"), fetched("new")]
    gone_at = datetime(2026, 4, 1, tzinfo=UTC)
    table.merge([typed(lines, FULL)], merge, gone_at=int(gone_at.timestamp()) * 1_000_000)
    spans = [
        (row["Id"], row["_operation"], row["Name"], row["_valid_from"], row["_valid_to"])
        for row in table.versions(COLUMNS)
    ]
    assert spans == [
        ("gap", "unknown", "old", COMMIT, REFRESHED),
        ("gone", "upsert", "old", COMMIT, gone_at),
        ("seen", "upsert", "old", COMMIT, REFRESHED),
    ], "a version with the start time of its predecessor replaces it"
