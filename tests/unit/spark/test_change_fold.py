from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_sfstream.spark.rows.change_fold import compose, fold, folded_rows, folded_schema
from airflow_provider_sfstream.spark.rows.replica_rows import CHANGE_ENVELOPE
from tests.support import replica_model
from tests.support.examples import for_examples
from tests.support.replica_changes import COLUMNS, START, batch_of, change_batch, random_changes, set_words
from tests.support.replica_model import Row

FEW = {"Name": COLUMNS["Name"], "Tags__c": COLUMNS["Tags__c"], "Number1__c": COLUMNS["Number1__c"]}


def in_order(changes: list[Row]) -> list[Row]:
    return sorted(changes, key=lambda change: (change["Id"], change["_sequence"]))


def expected(changes: list[Row], columns: dict) -> list[Row]:
    """Return what the model folds sorted changes to, as rows of the folded schema."""
    groups = itertools.groupby(changes, key=lambda change: change["Id"])
    folded = [replica_model.fold(own) for _, own in groups]
    schema = folded_schema(columns)
    rows = [row | {"_set": set_words(row["_set"], columns)} for row in folded]
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema).to_pylist()


@st.composite
def some_changes(draw: st.DrawFn) -> tuple[list[Row], dict]:
    columns = draw(st.sampled_from((COLUMNS, FEW)))
    shape = random.Random(draw(st.integers(0, 2**32)))
    records = [f"001{number}" for number in range(draw(st.integers(1, 6)))]
    changes = random_changes(shape, records, draw(st.integers(1, 40)), columns, disorder=5)
    fetched = {record: {"_refreshed_at": START + timedelta(seconds=shape.randrange(-9, 40))} for record in records[1:]}
    return in_order(replica_model.with_seen(fetched, changes)), columns


@given(some_changes())
@settings(max_examples=50)
def test_a_fold_is_what_one_change_after_another_gives(given_: tuple[list[Row], dict]) -> None:
    changes, columns = given_
    folded = fold(change_batch(changes, columns), columns)
    assert folded.schema == folded_schema(columns)
    assert folded.to_pylist() == expected(changes, columns)


@for_examples(some_changes(), st.data(), few=12, many=60)
def test_batches_may_be_cut_anywhere(given_: tuple[list[Row], dict], data: st.DataObject) -> None:
    changes, columns = given_
    whole = change_batch(changes, columns)
    cuts = sorted({0, len(changes), *data.draw(st.lists(st.integers(0, len(changes))))})
    parts = [whole.slice(one, other - one) for one, other in itertools.pairwise(cuts)]
    rows = [row for batch in folded_rows(columns)(iter([*parts, whole.slice(0, 0)])) for row in batch.to_pylist()]
    assert rows == expected(changes, columns)


@for_examples(some_changes(), st.integers(0, 41), few=25, many=60)
def test_folds_of_earlier_and_later_changes_compose(given_: tuple[list[Row], dict], cut: int) -> None:
    changes, columns = given_
    halves = [[c for c in changes if c["_sequence"] <= cut], [c for c in changes if c["_sequence"] > cut]]
    folded = [row for half in halves if half for row in fold(change_batch(half, columns), columns).to_pylist()]
    folded.sort(key=lambda row: (row["Id"], row["_sequence"]))
    composed = compose(pa.RecordBatch.from_pylist(folded, folded_schema(columns)), columns)
    assert composed.to_pylist() == expected(changes, columns)


def test_nothing_comes_of_nothing() -> None:
    assert list(folded_rows(FEW)(iter([]))) == []
    assert len(fold(change_batch([], FEW), FEW)) == 0


def change(sequence: int, operation: str, set_: list[int] | None, **values: object) -> Row:
    return {"Id": "001", "_sequence": sequence, "_operation": operation, "_set": set_, **values}


@pytest.mark.parametrize("missing", [None, []])
def test_a_set_that_is_missing_sets_nothing(missing: list[int] | None) -> None:
    rows = [change(1, "patch", [1], Name="kept"), change(2, "delete", missing)]
    (folded,) = fold(batch_of(rows, CHANGE_ENVELOPE | FEW), FEW).to_pylist()
    assert (folded["Name"], folded["_set"], folded["_deleted"], folded["_sequence"]) == ("kept", [1], True, 2)


def test_a_gap_sets_nothing_and_always_has_a_reason() -> None:
    rows = [change(1, "patch", [1], Name="known"), change(2, "gap", [7], Name="not how it changed")]
    (folded,) = fold(batch_of(rows, CHANGE_ENVELOPE | FEW), FEW).to_pylist()
    assert (folded["Name"], folded["_set"], folded["_dirty_reason"]) == ("known", [1], "gap")


def test_null_that_is_set_differs_from_null_that_is_not() -> None:
    rows = [change(1, "patch", [1], Name="first"), change(2, "patch", [5], Name=None, Number1__c=3)]
    (folded,) = fold(batch_of(rows, CHANGE_ENVELOPE | FEW), FEW).to_pylist()
    assert (folded["Name"], folded["Number1__c"], folded["Tags__c"], folded["_set"]) == (None, 3, None, [5])


def test_a_record_with_very_many_changes_takes_no_more_memory_than_a_batch() -> None:
    many, size = 100_000, 10_000
    before = pa.total_allocated_bytes()
    highest = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal highest
        yield batch_of([change(1, "full", [7], Id="000", Name="other")], CHANGE_ENVELOPE | FEW)
        for first in range(0, many, size):
            rows = [
                change(n, "patch", [1 << n % 3], Name=f"{n} " * 5, Number1__c=n) for n in range(first, first + size)
            ]
            batch = batch_of(rows, CHANGE_ENVELOPE | FEW)
            yield batch
            highest = max(highest, pa.total_allocated_bytes() - before - batch.nbytes)
        yield batch_of([change(1, "delete", None, Id="002")], CHANGE_ENVELOPE | FEW)

    folded = [row for batch in folded_rows(FEW)(batches()) for row in batch.to_pylist()]
    assert [row["Id"] for row in folded] == ["000", "001", "002"]
    assert (folded[1]["_sequence"], folded[1]["_set"], folded[1]["Tags__c"]) == (many - 1, [7], None)
    assert (folded[1]["Name"], folded[1]["Number1__c"]) == ("99999 " * 5, 99_998)
    assert highest < 8 << 20
