"""Comparison of a table with all records of the org: the verdict on each record, counted by ID range.

A comparison refers to the moment of the last change in the table. It skips records that changed later, since their
events may not have arrived yet, and dirty rows, which the replica already reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.job_config import Deletes
from airflow_provider_sfstream.tables.replica.file_groups import FileGroup
from airflow_provider_sfstream.tables.replica.rewriting import MOST_BYTES
from airflow_provider_sfstream.tables.replica.stored_rows import ranges_of, stored_rows
from airflow_provider_sfstream.tables.rows.arrow_rows import are_equal, each_once
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows
from airflow_provider_sfstream.tables.rows.shuffle import ShuffleBlocks, combined

Verdict = Literal["equal", "different", "missing", "gone", "changed_since", "dirty"]
"""Verdict on a record: its row has ``"equal"`` or ``"different"`` values, the row is ``"missing"``, the record of a row
that is not deleted is ``"gone"``, the record changed after the moment of the comparison, or its row is dirty."""

RANGE_LETTERS = 12
"""Length of the ID prefix that defines a range: at most 62^3 IDs, assigned one after another."""
_ABSENT = ""
"""Verdict on a record that neither side should have."""
WRONG = ("different", "missing", "gone")
JUDGED = pa.schema(
    [("id_prefix", pa.string()), ("verdict", pa.string()), ("count", pa.int64()), ("wrong", pa.string())]
)
"""Number of records of a range with a verdict; or the ID of a record whose row is ``wrong``."""
MOMENTS = pa.schema([("latest", pa.int64())])
_SECOND = 1_000_000


@dataclass(frozen=True)
class Comparison:
    """Arguments of a comparison.

    :param schema: schema of the table's rows, restricted to the columns to read: ``Id``, ``_dirty``, ``_sequence``,
        ``_deleted``, and the columns to compare.
    :param images: schema of the fetched records.
    :param columns: columns to compare, besides whether a record is deleted.
    :param applied_sequence: sequence number of the last event applied when the fetch began. A row that has seen a later
        event is not compared.
    :param moment: time of the last change in the table (microseconds since the epoch); ``None``: it has no change.
    :param deletes: with ``"hard"``, a deleted record has no row.
    """

    location: TableLocation
    file_groups: tuple[FileGroup, ...]
    schema: pa.Schema
    images: pa.Schema
    columns: tuple[str, ...]
    applied_sequence: int
    moment: int | None
    deletes: Deletes
    most_bytes: int = MOST_BYTES


def compared_columns(columns: Iterable[str]) -> list[str]:
    """Return the columns of a table that a comparison reads."""
    return ["Id", "_dirty", "_sequence", "_deleted", *columns]


def moments(batches: Batches) -> Batches:
    """Yield the latest ``_commit_time`` of rows of a table, as :data:`MOMENTS`."""
    for batch in batches:
        latest = pc.max(batch.column("_commit_time").cast(pa.int64()))
        yield pa.RecordBatch.from_arrays([pa.array([latest.as_py()], pa.int64())], schema=MOMENTS)


def judged(plan: Comparison) -> Rows:
    """Return a function for ``mapInArrow`` that reads packed fetched records and yields :data:`JUDGED`.

    All packed records of a file group must arrive at one task.
    """

    def rows(batches: Batches) -> Batches:
        with ShuffleBlocks() as blocks:
            for batch in batches:
                blocks.add(batch)
            for number in blocks.file_groups():
                for part, tables in ranges_of(plan.file_groups[number], number, blocks, plan.most_bytes):
                    images = each_once(combined(plan.images, [plan.images.empty_table(), *tables]))
                    for ids, verdicts in _verdicts(plan, part, images):
                        yield from _verdict_rows(ids, verdicts)
                blocks.forget(number)

    return rows


def ranges(lines: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return each ID range, in order: ``id_prefix``, the common prefix of its IDs, and its number of records for each
    verdict."""
    counts_by_prefix: dict[str, dict[str, Any]] = {}
    for line in lines:
        if line["wrong"] is None:
            prefix = line["id_prefix"]
            counts = counts_by_prefix.setdefault(prefix, {"id_prefix": prefix} | dict.fromkeys(get_args(Verdict), 0))
            counts[line["verdict"]] += line["count"]
    return [counts_by_prefix[prefix] for prefix in sorted(counts_by_prefix)]


