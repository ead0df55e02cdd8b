"""Statistics of table files: they hide no row from a reader that filters."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog
from airflow_provider_sfstream.tables.delta.table_files import TableFileWriter
from airflow_provider_sfstream.tables.delta.table_location import TableLocation

WIDTH = 40
"""Number of columns: more than the number of columns with statistics."""
VALUES: list[Any] = [
    *(True, False, 0, -5, 1 << 40, 1.5, -0.25, 1e300, "", "short", "n" * 64, "n" * 100, "ü" * 65, "x" * 20_000),
    *(date(1700, 1, 1), datetime(1700, 1, 1, 0, 0, 0, 1, tzinfo=UTC), datetime(2026, 1, 10, 1, 2, 3, 456_789, UTC)),
]
TYPES = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string(), date: pa.date32()}


def write(folder: Path, schema: pa.Schema, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Commit a table of one file; return its statistics."""
    folder.mkdir()
    log = DeltaTableLog(TableLocation(str(folder)))
    writer = TableFileWriter(log.location.filesystem(), "a.parquet", schema)
    for row in rows:
        writer.append(pa.RecordBatch.from_pylist([row], schema=schema))
        writer.flush()
    file = writer.close()
    log.commit(log.version(), schema, [file], [])
    stats: dict[str, Any] = json.loads(file.stats)
    return stats


def found(folder: Path, column: str, value: Any) -> list[int]:
    """Return the number of rows that each reader finds."""
    dataset = DeltaTable(str(folder)).to_pyarrow_dataset()
    (of_duckdb,) = duckdb.execute(f"SELECT count(*) FROM dataset WHERE {column} = ?", [value]).fetchone() or (0,)
    return [
        dataset.to_table(filter=ds.field(column) == pa.scalar(value)).num_rows,
        of_duckdb,
        pl.scan_delta(str(folder)).filter(pl.col(column) == value).collect().height,
        DeltaTable(str(folder)).to_pyarrow_table(filters=[(column, "=", value)]).num_rows,
    ]


@pytest.mark.parametrize("with_null", [False, True])
@pytest.mark.parametrize("value", VALUES, ids=lambda value: str(value)[:20])
def test_every_reader_finds_a_value_by_a_filter(tmp_path: Path, value: Any, with_null: bool) -> None:
    type_ = TYPES.get(type(value), pa.timestamp("us", "UTC"))
    schema = pa.schema([("id", pa.int64()), ("value", type_)])
    rows = [{"id": 1, "value": value}, *([{"id": 2}] if with_null else [])]
    stats = write(tmp_path / "t", schema, rows)
    assert found(tmp_path / "t", "value", value) == [1, 1, 1, 1]
    dataset = DeltaTable(str(tmp_path / "t")).to_pyarrow_dataset()
    assert dataset.to_table(filter=ds.field("value").is_null()).num_rows == with_null
    assert all(len(str(bound)) <= 65 for bound in (stats["minValues"]["value"], stats["maxValues"]["value"]))


def test_every_reader_finds_values_in_columns_without_statistics(tmp_path: Path) -> None:
    schema = pa.schema([(f"c{number}", pa.int64()) for number in range(WIDTH)])
    write(tmp_path / "t", schema, [{f"c{number}": number for number in range(WIDTH)}, {}])
    for number in (0, 31, 32, WIDTH - 1):
        assert found(tmp_path / "t", f"c{number}", number) == [1, 1, 1, 1], number


def test_data_frames_keep_large_integers_in_a_column_with_nulls(tmp_path: Path) -> None:
    """The test uses the call of the guides; by default, pandas converts the integer to a float."""
    integer = 2**53 + 1
    write(tmp_path / "t", pa.schema([("id", pa.int64())]), [{"id": integer}, {}])
    table = DeltaTable(str(tmp_path / "t"))
    assert table.to_pandas(types_mapper=pd.ArrowDtype)["id"].tolist() == [integer, pd.NA]
    assert table.to_pyarrow_table().to_pandas(types_mapper=pd.ArrowDtype)["id"].tolist() == [integer, pd.NA]
    assert table.to_pandas()["id"].tolist()[0] == integer - 1
