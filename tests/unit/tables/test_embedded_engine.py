"""Rows that the engine of the worker reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.runner.embedded import EmbeddedEngine


class LocalFiles:
    def table_location(self, url: str) -> TableLocation:
        return TableLocation(url)


def test_only_the_selected_columns_of_a_table_are_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"Id": ["a", "b"], "Name": ["one", "two"]}), tmp_path / "part.parquet")
    schema = pa.schema([("Id", pa.string()), ("Name", pa.string()), ("_dirty", pa.bool_())])
    files: Any = LocalFiles()
    rows = EmbeddedEngine(files, files, tmp_path).file_rows(str(tmp_path), ["part.parquet"], schema)
    assert [batch.schema.names for batch in rows.batches(("Id", "_dirty"))] == [["Id", "_dirty"]]
    assert rows.select("_dirty", "Id").collect() == [{"_dirty": None, "Id": "a"}, {"_dirty": None, "Id": "b"}]
    assert rows.select("Name").collect() == [{"Name": "one"}, {"Name": "two"}]
    assert rows.collect()[0] == {"Id": "a", "Name": "one", "_dirty": None}
