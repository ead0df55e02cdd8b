"""Difference of two versions of some rows of a table, as rows of Delta's change data feed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.tables.rows.arrow_rows import Numbers

CHANGE_TYPE = "_change_type"
"""Column of Delta's change data feed: ``insert``, ``update_postimage`` or ``delete``."""
_TYPES = pa.array(["delete", "insert", "update_postimage"])


def with_change_types(schema: pa.Schema) -> pa.Schema:
    """Return the schema of changed rows."""
    return schema.append(pa.field(CHANGE_TYPE, pa.string()))


def all_of_type(rows: pa.RecordBatch, change_type: str) -> pa.RecordBatch:
    """Return rows that all have one change type."""
    return _typed(rows, pa.repeat(change_type, len(rows)))


def changed_rows(before: pa.Table, after: pa.Table, key: Sequence[str]) -> pa.RecordBatch:
    """Return the rows that only one version has, in the order of their keys.

    A deleted row has its last values. Rows are equal if all values are: null equals null, and floats are compared by
    their bits, so NaN equals NaN.

    :param before: rows of the earlier version, in any order; ``after``: those of the later one, with the same schema.
    :param key: columns that identify a row in a version.
    """
    rows = pa.concat_tables([before, after]).combine_chunks()
    places = _places_of_one_version(rows, len(before))
    is_after = places >= len(before)
    keys = rows.select(list(key)).take(pa.array(places)).append_column("is_after", pa.array(is_after))
    order = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names]).to_numpy()
    places, is_after = places[order], is_after[order]
    # Of the two rows of a changed record, the former directly precedes the new one.
    is_former = np.append(~is_after[:-1] & is_after[1:], False) if len(places) else np.zeros(0, bool)
    for name in key:
        values = keys[name].take(pa.array(order))
        is_former[:-1] &= pc.fill_null(pc.equal(values[:-1], values[1:]), False).to_numpy()
    types = is_after.astype(np.int8) + np.roll(is_former, 1)
    changed = rows.take(pa.array(places[~is_former])).combine_chunks()
    return _typed(pa.RecordBatch.from_arrays(_arrays(changed), schema=rows.schema), _TYPES.take(types[~is_former]))


def _places_of_one_version(rows: pa.Table, former: int) -> Numbers:
    """Return the places of the rows that one version has more often than the other. The first ``former`` rows are those
    of the earlier version."""
    columns = [flat for column in _arrays(rows) for flat in _flat(column)]
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


def _arrays(rows: pa.Table) -> list[pa.Array]:
    """Return the columns of a table whose chunks are combined."""
    return [column.combine_chunks() for column in rows.columns]


def _typed(rows: pa.RecordBatch, types: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*rows.columns, types], schema=with_change_types(rows.schema))
