"""Comparison of rows, one row for each record, and landed rows to decode at a time."""

from __future__ import annotations

import pyarrow as pa

from airflow_provider_sfstream.tables.rows.arrow_rows import are_equal, decoded_at_once, each_once


def test_record_fetched_twice_is_returned_once() -> None:
    rows = pa.RecordBatch.from_pydict({"Id": ["b", "a", "b", "c", "a"], "n": [1, 2, 3, 4, 5]})
    assert each_once(rows).to_pylist() == [{"Id": "b", "n": 1}, {"Id": "a", "n": 2}, {"Id": "c", "n": 4}]
    once = rows.slice(1, 3)
    assert each_once(once) is once


def test_null_is_equal_to_null_and_to_nothing_else() -> None:
    one = pa.RecordBatch.from_pydict({"a": [1, None, None, 1, 2], "b": ["x", "x", None, None, "y"]})
    other = pa.RecordBatch.from_pydict({"a": [1, None, 0, 1, 3], "b": ["x", "x", None, "z", "y"]})
    assert are_equal(one, other, ["a", "b"]).to_pylist() == [True, True, False, False, False]
    assert are_equal(one, other, []).to_pylist() == [True] * 5


def test_structs_are_equal_only_where_both_are_null() -> None:
    one = pa.RecordBatch.from_pydict({"a": [{"x": 1}, None, None]})
    other = pa.RecordBatch.from_pydict({"a": [{"x": 1}, None, {"x": 1}]})
    assert are_equal(one, other, ["a"]).to_pylist() == [False, True, False]


def test_landed_rows_are_decoded_in_parts_by_payload_and_number_of_columns() -> None:
    def lengths(count: int, payload: int, columns: int) -> list[int]:
        rows = pa.RecordBatch.from_pydict({"payload": [b"x" * payload] * count})
        return [len(part) for part in decoded_at_once(rows, columns, 1 << 20)]

    assert lengths(20_000, 4, 0) == [8_192, 8_192, 3_616]
    assert lengths(20_000, 4, 1_000) == [*[130] * 153, 110], "null values take memory too"
    assert lengths(3, 1 << 20, 0) == [1, 1, 1]
    assert lengths(0, 0, 10) == []
