"""Rows of a table that changed between two of its Delta versions, from the files that only one of them has.

Files are compared group by group: those of one range of record IDs in a replica, those of one partition elsewhere. The
rows of a group that exceeds the memory limit are divided by a temporary file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.exceptions import LandingError
from airflow_provider_sfstream.tables.changes.changed_files import ChangedFiles, Since, StoredFiles, changed_files
from airflow_provider_sfstream.tables.decode.arrow_columns import record_batch
from airflow_provider_sfstream.tables.replica.file_groups import divided_ids, file_groups_of_table
from airflow_provider_sfstream.tables.rows.arrow_rows import Numbers, as_batch, distinct, is_true, split
from airflow_provider_sfstream.tables.rows.event_batches import Batches
from airflow_provider_sfstream.tables.rows.shuffle import Spool, file_groups_of, packed, unpacked
from airflow_provider_sfstream.tables.runner.embedded import part_batches
from airflow_provider_sfstream.tables.runner.engine import JobFiles

CHANGE_TYPE = "_change_type"
"""Column of Delta's change data feed: ``insert``, ``update_postimage`` or ``delete``."""
_TYPES = pa.array(["delete", "insert", "update_postimage"])
_MOST_BYTES = 32 << 20
"""Bytes of rows, in Arrow, to compare at a time. The comparison needs several times as much memory."""
_Group: TypeAlias = tuple[StoredFiles, StoredFiles]
"""Files of the earlier and of the later version whose rows can have equal keys."""


@dataclass(frozen=True)
class TableChanges:
    """Changed rows of a table, as an Arrow stream: ``pyarrow.table(changes)``, ``polars.DataFrame(changes)``, and
    ``changes`` as a table in DuckDB's SQL. Each use reads the files again.

    :param table: name of the table.
    :param schema: Arrow schema: the columns of the table, and ``_change_type``.
    :param key: names of the columns that identify a row: ``("Id",)`` in a replica, ``("Id", "_sequence",
        "_valid_from")`` in a history, ``("window_id", "_ordinal")`` in an event log.
    :param version: Delta version of the table after these changes; -1 for a replica's table that has no version yet.
    :param next_since: text to store with the changes, and to pass as ``since`` the next time.
    """

    table: str
    schema: pa.Schema
    key: tuple[str, ...]
    version: int
    next_since: str
    _batches: Callable[[], Batches] = field(repr=False, compare=False)

    def batches(self) -> Batches:
        """Return the changed rows as record batches. A row of the table is in them at most once.

        :raises LandingError: if a file cannot be read. The batches before are then not all changes: undo them.
        """
        return self._batches()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return pa.RecordBatchReader.from_batches(self.schema, self.batches()).__arrow_c_stream__(requested_schema)


def read_table_changes(files: JobFiles, base: str, table: str, since: Since) -> TableChanges:
    """Return the changes of a table since a version, as :func:`changed_files`. No row is read yet."""
    changed = changed_files(files, base, table, since)
    return TableChanges(
        table=table,
        schema=with_change_types(changed.schema),
        key=changed.key,
        version=changed.number,
        next_since=changed.next_since,
        _batches=partial(_changes, changed),
    )


def _changes(files: ChangedFiles) -> Batches:
    groups = _id_groups(files) if files.key == ("Id",) else _partitions(files)
    try:
        for former, new in groups:
            if former and new:
                yield from _compared(files, (former, new))
            else:
                for rows in _rows(files, former or new, files.schema):
                    yield _typed(rows, pa.repeat("delete" if former else "insert", len(rows)))
    except OSError as error:
        raise LandingError(
            f"A file of {files.location.uri} cannot be read: {error}. The rows read so far are not all changes: undo "
            "them, and read the changes again, with the same since."
        ) from error


def _id_groups(files: ChangedFiles) -> Iterator[_Group]:
    """Yield the files whose ranges of IDs overlap."""
    for group in file_groups_of_table({**files.removed, **files.added}):
        paths = [file.path for file in group.files]
        former, new = ({path: side[path] for path in paths if path in side} for side in (files.removed, files.added))
        yield former, new


def _partitions(files: ChangedFiles) -> Iterator[_Group]:
    """Yield the files of each value of the partition column, or all files if there is none."""
    groups: dict[Any, tuple[dict[str, Mapping[str, Any]], dict[str, Mapping[str, Any]]]] = {}
    for number, side in enumerate((files.removed, files.added)):
        for path, file in side.items():
            groups.setdefault(file.get("partition.event_date"), ({}, {}))[number][path] = file
    yield from groups.values()


def _rows(files: ChangedFiles, chosen: StoredFiles, schema: pa.Schema) -> Batches:
    """Yield the rows of some files with the columns of a schema, null if a file lacks one."""
    filesystem = files.location.filesystem()
    for path, file in chosen.items():
        with filesystem.open_input_file(path) as source:
            for batch in part_batches(source, schema.names):
                values = dict(zip(batch.schema.names, batch.columns, strict=True))
                for name in set(schema.names) - values.keys():
                    if (value := file.get(f"partition.{name}")) is not None:
                        values[name] = pa.repeat(pa.scalar(value, schema.field(name).type), len(batch))
                yield record_batch(values, schema, len(batch))


