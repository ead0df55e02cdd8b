"""Comparison of rows, one row for each record, and unique IDs."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from airflow_provider_sfstream.tables.rows import arrow_rows
from airflow_provider_sfstream.tables.rows.arrow_rows import are_equal, distinct, each_once


def test_record_fetched_twice_is_returned_once() -> None:
    rows = pa.RecordBatch.from_pydict({"Id": ["b", "a", "b", "c", "a"], "n": [1, 2, 3, 4, 5]})
    assert each_once(rows).to_pylist() == [{"Id": "b", "n": 1}, {"Id": "a", "n": 2}, {"Id": "c", "n": 4}]
    once = rows.slice(1, 3)
    assert each_once(once) is once


@pytest.mark.parametrize("sorts", [True, False])
def test_ids_of_many_chunks_are_returned_once_and_sorted(monkeypatch: pytest.MonkeyPatch, sorts: bool) -> None:
    monkeypatch.setattr(arrow_rows, "_SLICE", 3)
    monkeypatch.setattr(arrow_rows, "_SLICES", 2)
    monkeypatch.setattr(arrow_rows, "_MOST_SORTED", 1 << 30 if sorts else 0)
    shape = random.Random(1)
    for different in [1, 3, 50, 1_000] * 20:
        chunks = [
            [f"{shape.randrange(different):018}" for _ in range(shape.randrange(12))] for _ in range(shape.randrange(9))
        ]
        columns = [pa.chunked_array([chunk, chunk[:2]], pa.string()) for chunk in chunks[::2]]
        columns += [pa.array(chunk, pa.string()) for chunk in chunks[1::2]]
        expected = sorted({id_ for chunk in chunks for id_ in chunk})
        assert distinct(iter(columns)).equals(pa.array(expected, pa.string()))


def test_null_is_equal_to_null_and_to_nothing_else() -> None:
    one = pa.RecordBatch.from_pydict({"a": [1, None, None, 1, 2], "b": ["x", "x", None, None, "y"]})
    other = pa.RecordBatch.from_pydict({"a": [1, None, 0, 1, 3], "b": ["x", "x", None, "z", "y"]})
    assert are_equal(one, other, ["a", "b"]).to_pylist() == [True, True, False, False, False]
    assert are_equal(one, other, []).to_pylist() == [True] * 5


def test_structs_are_equal_only_where_both_are_null() -> None:
    one = pa.RecordBatch.from_pydict({"a": [{"x": 1}, None, None]})
    other = pa.RecordBatch.from_pydict({"a": [{"x": 1}, None, {"x": 1}]})
    assert are_equal(one, other, ["a"]).to_pylist() == [False, True, False]
