from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_sfstream.tables.rows.applied_changes import AppliedChanges
from airflow_provider_sfstream.tables.rows.replica_columns import CHANGE_ENVELOPE, TABLE_ENVELOPE
from tests.support.replica_changes import COLUMNS, START, batch_of
from tests.support.replica_model import Row

FEW = {"Name": COLUMNS["Name"], "Tags__c": COLUMNS["Tags__c"], "Number1__c": COLUMNS["Number1__c"]}
FORMER = {"Id": "001", "_deleted": False, "_dirty": False, "Name": "former", "Number1__c": 7}


def change(sequence: int, operation: str, set_: list[int] | None, **values: object) -> Row:
    return {"Id": "001", "_sequence": sequence, "_operation": operation, "_set": set_, "_commit_time": START, **values}


def rows_after(*changes: Row) -> list[Row]:
    base, rows = batch_of([FORMER], TABLE_ENVELOPE | FEW), batch_of(changes, CHANGE_ENVELOPE | FEW)
    applied = AppliedChanges(base, rows, "soft")
    rows_of_steps = applied.rows().to_pylist()
    assert applied.rows(last_only=True).to_pylist() == rows_of_steps[-1:]
    return rows_of_steps


@pytest.mark.parametrize("missing", [None, []])
def test_missing_bitmap_sets_no_field(missing: list[int] | None) -> None:
    *_, row = rows_after(change(1, "patch", [1], Name="kept"), change(2, "delete", missing))
    assert (row["Name"], row["Number1__c"], row["_deleted"], row["_sequence"]) == ("kept", 7, True, 2)


def test_a_gap_sets_nothing_and_always_has_a_reason() -> None:
    *_, row = rows_after(change(1, "patch", [1], Name="known"), change(2, "gap", [7], Name="not how it changed"))
    assert (row["Name"], row["Number1__c"], row["_dirty_reason"]) == ("known", 7, "gap")


def test_null_that_is_set_differs_from_null_that_is_not_set() -> None:
    *_, row = rows_after(change(1, "patch", [1], Name="first"), change(2, "patch", [3], Name=None, Tags__c=["a"]))
    assert (row["Name"], row["Number1__c"], row["Tags__c"]) == (None, 7, ["a"])


def test_changes_of_a_record_that_was_fetched_later_only_count_as_seen() -> None:
    later = START.replace(year=START.year + 1)
    base = batch_of([FORMER | {"_refreshed_at": later}], TABLE_ENVELOPE | FEW)
    applied = AppliedChanges(base, batch_of([change(3, "patch", [1], Name="old")], CHANGE_ENVELOPE | FEW), "soft")
    (row,) = applied.rows().to_pylist()
    assert (row["Name"], row["_sequence"]) == ("former", 3)


def test_a_fetch_of_a_deleted_row_hides_no_change_after_the_one_that_creates_the_record_again() -> None:
    base = FORMER | {"_deleted": True, "_refreshed_at": START + timedelta(minutes=2)}
    changes = [
        change(1, "patch", [1], Name="before the fetch"),
        change(2, "patch", [4], Number1__c=8, _commit_time=START + timedelta(minutes=3)),
        change(3, "patch", [1], Name="of a slow clock"),
    ]
    applied = AppliedChanges(batch_of([base], TABLE_ENVELOPE | FEW), batch_of(changes, CHANGE_ENVELOPE | FEW), "hard")
    *_, row = applied.rows().to_pylist()
    assert (row["Name"], row["Number1__c"], row["_deleted"], row["_sequence"]) == ("of a slow clock", 8, False, 3)
    assert row["_dirty_reason"] == "unknown_record"
