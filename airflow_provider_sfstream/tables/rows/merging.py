"""Executor functions that merge a table's rows and their incoming changes into new rows.

A merge receives two batches: ``base`` has the rows of the table, ``change`` the incoming rows of the same records, one
for each unless they are changes; a row is null if its side has none. The merge returns the new rows, and a mask of
those to drop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.tables.decode.arrow_columns import arrow_schema
from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType
from airflow_provider_sfstream.tables.job_config import Deletes
from airflow_provider_sfstream.tables.rows.applied_changes import AppliedChanges
from airflow_provider_sfstream.tables.rows.replica_columns import TABLE_ENVELOPE

Columns: TypeAlias = dict[str, ColumnType]


class Merge(Protocol):
    """Function that returns the new rows of a table."""

    @property
    def columns(self) -> Columns:
        """The record's columns."""
        ...

    def __call__(self, base: pa.RecordBatch, change: pa.RecordBatch, /) -> tuple[pa.RecordBatch, pa.BooleanArray]:
        """Return the new rows with the schema of :func:`table_schema`, and a mask of the rows to drop."""
        ...


def table_schema(columns: Columns) -> pa.Schema:
    """Return the Arrow schema of a table with these columns."""
    return arrow_schema({**TABLE_ENVELOPE, **columns})


def later(one: pa.Array, other: Any) -> pa.Array:
    """Return the later of two times; if one is null, the other."""
    return pc.if_else(pc.or_kleene(pc.is_null(one), _true(pc.less(one, other))), other, one)


@dataclass(frozen=True)
class ChangesMerge:
    """Merge of changes: ``change`` has all rows of each record, as :class:`AppliedChanges` expects them."""

    columns: Columns
    deletes: Deletes

    def __call__(self, base: pa.RecordBatch, change: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.BooleanArray]:
        applied = AppliedChanges(base, change, self.deletes)
        return applied.rows(last_only=True), pa.array(applied.is_gone[applied.last_steps])


@dataclass(frozen=True)
class RefreshMerge:
    """Merge of fetched records.

    A row takes the record only if it has seen no event since the fetch began (compare and set by ``_sequence``).
    Otherwise the record may lack a change of the row, or the row one that it ignored; the row must be fetched again.

    1. A row that has seen no event since becomes the record as fetched and is clean; if the org no longer has the
       record, the row keeps its values and is marked deleted. A record without a row gets one if all were fetched.
    2. A row that has seen an event since stays unchanged, but dirty (``changed_while_refreshed``).
    3. With hard deletes, rows of deleted records are dropped. A record without a row may then have been deleted since
       the fetch, so its row is dirty if the replica moved on.

    Every row takes the fetched value of a column that no event carries, regardless of the events that it has seen.

    :param fetched: the fetched columns.
    :param computed: those of them that no event carries.
    :param is_full: whether all records were fetched; otherwise those of listed rows.
    :param applied_sequence: sequence of the last event applied when the fetch began.
    :param moved_on: whether events of the stream were applied since.
    """

    columns: Columns
    fetched: tuple[str, ...]
    computed: frozenset[str]
    is_full: bool
    applied_sequence: int
    deletes: Deletes
    moved_on: bool

    def __call__(self, base: pa.RecordBatch, image: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.BooleanArray]:
        exists, missing = _has(base), pc.invert(_has(base))
        is_current, changed_later = self._judged(base, image)
        in_org = _true(image["_found"])
        takes_record = pc.and_(is_current, in_org)
        may_be_deleted = pc.and_(missing, self.is_full and self.moved_on and self.deletes == "hard")
        deleted = pc.if_else(takes_record, _true(image["_deleted"]), True)
        since = pc.if_else(
            changed_later, pc.coalesce(base["_dirty_since"], base["_commit_time"]), image["_refreshed_at"]
        )
        is_dirty = pc.or_(changed_later, pc.and_(is_current, may_be_deleted))
        applied = pa.scalar(self.applied_sequence, pa.int64())
        new = {
            "Id": pc.coalesce(base["Id"], image["Id"]),
            "_deleted": pc.if_else(is_current, deleted, base["_deleted"]),
            **_marked(base, is_dirty, since, "changed_while_refreshed", clean=is_current),
            "_sequence": pc.coalesce(base["_sequence"], applied),
            "_refreshed_at": pc.if_else(
                takes_record, pc.coalesce(image["_refreshed_at"], base["_refreshed_at"]), base["_refreshed_at"]
            ),
        }
        for name in self.fetched:
            new[name] = pc.if_else(in_org if name in self.computed else takes_record, image[name], base[name])
        dropped = _all(is_current, deleted, pc.invert(may_be_deleted), self.deletes == "hard")
        return _rows(base, new), dropped if self.is_full else pc.or_(dropped, pc.invert(exists))

    def gone(self, base: pa.RecordBatch, image: pa.RecordBatch) -> pa.BooleanArray:
        """Return a mask of the rows, not deleted, whose record is missing in the org and its recycle bin."""
        live = pc.and_(_has(base), pc.invert(_true(base["_deleted"])))
        if self.is_full:
            return _all(live, pc.invert(_has(image)), _true(pc.less_equal(base["_sequence"], self.applied_sequence)))
        return _all(live, _has(image), pc.invert(_true(image["_found"])))

    def _judged(self, base: pa.RecordBatch, image: pa.RecordBatch) -> tuple[Any, Any]:
        """Return masks of the rows that take the record as fetched, and of those that changed since the fetch began."""
        if self.is_full:
            current = _true(pc.less_equal(base["_sequence"], self.applied_sequence), True)
            return current, pc.invert(current)
        unseen = _true(pc.equal(base["_sequence"], image["_sequence"]))
        # Another refresh has cleaned a row that is no longer dirty; a missing row was hard-deleted.
        is_listed = _all(_has(image), _true(base["_dirty"]))
        return pc.and_(is_listed, unseen), pc.and_(is_listed, pc.invert(unseen))