def totals(found: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the number of records for each verdict in all ranges."""
    counts = dict.fromkeys(get_args(Verdict), 0)
    for id_range in found:
        counts |= {verdict: counts[verdict] + id_range[verdict] for verdict in counts}
    return counts


def _verdicts(plan: Comparison, file_group: FileGroup, images: pa.RecordBatch) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Yield the IDs of a file group, each once, with their verdicts."""
    has_row = np.zeros(len(images), bool)
    for rows in stored_rows(plan.location, file_group, plan.schema):
        places = pc.index_in(rows["Id"], value_set=images["Id"])
        has_row[places.drop_null().to_numpy()] = True
        yield rows["Id"], _verdict(plan, rows, images.take(places))
    without_row = images.filter(pa.array(~has_row))
    no_rows = pa.RecordBatch.from_arrays(
        [pa.nulls(len(without_row), field.type) for field in plan.schema], schema=plan.schema
    )
    yield without_row["Id"], _verdict(plan, no_rows, without_row)


def _verdict(plan: Comparison, rows: pa.RecordBatch, images: pa.RecordBatch) -> pa.Array:
    """Return the verdicts on records; a row is null if its side has no record."""
    has_row, has_record = rows["Id"].is_valid(), images["Id"].is_valid()
    has_both = pc.and_(has_row, has_record)
    equal = pc.and_(has_both, are_equal(rows, images, ("_deleted", *plan.columns)))
    has_later_event = pc.fill_null(pc.greater(rows["_sequence"], plan.applied_sequence), False)
    # Salesforce stores SystemModstamp in seconds: a change in the second of the moment may be later than the moment.
    moment = None if plan.moment is None else plan.moment // _SECOND * _SECOND
    stamps = images["_refreshed_at"].cast(pa.int64())
    is_later = pc.fill_null(pc.greater_equal(stamps, moment), False) if moment is not None else has_record
    binned, deleted = (pc.fill_null(side["_deleted"], False) for side in (images, rows))
    expected = pc.or_(
        pc.and_(pc.and_(pc.invert(has_row), binned), plan.deletes == "hard"), pc.and_(pc.invert(has_record), deleted)
    )
    changed_since = pc.or_(has_later_event, pc.and_(has_record, is_later))
    conditions = {
        "dirty": pc.fill_null(rows["_dirty"], False),
        "equal": equal,
        _ABSENT: expected,
        "changed_since": changed_since,
        "missing": pc.invert(has_row),
        "gone": pc.invert(has_record),
    }
    struct = pa.StructArray.from_arrays(list(conditions.values()), [f"is_{name}" for name in conditions])
    return pc.case_when(struct, *(pa.scalar(name) for name in conditions), pa.scalar("different"))


def _verdict_rows(ids: pa.Array, verdicts: pa.Array) -> Batches:
    table = pa.table({"id_prefix": pc.utf8_slice_codeunits(ids, 0, RANGE_LETTERS), "verdict": verdicts})
    judged_ids = table.filter(pc.not_equal(table["verdict"], _ABSENT)).group_by(["id_prefix", "verdict"])
    lines = [{**row, "count": row.pop("count_all")} for row in judged_ids.aggregate([([], "count_all")]).to_pylist()]
    wrong_ids = ids.filter(pc.is_in(verdicts, pa.array(WRONG))).to_pylist()
    yield pa.RecordBatch.from_pylist([*lines, *({"wrong": id_} for id_ in wrong_ids)], schema=JUDGED)
