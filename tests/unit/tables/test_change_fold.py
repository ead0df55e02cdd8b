from __future__ import annotations

import itertools
import random
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_sfstream.tables.rows.change_fold import fold, folded_schema
from airflow_provider_sfstream.tables.rows.replica_columns import CHANGE_ENVELOPE
from tests.support import replica_model
from tests.support.replica_changes import COLUMNS, START, batch_of, change_batch, random_changes, set_words
from tests.support.replica_model import Row

FEW = {"Name": COLUMNS["Name"], "Tags__c": COLUMNS["Tags__c"], "Number1__c": COLUMNS["Number1__c"]}


def in_order(changes: list[Row]) -> list[Row]:
    return sorted(changes, key=lambda change: (change["Id"], change["_sequence"]))


def expected(changes: list[Row], columns: dict, *, hard: bool) -> list[Row]:
    """Return the model's fold of sorted changes, as rows of the folded schema."""
    groups = itertools.groupby(changes, key=lambda change: change["Id"])
    folded = [replica_model.fold(own, hard=hard) for _, own in groups]
    schema = folded_schema(columns)
    rows = [row | {"_set": set_words(row["_set"], columns)} for row in folded]
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema).to_pylist()


@st.composite
def some_changes(draw: st.DrawFn) -> tuple[list[Row], dict, bool]:
    columns = draw(st.sampled_from((COLUMNS, FEW)))
    shape = random.Random(draw(st.integers(0, 2**32)))
    records = [f"001{number}" for number in range(draw(st.integers(1, 6)))]
    changes = random_changes(shape, records, draw(st.integers(1, 40)), columns, disorder=5)
    fetched = {record: {"_refreshed_at": START + timedelta(seconds=shape.randrange(-9, 40))} for record in records[1:]}
    hard = draw(st.booleans())
    return in_order(replica_model.mark_included_changes(fetched, changes, hard=hard)), columns, hard


@given(some_changes())
@settings(max_examples=50)
def test_fold_equals_changes_applied_one_by_one(case: tuple[list[Row], dict, bool]) -> None:
    changes, columns, hard = case
    folded = fold(change_batch(changes, columns), columns, "hard" if hard else "soft")
    assert folded.schema == folded_schema(columns)
    assert folded.to_pylist() == expected(changes, columns, hard=hard)


def test_fold_of_no_changes_is_empty() -> None:
    assert len(fold(change_batch([], FEW), FEW, "soft")) == 0


def change(sequence: int, operation: str, set_: list[int] | None, **values: object) -> Row:
    return {"Id": "001", "_sequence": sequence, "_operation": operation, "_set": set_, **values}


@pytest.mark.parametrize("missing", [None, []])
def test_missing_bitmap_sets_no_field(missing: list[int] | None) -> None:
    rows = [change(1, "patch", [1], Name="kept"), change(2, "delete", missing)]
    (folded,) = fold(batch_of(rows, CHANGE_ENVELOPE | FEW), FEW, "soft").to_pylist()
    assert (folded["Name"], folded["_set"], folded["_deleted"], folded["_sequence"]) == ("kept", [1], True, 2)


def test_a_gap_sets_nothing_and_always_has_a_reason() -> None:
    rows = [change(1, "patch", [1], Name="known"), change(2, "gap", [7], Name="not how it changed")]
    (folded,) = fold(batch_of(rows, CHANGE_ENVELOPE | FEW), FEW, "soft").to_pylist()
    assert (folded["Name"], folded["_set"], folded["_dirty_reason"]) == ("known", [1], "gap")


def test_null_that_is_set_differs_from_null_that_is_not_set() -> None:
    rows = [change(1, "patch", [1], Name="first"), change(2, "patch", [5], Name=None, Number1__c=3)]
    (folded,) = fold(batch_of(rows, CHANGE_ENVELOPE | FEW), FEW, "soft").to_pylist()
    assert (folded["Name"], folded["Number1__c"], folded["Tags__c"], folded["_set"]) == (None, 3, None, [5])
