"""Rows of a file group: stored rows, one row group at a time, and incoming rows, one ID range at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_sfstream.tables.decode.arrow_columns import as_table
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.replica.file_groups import FileGroup, quantiles
from airflow_provider_sfstream.tables.rows.arrow_rows import as_batch, distinct, is_between
from airflow_provider_sfstream.tables.rows.shuffle import ShuffleBlocks, unpacked
from airflow_provider_sfstream.tables.rows.shuffle import blocks as send_blocks


def stored_rows(location: TableLocation, file_group: FileGroup, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the stored rows of a file group with a schema's columns, ``Id`` among them; null if a file lacks one."""
    files = location.filesystem()
    for file in file_group.files:
        with files.open_input_file(file.path) as source:
            stored = pq.ParquetFile(source, pre_buffer=True)
            names = [name for name in schema.names if name in stored.schema_arrow.names]
            for number in range(stored.num_row_groups):
                if file_group.is_shared and _is_outside(stored.metadata.row_group(number), file_group):
                    continue
                rows = as_table(as_batch(stored.read_row_group(number, names, use_threads=False)), schema)
                if file_group.is_shared:
                    rows = rows.filter(is_between(rows["Id"], file_group.after, file_group.through))
                if len(rows):
                    yield rows
                del rows  # release before the next read


def _is_outside(group: pq.RowGroupMetaData, file_group: FileGroup) -> bool:
    """Return whether the statistics of a row group show that it has no record of a file group."""
    columns = (group.column(place) for place in range(group.num_columns))
    statistics = next((column.statistics for column in columns if column.path_in_schema == "Id"), None)
    if statistics is None or not statistics.has_min_max:
        return False
    is_before = file_group.after is not None and statistics.max <= file_group.after
    return is_before or (file_group.through is not None and statistics.min > file_group.through)


def ranges_of(
    file_group: FileGroup, number: int, blocks: ShuffleBlocks, most_bytes: int
) -> Iterator[tuple[FileGroup, list[pa.Table]]]:
    """Yield a file group with its incoming rows, or one ID range after another if these exceed ``most_bytes``.

    :param number: number of the file group.
    """
    count = -(-blocks.size(number) // most_bytes)
    ids = [unpacked(content, ["Id"])["Id"] for content in blocks.read(number)] if count > 1 else []
    ends = divided_ids(distinct(ids), count) if count > 1 else []
    del ids
    with _by_range(blocks, number, ends) if ends else nullcontext(blocks) as range_blocks:
        for place, (after, through) in enumerate(pairwise([file_group.after, *ends, file_group.through])):
            key = place if ends else number
            tables = [unpacked(content) for content in range_blocks.read(key)]
            range_blocks.forget(key)
            yield replace(file_group, after=after, through=through, is_shared=True) if ends else file_group, tables


def _by_range(blocks: ShuffleBlocks, number: int, ends: Sequence[str]) -> ShuffleBlocks:
    """Return the incoming rows of a file group, divided at some IDs. All are read once, for any number of ranges."""
    divided = ShuffleBlocks()
    try:
        contents = (unpacked(content) for content in blocks.read(number))
        for block_batch in send_blocks(lambda batches: batches, ends)(
            batch for rows in contents for batch in rows.to_batches()
        ):
            divided.add(block_batch)
    except BaseException:
        divided.__exit__()
        raise
    blocks.forget(number)
    return divided


def divided_ids(ids: pa.Array, count: int) -> list[str]:
    """Return the IDs that divide these sorted IDs into ranges of about equal size."""
    return [str(ids[place]) for place in quantiles(range(len(ids)), count)]
