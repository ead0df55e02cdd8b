from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_sfstream.tables.delta import table_files
from airflow_provider_sfstream.tables.delta.table_files import PartitionFiles, window_of, write_rows
from airflow_provider_sfstream.tables.delta.table_location import TableLocation

ONE, TWO = date(2026, 1, 10), date(2026, 1, 11)
SCHEMA = pa.schema([("n", pa.int64()), ("event_date", pa.date32()), ("window_id", pa.string())])


def batch(*rows: tuple[int, date, str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def written(
    folder: Path, *batches: pa.RecordBatch, partition_by: tuple[str, ...] = ("event_date",)
) -> list[dict[str, Any]]:
    with PartitionFiles(TableLocation(str(folder))) as files:
        for each in batches:
            files.append("", each, partition_by)
        return [vars(file) for _, file in files.close()]


def test_each_partition_gets_a_file_of_its_own(tmp_path: Path) -> None:
    files = written(tmp_path, batch((1, ONE, "a"), (2, TWO, "a"), (3, ONE, "b")), batch((4, ONE, "a")))
    found = {
        file["path"].rpartition("/")[0]: (file["rows"], pq.ParquetFile(tmp_path / file["path"]).read().to_pydict())
        for file in files
    }
    assert found == {
        "event_date=2026-01-10/a": (2, {"n": [1, 4], "window_id": ["a", "a"]}),
        "event_date=2026-01-11/a": (1, {"n": [2], "window_id": ["a"]}),
        "event_date=2026-01-10/b": (1, {"n": [3], "window_id": ["b"]}),
    }
    assert {file["path"].partition("/")[0]: file["partition"] for file in files} == {
        f"event_date={day}": {"event_date": day} for day in ("2026-01-10", "2026-01-11")
    }
    assert all(file["size"] == (tmp_path / file["path"]).stat().st_size for file in files)
    assert {window_of(file["path"]) for file in files} == {"a", "b"}


def test_without_partition_columns_only_windows_have_folders(tmp_path: Path) -> None:
    (file,) = written(tmp_path, batch((1, ONE, "a"), (2, TWO, "a")), partition_by=())
    assert (file["path"].partition("/")[0], file["partition"], file["rows"]) == ("a", {}, 2)
    assert window_of(file["path"]) == "a"


def test_compacted_file_belongs_to_no_window() -> None:
    assert window_of("event_date=2026-01-10/part-1.parquet") is None
    assert window_of("part-1.parquet") is None


def test_no_files_are_written_without_rows(tmp_path: Path) -> None:
    assert written(tmp_path, batch()) == []
    assert list(tmp_path.iterdir()) == []


def test_buffered_rows_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "ROW_GROUP", 1000)
    batches = [batch(*((n, ONE, "a") for n in range(start, start + 40))) for start in range(0, 400, 40)]
    (summary,) = written(tmp_path, *batches)
    file = pq.ParquetFile(tmp_path / summary["path"])
    assert file.read().column("n").to_pylist() == list(range(400))
    assert 1 < file.num_row_groups <= 10


def test_open_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "_OPEN", 2)
    rows = [(n, ONE, f"w{n % 5}") for n in range(20)]
    files = written(tmp_path, *(batch(row) for row in rows))
    found = [row for file in files for row in pq.ParquetFile(tmp_path / file["path"]).read().to_pylist()]
    assert sorted((row["n"], row["window_id"]) for row in found) == [(n, window) for n, _, window in rows]
    assert len({file["path"] for file in files}) > 5


def test_failing_task_reports_no_file(tmp_path: Path) -> None:
    def fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield next(batches)
        raise RuntimeError("the executor is lost")

    with pytest.raises(RuntimeError, match="the executor is lost"):
        write_rows(TableLocation(str(tmp_path)), fails(iter([batch((1, ONE, "a"))])))
