"""Statistics of table files. They must be true of all rows, because readers skip files by them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_sfstream.tables.delta import table_files
from airflow_provider_sfstream.tables.delta.table_files import ROW_GROUP, TableFileWriter
from airflow_provider_sfstream.tables.delta.table_location import TableLocation

TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "integer": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "text": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=80)),
    "moment": (pa.timestamp("us", tz="UTC"), st.datetimes(timezones=st.just(UTC))),
    "day": (pa.date32(), st.dates()),
    "number": (pa.float64(), st.floats(allow_nan=False)),
    "truth": (pa.bool_(), st.booleans()),
    "bytes": (pa.binary(), st.binary(max_size=8)),
    "struct": (pa.struct([("x", pa.int64())]), st.fixed_dictionaries({"x": st.integers(0, 9)})),
}
SCHEMA = pa.schema([(name, type_) for name, (type_, _) in TYPES.items()])
ROW = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in TYPES.items()})


def written(folder: Path, groups: list[list[dict[str, Any]]], schema: pa.Schema = SCHEMA) -> dict[str, Any]:
    """Write a file with these row groups, and return its statistics."""
    writer = TableFileWriter(TableLocation(str(folder)).filesystem(), "file.parquet", schema)
    for rows in groups:
        writer.append(pa.RecordBatch.from_pylist(rows, schema=schema))
        writer.flush()
    file = writer.close({"event_date": "2026-01-10"})
    rows = [row for group in groups for row in group]
    assert pq.ParquetFile(folder / file.path).read().num_rows == file.rows == len(rows)
    assert (file.size, file.partition) == ((folder / file.path).stat().st_size, {"event_date": "2026-01-10"})
    stats: dict[str, Any] = json.loads(file.stats)
    assert stats["numRecords"] == len(rows)
    return stats


def read(name: str, bound: Any) -> Any:
    """Return a bound in the type that a reader compares."""
    if name == "moment":
        return datetime.fromisoformat(bound)
    return date.fromisoformat(bound) if name == "day" else bound


@given(st.lists(st.lists(ROW, min_size=1, max_size=4), min_size=1, max_size=3))
def test_no_row_is_outside_the_statistics(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[dict[str, Any]]]
) -> None:
    stats = written(tmp_path_factory.mktemp("file"), groups)
    assert stats["minValues"].keys() == stats["maxValues"].keys()
    for name in SCHEMA.names:
        values = [row[name] for group in groups for row in group]
        if name in stats["nullCount"]:
            assert stats["nullCount"][name] == values.count(None)
        if name in stats["minValues"]:
            lowest, highest = (read(name, stats[key][name]) for key in ("minValues", "maxValues"))
            assert all(value is None or lowest <= value <= highest for value in values)


def test_statistics_have_bounds_and_null_counts(tmp_path: Path) -> None:
    rows: list[list[dict[str, Any]]] = [[{"integer": 3, "text": "b"}, {}], [{"integer": -1, "text": "a"}]]
    stats = written(tmp_path, rows)
    assert {name: (stats["minValues"][name], stats["maxValues"][name]) for name in ("integer", "text")} == {
        "integer": (-1, 3),
        "text": ("a", "b"),
    }
    assert (stats["nullCount"]["integer"], stats["nullCount"]["day"]) == (1, 3)
    assert "day" not in stats["minValues"], "a column of nulls has no bounds"


def test_bounds_of_long_texts_are_truncated_and_later_columns_have_none(tmp_path: Path) -> None:
    schema = pa.schema([(f"c{number}", pa.string()) for number in range(40)])
    stats = written(tmp_path, [[{f"c{number}": "x" * (65 if number == 1 else 64) for number in range(40)}]], schema)
    assert list(stats["minValues"]) == list(stats["nullCount"]) == [f"c{number}" for number in range(32)]
    assert stats["minValues"]["c1"] == "x" * 64
    assert stats["minValues"]["c1"] < "x" * 65 < stats["maxValues"]["c1"]
    (tmp_path / "long").mkdir()
    long = written(tmp_path / "long", [[{"c0": "x" * 10_000}]], schema)
    assert long["minValues"]["c0"] < "x" * 10_000 < long["maxValues"]["c0"]


def test_column_without_bounds_has_no_null_count(tmp_path: Path) -> None:
    """Readers treat a column with a null count and no bounds as a column of nulls."""
    stats = written(tmp_path, [[{"number": float("inf"), "bytes": b"x"}, {}]])
    assert {"number", "bytes"}.isdisjoint(stats["nullCount"].keys() | stats["minValues"].keys())
    assert stats["nullCount"]["day"] == 2


def test_table_file_buffer_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "ROW_GROUP", 1000)
    filesystem = TableLocation(str(tmp_path)).filesystem()
    writer = TableFileWriter(filesystem, "file.parquet", pa.schema([("n", pa.int64())]))
    for start in range(0, 400, 40):
        writer.append(pa.RecordBatch.from_pydict({"n": list(range(start, start + 40))}))
        assert writer.buffered <= 1000
    writer.close()
    assert 1 < pq.ParquetFile(tmp_path / "file.parquet").num_row_groups <= 10


def test_large_batch_is_written_in_row_groups_of_limited_size(tmp_path: Path) -> None:
    schema = pa.schema([("number", pa.int64()), ("bytes", pa.binary())])
    rows = 3 * ROW_GROUP // 1024
    batch = pa.RecordBatch.from_arrays([pa.array(range(rows)), pa.array([bytes(1024)] * rows)], schema=schema)
    writer = TableFileWriter(TableLocation(str(tmp_path)).filesystem(), "file.parquet", schema)
    writer.append(batch)
    file = writer.close()
    stored = pq.ParquetFile(tmp_path / file.path)
    groups = [stored.read_row_group(number) for number in range(stored.num_row_groups)]
    assert len(groups) > 1
    assert max(group.nbytes for group in groups) <= 1.5 * ROW_GROUP
    assert stored.read() == pa.Table.from_batches([batch])
    assert json.loads(file.stats)["minValues"] == {"number": 0}
    assert json.loads(file.stats)["maxValues"] == {"number": rows - 1}


def test_a_file_names_the_calendar_of_its_times(tmp_path: Path) -> None:
    """With this key, Spark reads times before 1900 in the calendar of Spark 3.0 and later."""
    schema = pa.schema([("n", pa.int64())], metadata={"own": "value"})
    writer = TableFileWriter(TableLocation(str(tmp_path)).filesystem(), "file.parquet", schema)
    for number in range(2):
        writer.append(pa.RecordBatch.from_pydict({"n": [number]}))
    writer.close()
    stored = pq.ParquetFile(tmp_path / "file.parquet")
    described = stored.metadata.metadata
    assert (described[b"org.apache.spark.version"], described[b"own"]) == (b"3.1.0", b"value")
    assert b"org.apache.spark.legacyDateTime" not in described
    again = TableFileWriter(TableLocation(str(tmp_path)).filesystem(), "again.parquet", stored.schema_arrow)
    for batch in stored.iter_batches():
        again.append(batch)
    again.append(pa.RecordBatch.from_pydict({"n": [2]}))
    again.close()
    rewritten = pq.ParquetFile(tmp_path / "again.parquet")
    assert rewritten.metadata.metadata.keys() == described.keys()
    assert rewritten.read()["n"].to_pylist() == [0, 1, 2]


def test_only_larger_files_are_compressed_with_zstd(tmp_path: Path) -> None:
    schema = pa.schema([("text", pa.string())])
    for count, compression in ((100, "SNAPPY"), (100_000, "ZSTD")):
        written(tmp_path, [[{"text": f"text {number % 9}"} for number in range(count)]], schema)
        column = pq.read_metadata(tmp_path / "file.parquet").row_group(0).column(0)
        assert column.compression == compression
        assert column.has_dictionary_page is (compression == "ZSTD")