@dataclass(frozen=True)
class ColumnsMerge:
    """Merge of some fetched columns of all records; a record without a row gets none.

    Every row takes columns that no event carries. Other columns go to the rows that have seen no event since the fetch
    began (``applied_sequence``); the remaining rows become dirty.

    :param applied_sequence: ``None`` for columns that no event carries.
    """

    columns: Columns
    fetched: tuple[str, ...]
    applied_sequence: int | None

    def __call__(self, base: pa.RecordBatch, image: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.BooleanArray]:
        has_both = takes_record = pc.and_(_has(base), _has(image))
        new: dict[str, pa.Array] = {}
        if self.applied_sequence is not None:
            takes_record = pc.and_(has_both, _true(pc.less_equal(base["_sequence"], self.applied_sequence)))
            changed_later = _all(has_both, pc.invert(takes_record), pc.invert(_true(base["_dirty"])))
            new = _marked(base, changed_later, base["_commit_time"], "changed_while_refreshed")
        new |= {name: pc.if_else(takes_record, image[name], base[name]) for name in self.fetched}
        return _rows(base, new), pc.invert(_has(base))


@dataclass(frozen=True)
class MarkMerge:
    """Merge that marks rows of differing records dirty, and adds missing rows, so that a refresh fetches the records.

    :param since: time at which they became dirty, microseconds since the epoch.
    """

    columns: Columns
    applied_sequence: int
    since: int

    def __call__(self, base: pa.RecordBatch, wrong: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.BooleanArray]:
        is_marked = _has(wrong)
        new = {
            "Id": pc.coalesce(base["Id"], wrong["Id"]),
            "_deleted": _true(base["_deleted"]),
            **_marked(base, is_marked, pa.scalar(self.since, base["_dirty_since"].type), "differs"),
            "_sequence": pc.coalesce(base["_sequence"], pa.scalar(self.applied_sequence, pa.int64())),
        }
        return _rows(base, new), pa.repeat(False, len(base))


def _marked(base: pa.RecordBatch, dirty: Any, since: Any, reason: Any, *, clean: Any = False) -> dict[str, pa.Array]:
    """Return the dirty columns of ``base`` after some rows became dirty, and other rows clean."""
    return {
        "_dirty": pc.if_else(dirty, True, pc.if_else(clean, False, base["_dirty"])),
        "_dirty_since": pc.if_else(dirty, since, pc.if_else(clean, None, base["_dirty_since"])),
        "_dirty_reason": pc.if_else(dirty, reason, pc.if_else(clean, None, base["_dirty_reason"])),
    }


def _rows(base: pa.RecordBatch, new: Mapping[str, Any]) -> pa.RecordBatch:
    arrays = [new.get(field.name, base[field.name]) for field in base.schema]
    return pa.RecordBatch.from_arrays(arrays, schema=base.schema)


def _has(side: pa.RecordBatch) -> Any:
    return side["Id"].is_valid()


def _true(values: Any, of_null: bool = False) -> Any:
    return pc.fill_null(values, of_null)


def _all(*conditions: Any) -> Any:
    return reduce(pc.and_, conditions)
