from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_sfstream.spark.storage import arrow_files
from airflow_provider_sfstream.spark.storage.arrow_files import write_files

ONE, TWO = date(2026, 1, 10), date(2026, 1, 11)
SCHEMA = pa.schema([("n", pa.int64()), ("event_date", pa.date32()), ("window_id", pa.string())])


def batch(*rows: tuple[int, date, str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def as_they_are(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def test_each_partition_gets_a_file_without_its_partition_columns(tmp_path: Path) -> None:
    batches = [batch((1, ONE, "a"), (2, TWO, "a"), (3, ONE, "b")), batch((4, ONE, "a"))]
    (written,) = write_files(as_they_are, str(tmp_path))(iter(batches))
    found = {
        (row["event_date"], row["window_id"]): (row["rows"], pq.read_table(tmp_path / row["name"]).to_pydict())
        for row in written.to_pylist()
    }
    assert found == {
        (ONE, "a"): (2, {"n": [1, 4]}),
        (TWO, "a"): (1, {"n": [2]}),
        (ONE, "b"): (1, {"n": [3]}),
    }


def test_no_rows_give_no_files(tmp_path: Path) -> None:
    (written,) = write_files(as_they_are, str(tmp_path))(iter([batch()]))
    assert len(written) == 0
    assert list(tmp_path.iterdir()) == []


def test_what_is_held_back_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_files, "_BUFFERED", 1000)
    batches = [batch(*((n, ONE, "a") for n in range(start, start + 40))) for start in range(0, 400, 40)]
    (written,) = write_files(as_they_are, str(tmp_path))(iter(batches))
    file = pq.ParquetFile(tmp_path / written.to_pylist()[0]["name"])
    assert file.read().to_pydict() == {"n": list(range(400))}
    assert 1 < file.num_row_groups <= 10


def test_a_failing_task_names_no_file(tmp_path: Path) -> None:
    def fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield next(batches)
        raise RuntimeError("the executor is lost")

    with pytest.raises(RuntimeError, match="the executor is lost"):
        list(write_files(fails, str(tmp_path))(iter([batch((1, ONE, "a"))])))
