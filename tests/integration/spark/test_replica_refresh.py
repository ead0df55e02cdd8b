"""Fetched records over the rows that a table has: which of them the rows become, with what types."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_sfstream.spark.decode.arrow_columns import arrow_type
from airflow_provider_sfstream.spark.decode.avro_columns import ColumnType
from airflow_provider_sfstream.spark.replica.refresh import images, refreshed_columns
from airflow_provider_sfstream.spark.replica.refresh_document import Mode, TableRefresh
from airflow_provider_sfstream.spark.rows.replica_merge import DROPPED, Deletes, joined, with_bucket
from airflow_provider_sfstream.spark.rows.replica_rows import BUCKET, TABLE_ENVELOPE
from tests.support.replica_model import refresh_all, refresh_columns, refresh_listed

COLUMNS: dict[str, ColumnType] = {"Name": "string", "Amount__c": "double", "Secret__c": "string"}
FETCHED = TableRefresh(
    "records", ("Name", "Amount__c"), (), 0, "stream", 10, 13, "window-1", "2026-01-01T00:00:00+00:00"
)
COMMIT, REFRESHED = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
Row = dict[str, Any]


def stored(record_id: str, sequence: int, **values: Any) -> Row:
    """A row of the table; dirty since ``COMMIT`` where a reason is given."""
    envelope = dict.fromkeys(TABLE_ENVELOPE) | {"Id": record_id, "_sequence": sequence, "_deleted": False}
    usual = {"_commit_time": COMMIT, "_replay_id": b"x", "_transaction_key": "t", "_dirty": "_dirty_reason" in values}
    dirty = {"_dirty_since": COMMIT} if "_dirty_reason" in values else {}
    return {**envelope, **usual, **dirty, "Name": "old", "Amount__c": 1.0, "Secret__c": "kept", **values}


def dirty(record_id: str, sequence: int, **values: Any) -> Row:
    return stored(record_id, sequence, _dirty_reason="gap", **values)


def fetched(record_id: str, sequence: int | None = None, **values: Any) -> Row:
    """A line of a record that the org has."""
    listed = {} if sequence is None else {"_sequence": str(sequence)}
    usual = {"_found": "true", "_deleted": "false", "_refreshed_at": "2026-01-02T00:00:00.000+0000"}
    return {"Id": record_id, **usual, **listed, "Name": "new", **values}


def missing(record_id: str, sequence: int) -> Row:
    return {"Id": record_id, "_found": "false", "_sequence": str(sequence)}


class Refresher:
    def __init__(self, spark: Any, folder: Path) -> None:
        self._spark, self._folder = spark, folder

    def images(self, lines: Iterable[Row], refresh: TableRefresh, columns: dict[str, ColumnType]) -> Any:
        (self._folder / "part-00000.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        refresh = replace(refresh, files=("part-00000.jsonl",))
        return images(self._spark, self._folder.as_uri(), refresh, columns)

    def __call__(
        self,
        rows: Iterable[Row],
        lines: Iterable[Row],
        refresh: TableRefresh = FETCHED,
        *,
        deletes: Deletes = "soft",
        moved_on: bool = True,
    ) -> dict[str, Row]:
        schema = pa.schema([(name, arrow_type(type_)) for name, type_ in (TABLE_ENVELOPE | COLUMNS).items()])
        base = with_bucket(self._spark.createDataFrame(pa.Table.from_pylist(list(rows), schema)), 3)
        pairs = joined(base, with_bucket(self.images(lines, refresh, COLUMNS), 3), 2)
        new = pairs.select(BUCKET, *refreshed_columns(COLUMNS, refresh, deletes=deletes, moved_on=moved_on))
        assert new.columns == [BUCKET, *TABLE_ENVELOPE, *COLUMNS, DROPPED]
        found = new.where(f"NOT {DROPPED}").drop(DROPPED, BUCKET).toArrow().to_pylist()
        assert len({row["Id"] for row in found}) == len(found)
        return {row["Id"]: row for row in found}


@pytest.fixture
def refresh(spark: Any, tmp_path: Path) -> Refresher:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return Refresher(spark, tmp_path)


CLEAN: Mapping[str, Any] = {"_dirty": False, "_dirty_since": None, "_dirty_reason": None}
TAKEN: Mapping[str, Any] = {**CLEAN, "Name": "new", "Amount__c": None, "_refreshed_at": REFRESHED}
FULL = replace(FETCHED, mode="full")


def records_cases() -> dict[str, tuple[Row | None, Row | None, Row | None]]:
    """By what they are about: a row, the line fetched for it, and the row that follows (``None``: there is none)."""
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
def test_listed_records(refresh: Refresher, deletes: Deletes) -> None:
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


def test_all_records(refresh: Refresher) -> None:
    rows = {
        "seen": stored("seen", 10),
        "gap": dirty("gap", 3),
        "gone": stored("gone", 10),
        "later": stored("later", 11),
        "later_dirty": dirty("later_dirty", 12),
        "later_gone": stored("later_gone", 11),
    }
    lines = [fetched(name) for name in ("seen", "gap", "later", "later_dirty", "new")]
    lines += [fetched("new_deleted", _deleted="true"), fetched("new")]  # one of them twice
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
    # The replica moved on: a record without a row may have been deleted, and its row dropped, since it was fetched.
    unsure = {"_dirty": True, "_dirty_since": REFRESHED, "_dirty_reason": "changed_while_refreshed"}
    hard |= {name: {**expected[name], **unsure} for name in ("new", "new_deleted")}
    assert refresh(rows.values(), lines, FULL, deletes="hard") == hard


VALUES = {
    "Text__c": ("string", "two\nlines 💧", "two\nlines 💧"),
    "Flag__c": ("boolean", "true", True),
    "Number__c": ("double", "12345678.125", 12345678.125),
    "Large__c": ("double", "1.5E10", 1.5e10),
    "Int__c": ("int", "-7", -7),
    "Long__c": ("long", "9007199254740993", 9007199254740993),
    "Whole__c": ("int", "5.0", 5),
    "Time__c": ("long", "10:20:30.125Z", 37230125),
    "Moment__c": ("timestamp", "1970-01-31T10:00:00.000+0000", datetime(1970, 1, 31, 10, tzinfo=UTC)),
    "Bulk__c": ("timestamp", "2026-01-31T10:00:00.000Z", datetime(2026, 1, 31, 10, tzinfo=UTC)),
    "Old__c": ("timestamp", "1701-02-03T04:05:06.007+0000", datetime(1701, 2, 3, 4, 5, 6, 7000, tzinfo=UTC)),
    "Day__c": ("date", "4000-12-31", date(4000, 12, 31)),
    "First_day__c": ("date", "1700-01-01", date(1700, 1, 1)),
    "Moment_as_long__c": ("long", "1970-01-02T00:00:01.000+0000", 86_401_000),
    "Day_as_long__c": ("long", "1970-01-02", 86_400_000),
}


def test_the_types(refresh: Refresher) -> None:
    columns: dict[str, ColumnType] = {name: type_ for name, (type_, _, _) in VALUES.items()}
    lines = [fetched("A", **{name: text for name, (_, text, _) in VALUES.items()}), fetched("B")]
    given = replace(FULL, columns=tuple(VALUES))
    found = {row["Id"]: row for row in refresh.images(lines, given, columns).toArrow().to_pylist()}
    assert {name: found["A"][name] for name in VALUES} == {name: value for name, (_, _, value) in VALUES.items()}
    assert all(found["B"][name] is None for name in VALUES)
    assert (found["A"]["_found"], found["A"]["_deleted"], found["A"]["_refreshed_at"]) == (True, False, REFRESHED)


@pytest.mark.parametrize(("type_", "text"), [("double", "a lot"), ("date", "soon"), ("timestamp", "now"), ("int", "x")])
def test_a_text_that_is_no_such_value_is_an_error(refresh: Refresher, type_: str, text: str) -> None:
    rows = refresh.images([fetched("A", Value__c=text)], replace(FULL, columns=("Value__c",)), {"Value__c": type_})
    with pytest.raises(Exception, match=r"CAST_INVALID_INPUT|CANNOT_PARSE"):
        rows.toArrow()


def test_no_files_are_no_records(spark: Any) -> None:
    assert images(spark, "file:///nowhere", FETCHED, COLUMNS).count() == 0


@pytest.mark.parametrize("deletes", ["soft", "hard"])
@pytest.mark.parametrize("mode", ["full", "records", "columns"])
def test_the_model_does_the_same(refresh: Refresher, mode: Mode, deletes: Deletes) -> None:
    """The model that ``test_silent_differences`` runs, and the job."""
    shape = random.Random(f"{mode} {deletes}")
    rows = {
        name: (dirty if shape.random() < 0.4 else stored)(name, shape.randint(5, 15)) for name in map(str, range(80))
    }
    for row in rows.values():
        row["_deleted"] = shape.random() < 0.2
    asked = {name: row["_sequence"] - (shape.random() < 0.2) for name, row in rows.items() if shape.random() < 0.7}
    known = asked if mode == "records" else [*asked, *map(str, range(90, 110))]
    there = {name: shape.choice(("false", "false", "true")) for name in known if shape.random() < 0.8}
    lines = [fetched(name, asked.get(name), _deleted=deleted, Amount__c="2.5") for name, deleted in there.items()]
    if mode == "records":
        lines += [missing(name, sequence) for name, sequence in asked.items() if name not in there]
    moved_on = shape.random() < 0.5
    found = refresh(rows.values(), lines, replace(FETCHED, mode=mode), deletes=deletes, moved_on=moved_on)
    values = {"Name": "new", "Amount__c": 2.5, "_refreshed_at": REFRESHED}
    records = {name: {**values, "_deleted": deleted == "true"} for name, deleted in there.items()}
    if mode == "full":
        options = {"hard": deletes == "hard", "moved_on": moved_on}
        refresh_all(rows, records, FETCHED.columns, FETCHED.applied_sequence, **options)
    elif mode == "records":
        refresh_listed(rows, asked, records, FETCHED.columns, hard=deletes == "hard")
    else:
        refresh_columns(rows, records, FETCHED.columns, FETCHED.applied_sequence)
    assert found == {name: dict.fromkeys(COLUMNS) | row for name, row in rows.items()}
