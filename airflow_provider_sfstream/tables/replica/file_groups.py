"""File groups of a table: the records of a range of IDs, and the files that can contain them; and their rows.

The files that this package writes have disjoint ID ranges. Each is a file group, so the change of a record rewrites one
file. Salesforce assigns IDs in order, so new records belong to the last group. Files that other programs wrote may
overlap; overlapping files form one group until it is rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_sfstream.tables.decode.arrow_columns import as_table
from airflow_provider_sfstream.tables.delta.delta_table import TableFile
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.rows.arrow_rows import as_batch, distinct, is_between
from airflow_provider_sfstream.tables.rows.shuffle import SMALL, ShuffleBlocks, unpacked
from airflow_provider_sfstream.tables.rows.shuffle import blocks as send_blocks

Id = TypeVar("Id", str, int)
TARGET_ROWS = 2_000_000
"""Most rows of a file, regardless of their size."""


@dataclass(frozen=True)
class FileGroup:
    """File group: the records with IDs greater than ``after`` (``None``: no lower bound) and at most ``through``
    (``None``: no upper bound).

    :param is_shared: whether one of its files has records of another group, so that both groups must be rewritten.
    """

    after: str | None
    through: str | None
    files: tuple[TableFile, ...] = ()
    is_shared: bool = False

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.size for file in self.files)


def file_groups_of_table(files: Mapping[str, Mapping[str, Any]], more: Iterable[str] = ()) -> tuple[FileGroup, ...]:
    """Return the file groups of a table, in the order of IDs. They cover all IDs, even if the table has no files.

    :param files: the live files by path, as in ``TableVersion``.
    :param more: additional IDs at which a group must end.
    """
    groups = _groups(files)
    ends = sorted({*(last for _, last, _ in groups[:-1] if last is not None), *more})
    file_groups = []
    for after, through in pairwise([None, *ends, None]):
        overlapping = [group for group in groups if _meets(group, after, through)]
        is_shared = any(not _is_inside(group, after, through) for group in overlapping)
        file_groups.append(
            FileGroup(after, through, tuple(file for _, _, members in overlapping for file in members), is_shared)
        )
    return tuple(file_groups)


def ends_of(file_groups: Sequence[FileGroup]) -> tuple[str, ...]:
    """Return the last ID of every file group but the last one."""
    return tuple(file_group.through for file_group in file_groups if file_group.through is not None)


def parts(size: float, rows: int, target: int) -> int:
    """Return the number of files for some bytes and rows. A file above 1.5 times its target size is split."""
    by_size = round(size / target) if size > 1.5 * target else 1
    return max(1, by_size, -(-rows // TARGET_ROWS))


def quantiles(ids: Sequence[Id], count: int) -> list[Id]:
    """Return the IDs that divide these into ``count`` ranges of about equal size; fewer if there are few IDs.

    :param ids: sorted IDs, or their indexes.
    """
    places = [len(ids) * number // count - 1 for number in range(1, count)]
    return sorted({ids[place] for place in places if 0 <= place < len(ids) - 1})


_Group = tuple[str | None, str | None, list[TableFile]]


def _groups(files: Mapping[str, Mapping[str, Any]]) -> list[_Group]:
    """Return overlapping files together, with their first and last ID (``None``: not known), in order."""
    members = {path: TableFile(path, file["size_bytes"], file["num_records"] or 0) for path, file in files.items()}
    ranges = {path: (file.get("min.Id"), file.get("max.Id")) for path, file in files.items()}
    id_ranges = [
        (first, last, path) for path, (first, last) in ranges.items() if first is not None and last is not None
    ]
    if len(id_ranges) < len(files):
        return [(None, None, list(members.values()))]
    groups: list[tuple[str, str, list[TableFile]]] = []
    for first, last, path in sorted(id_ranges):
        if groups and first <= groups[-1][1]:
            earliest, latest, group_files = groups[-1]
            groups[-1] = (earliest, max(latest, last), [*group_files, members[path]])
        else:
            groups.append((first, last, [members[path]]))
    return list(groups)


def _meets(group: _Group, after: str | None, through: str | None) -> bool:
    first, last, _ = group
    return (after is None or last is None or last > after) and (through is None or first is None or first <= through)


def _is_inside(group: _Group, after: str | None, through: str | None) -> bool:
    first, last, _ = group
    begins = after is None or (first is not None and first > after)
    return begins and (through is None or (last is not None and last <= through))


def stored_rows(location: TableLocation, file_group: FileGroup, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the stored rows of a file group with a schema's columns, ``Id`` among them; null if a file lacks one."""
    files = location.filesystem()
    for file in file_group.files:
        with files.open_input_file(file.path) as source:
            is_small = file.size <= SMALL  # on an object store, reading it as a whole is one request instead of three
            stored = pq.ParquetFile(pa.BufferReader(source.read()) if is_small else source, pre_buffer=not is_small)
            for number in range(stored.num_row_groups):
                if file_group.is_shared and _is_outside(stored.metadata.row_group(number), file_group):
                    continue
                rows = as_table(as_batch(stored.read_row_group(number, schema.names, use_threads=False)), schema)
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
    file_group: FileGroup, number: int, blocks: ShuffleBlocks, batch_bytes: int
) -> Iterator[tuple[FileGroup, list[pa.Table]]]:
    """Yield a file group with its incoming rows, or one ID range after another if these exceed ``batch_bytes``."""
    count = -(-blocks.size(number) // batch_bytes)
    ids = (unpacked(content, ["Id"])["Id"] for content in blocks.read(number))
    ends = divided_ids(distinct(ids), count) if count > 1 else []
    with _by_range(blocks, number, ends, batch_bytes) if ends else nullcontext(blocks) as range_blocks:
        for place, (after, through) in enumerate(pairwise([file_group.after, *ends, file_group.through])):
            key = place if ends else number
            tables = [unpacked(content) for content in range_blocks.read(key)]
            range_blocks.forget(key)
            yield replace(file_group, after=after, through=through, is_shared=True) if ends else file_group, tables


def _by_range(blocks: ShuffleBlocks, number: int, ends: Sequence[str], batch_bytes: int) -> ShuffleBlocks:
    """Return the incoming rows of a file group, divided at some IDs. All are read once, for any number of ranges."""
    divided = ShuffleBlocks()
    try:
        batches = (batch for content in blocks.read(number) for batch in unpacked(content).to_batches())
        for block_batch in send_blocks(iter, ends, batch_bytes)(batches):
            divided.add(block_batch)
    except BaseException:
        divided.__exit__()
        raise
    blocks.forget(number)
    return divided


def divided_ids(ids: pa.Array, count: int) -> list[str]:
    """Return the IDs that divide these sorted IDs into ranges of about equal size."""
    return [str(ids[place]) for place in quantiles(range(len(ids)), count)]
