"""Difference of two versions of rows: what counts as equal."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_sfstream.tables.changes.table_changes import changed_rows

NAN = float("nan")
TYPES = {
    "text": pa.string(),
    "double": pa.float64(),
    "float": pa.float32(),
    "bytes": pa.binary(),
    "time": pa.timestamp("us", tz="UTC"),
    "struct": pa.struct([("a", pa.float64()), ("b", pa.struct([("c", pa.string())]))]),
    "list": pa.list_(pa.float64()),
    "structs": pa.list_(pa.struct([("a", pa.int32())])),
    "map": pa.map_(pa.string(), pa.float64()),
}
DIFFERENT: dict[str, list[Any]] = {
    "text": [None, "", "one", "None"],
    "double": [None, NAN, 0.0, -0.0, float("inf")],
    "float": [None, NAN, 0.5],
    "bytes": [None, b"", b"\xff"],
    "time": [None, 0, 1],
    "struct": [None, {"a": None, "b": None}, {"a": None, "b": {"c": None}}, {"a": NAN, "b": {"c": "d"}}, {"a": 1.0}],
    "list": [None, [], [None], [NAN], [1.0, 2.0], [2.0, 1.0]],
    "structs": [None, [], [None], [{"a": None}], [{"a": 1}]],
    "map": [None, [], [("k", None)], [("k", NAN)], [("l", 1.0)]],
}


def table(name: str, values: list[Any], first: int = 0) -> pa.Table:
    ids = [f"{first + number:03d}" for number in range(len(values))]
    return pa.table({"Id": ids, name: pa.array(values, TYPES[name])})


def changes(before: pa.Table, after: pa.Table) -> list[tuple[str, str]]:
    rows = changed_rows(before, after, ["Id"]).to_pylist()
    return [(row["Id"], row["_change_type"]) for row in rows]


@pytest.mark.parametrize("name", TYPES)
def test_equal_values_are_unchanged_and_all_others_are_changed(name: str) -> None:
    values = DIFFERENT[name]
    for shift in range(len(values)):
        expected = [(f"{number:03d}", "update_postimage") for number in range(len(values))] if shift else []
        assert changes(table(name, values), table(name, values[shift:] + values[:shift])) == expected


def test_rows_have_their_last_values_in_the_order_of_keys() -> None:
    before = pa.table({"Id": ["d", "a", "c", "b"], "n": [4, 1, 3, 2]})
    after = pa.table({"Id": ["e", "c", "b"], "n": [5, 30, 2]})
    assert changed_rows(before, after, ["Id"]).to_pylist() == [
        {"Id": "a", "n": 1, "_change_type": "delete"},
        {"Id": "c", "n": 30, "_change_type": "update_postimage"},
        {"Id": "d", "n": 4, "_change_type": "delete"},
        {"Id": "e", "n": 5, "_change_type": "insert"},
    ]


def test_a_side_may_be_empty_or_have_chunks() -> None:
    rows = table("text", ["one", "two"])
    chunks = pa.concat_tables([rows.slice(1), rows.slice(0, 1)])
    assert changes(rows, chunks) == changes(rows.slice(0, 0), rows.slice(0, 0)) == []
    assert changes(rows.slice(0, 0), chunks) == [("000", "insert"), ("001", "insert")]
    assert changes(chunks, rows.slice(0, 0)) == [("000", "delete"), ("001", "delete")]


def test_equal_rows_are_counted() -> None:
    one = table("text", ["one"])
    assert changes(one, pa.concat_tables([one, one, one])) == [("000", "insert"), ("000", "insert")]
    assert changes(pa.concat_tables([one, one]), one) == [("000", "delete")]
