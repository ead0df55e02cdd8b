"""Rows of a piece of a table, read a row group at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.replica.pieces import Piece
from airflow_provider_sfstream.tables.rows.arrow_rows import as_batch, is_between
from airflow_provider_sfstream.tables.rows.merging import as_table


def stored_rows(location: TableLocation, piece: Piece, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the stored rows of a piece with the columns of a schema, ``Id`` among them; null where a file lacks one."""
    files = location.filesystem()
    for file in piece.files:
        with files.open_input_file(file.path) as source:
            stored = pq.ParquetFile(source, pre_buffer=True)
            names = [name for name in schema.names if name in stored.schema_arrow.names]
            for number in range(stored.num_row_groups):
                if piece.is_shared and _is_outside(stored.metadata.row_group(number), piece):
                    continue
                rows = as_table(as_batch(stored.read_row_group(number, names, use_threads=False)), schema)
                if piece.is_shared:
                    rows = rows.filter(is_between(rows["Id"], piece.after, piece.through))
                if len(rows):
                    yield rows
                del rows  # before the next are read


def _is_outside(group: pq.RowGroupMetaData, piece: Piece) -> bool:
    """Return whether the statistics of a row group show that it has no record of a piece."""
    columns = (group.column(place) for place in range(group.num_columns))
    found = next((column.statistics for column in columns if column.path_in_schema == "Id"), None)
    if found is None or not found.has_min_max:
        return False
    is_before = piece.after is not None and found.max <= piece.after
    return is_before or (piece.through is not None and found.min > piece.through)
