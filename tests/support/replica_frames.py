"""Rows of the replica's model as DataFrames, and back."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from airflow_provider_sfstream.spark.decode.avro_columns import ColumnType
from airflow_provider_sfstream.spark.rows.replica_rows import CHANGE_ENVELOPE
from tests.support.replica_changes import batch_of, change_batch
from tests.support.replica_model import Row


def frame_of(spark: Any, folder: Path, rows: Sequence[Row], types: dict[str, ColumnType]) -> Any:
    """Return rows as a DataFrame, by way of a Parquet file, which every version of Spark reads alike."""
    return _frame(spark, folder, batch_of(rows, types))


def change_frame(spark: Any, folder: Path, changes: Iterable[Row], columns: dict[str, ColumnType]) -> Any:
    """Return the model's changes as change rows."""
    batch = change_batch(changes, columns)
    assert list(batch.schema.names) == list(CHANGE_ENVELOPE | columns)
    return _frame(spark, folder, batch)


def rows_of(frame: Any, names: Sequence[str]) -> list[Row]:
    """Return some columns of all rows as the model has them, times as numbers of microseconds."""
    from pyspark.sql import functions as f

    times = [field.name for field in frame.schema.fields if field.dataType.typeName() == "timestamp"]
    numbers = frame.select(*(f.unix_micros(name).alias(name) if name in times else name for name in names))
    return [row.asDict(recursive=True) for row in numbers.collect()]


def with_numbers(rows: Iterable[Row], names: Sequence[str]) -> list[Row]:
    """Return some columns of the model's rows, times as numbers of microseconds."""
    table = pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows])
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(pa.int64()))
    return table.to_pylist()


def _frame(spark: Any, folder: Path, batch: pa.RecordBatch) -> Any:
    path = folder / f"{uuid.uuid4().hex}.parquet"
    pa.parquet.write_table(pa.Table.from_batches([batch]), path)
    return spark.read.parquet(str(path))