def _compared(files: ChangedFiles, group: _Group) -> Batches:
    read = ((side, rows) for side, chosen in enumerate(group) for rows in _rows(files, chosen, files.schema))
    in_memory: list[tuple[int, pa.RecordBatch]] = []
    size = 0
    for side, rows in read:
        in_memory.append((side, rows))
        size += rows.nbytes
        if size > _MOST_BYTES:
            break
    else:
        yield from _changed(files, in_memory)
        return
    total = sum(file["num_records"] or 0 for chosen in group for file in chosen.values())
    part_of = _division(files, group, 1 + size * total // sum(len(rows) for _, rows in in_memory) // _MOST_BYTES)
    with Spool[int]() as former, Spool[int]() as new:
        spools = former, new
        # Each batch is removed from the list, to free its memory.
        for side, rows in chain((in_memory.pop() for _ in range(len(in_memory))), read):
            for part, part_rows in split(rows, part_of(rows)):
                spools[side].add(part, packed(part_rows))
        for part in sorted({*former.keys, *new.keys}):
            stored = ((side, unpacked(content)) for side in (0, 1) for content in spools[side].read(part))
            yield from _changed(files, [(side, as_batch(rows)) for side, rows in stored])


def _division(files: ChangedFiles, group: _Group, parts: int) -> Callable[[pa.RecordBatch], Numbers]:
    """Return a function that returns the part of each row, the same for equal rows and, in a replica, equal IDs."""
    if files.key[0] != "Id":
        return lambda rows: rows[files.key[-1]].to_numpy() % parts
    schema = pa.schema([files.schema.field("Id")])
    ends = divided_ids(distinct(rows["Id"] for chosen in group for rows in _rows(files, chosen, schema)), parts)
    return lambda rows: file_groups_of(rows["Id"], ends)


def _changed(files: ChangedFiles, rows: Sequence[tuple[int, pa.RecordBatch]]) -> Batches:
    """Yield the changed rows among those of the earlier version (0) and the later one (1)."""
    former, new = (
        pa.Table.from_batches([rows for each, rows in rows if each == side], files.schema) for side in (0, 1)
    )
    if len(changed := changed_rows(former, new, files.key)):
        yield changed


def with_change_types(schema: pa.Schema) -> pa.Schema:
    """Return the schema of changed rows."""
    return schema.append(pa.field(CHANGE_TYPE, pa.string()))


def changed_rows(before: pa.Table, after: pa.Table, key: Sequence[str]) -> pa.RecordBatch:
    """Return the rows that only one version has, in the order of their keys.

    A deleted row has its last values. Rows are equal if all values are: null equals null, and floats are compared by
    their bits, so NaN equals NaN.

    :param before: rows of the earlier version, in any order; ``after``: those of the later one, with the same schema.
    :param key: columns that identify a row in a version.
    """
    rows = as_batch(pa.concat_tables([before, after]))
    places = _places_of_one_version(rows, len(before))
    is_after = places >= len(before)
    keys = rows.select(list(key)).take(pa.array(places)).append_column("is_after", pa.array(is_after))
    order = pc.sort_indices(keys, [(name, "ascending") for name in keys.schema.names]).to_numpy()
    places, is_after = places[order], is_after[order]
    # Of the two rows of a changed record, the former directly precedes the new one.
    is_former = np.append(~is_after[:-1] & is_after[1:], False) if len(places) else np.zeros(0, bool)
    for name in key:
        values = keys[name].take(pa.array(order))
        is_former[:-1] &= is_true(pc.equal(values[:-1], values[1:]))
    types = is_after.astype(np.int8) + np.roll(is_former, 1)
    return _typed(rows.take(pa.array(places[~is_former])), _TYPES.take(types[~is_former]))


def _places_of_one_version(rows: pa.RecordBatch, former: int) -> Numbers:
    """Return the places of the rows that one version has more often than the other. The first ``former`` rows are those
    of the earlier version."""
    columns = [flat for column in rows.columns for flat in _flat(column)]
    names = [str(number) for number in range(len(columns))]
    sides = np.repeat([-1, 1], [former, len(rows) - former])
    table = pa.table([*columns, sides, np.arange(len(rows))], names=[*names, "side", "place"])
    totals = [("side", "sum"), ("place", "min"), ("place", "max")]
    counted = table.group_by(names, use_threads=False).aggregate(totals)
    counted = counted.filter(pc.not_equal(counted["side_sum"], 0))
    surplus = counted["side_sum"].to_numpy()
    places = np.where(surplus > 0, counted["place_max"].to_numpy(), counted["place_min"].to_numpy())
    return np.repeat(places, np.abs(surplus))


def _flat(column: pa.Array) -> Iterator[pa.Array]:
    """Yield columns by whose values rows can be grouped, and that are equal exactly if the values are."""
    if pa.types.is_struct(column.type):
        yield column.is_valid()
        for number in range(column.type.num_fields):
            yield from _flat(pc.struct_field(column, number))
    elif pa.types.is_nested(column.type):
        yield pa.array([None if value is None else repr(value) for value in column.to_pylist()], pa.string())
    elif pa.types.is_floating(column.type):
        yield column.view(pa.int64() if pa.types.is_float64(column.type) else pa.int32())
    else:
        yield column


def _typed(rows: pa.RecordBatch, types: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*rows.columns, types], schema=with_change_types(rows.schema))
