"""Comparison of a table with all records of the org: the verdict on each record, counted by ID range.

A comparison refers to the moment of the last change in the table. It skips records that changed later, since their
events may not have arrived yet, and dirty rows, which the replica already reports.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.job_config import Deletes
from airflow_provider_sfstream.tables.replica.delta_sink import DeltaSink, Incoming
from airflow_provider_sfstream.tables.replica.file_groups import FileGroup, ends_of, ranges_of, stored_rows
from airflow_provider_sfstream.tables.replica.refresh_document import TableRefresh
from airflow_provider_sfstream.tables.replica.snapshots import TableState
from airflow_provider_sfstream.tables.rows.arrow_rows import are_equal, each_once
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows
from airflow_provider_sfstream.tables.rows.merging import MarkMerge, table_schema
from airflow_provider_sfstream.tables.rows.shuffle import BLOCK, ShuffleBlocks, blocks, combined
from airflow_provider_sfstream.tables.runner.engine import Frame

Verdict = Literal["equal", "different", "missing", "gone", "changed_since", "dirty"]
"""Verdict on a record: its row has ``"equal"`` or ``"different"`` values, the row is ``"missing"``, the record of a row
that is not deleted is ``"gone"``, the record changed after the moment of the comparison, or its row is dirty."""

RANGE_LETTERS = 12
"""Length of the ID prefix that defines a range: at most 62^3 IDs, assigned one after another."""
_ABSENT = ""
"""Verdict on a record that neither side should have."""
_WRONG = ("different", "missing", "gone")
_JUDGED = pa.schema(
    [("id_prefix", pa.string()), ("verdict", pa.string()), ("count", pa.int64()), ("wrong", pa.string())]
)
"""Number of records of a range with a verdict; or the ID of a record whose row is ``wrong``."""
RECONCILIATIONS = "_sfstream/replica/reconciliations"
"""Folder of the reports of comparisons, below the output folder. Only an erasure removes reports."""
_IDS = pa.schema([("Id", pa.string())])
_MOMENTS = pa.schema([("latest", pa.int64())])
_REPORTED_RANGES = 10
"""Most differing ranges in the metrics; the report has all of them."""
_SECOND = 1_000_000
_EPOCH = datetime.fromtimestamp(0, UTC)


def reconcile(
    sink: DeltaSink,
    name: str,
    table: TableState,
    refresh: TableRefresh,
    images: tuple[Frame, pa.Schema],
    refresh_id: str,
) -> tuple[TableState, dict[str, Any]]:
    """Compare a table with the records of the org; return it with wrong rows marked dirty, and the result.

    A separate file has all ID ranges: ``{output}/_sfstream/replica/reconciliations/{refresh_id}/``.

    :param images: the fetched records, which may contain duplicates, and their schema.
    """
    records, images_schema = images
    columns = dict(table.columns)
    schema = table_schema(columns)
    rows_read = sink.read(name, table).select("_commit_time").map_batches(_moments, _MOMENTS).collect()
    moment = max((row["latest"] for row in rows_read if row["latest"] is not None), default=None)
    plan = _Comparison(
        sink.location.below(name),
        sink.file_groups(name, table),
        pa.schema([schema.field(column) for column in ("Id", "_dirty", "_sequence", "_deleted", *refresh.columns)]),
        images_schema,
        refresh.columns,
        refresh.applied_sequence,
        moment,
        table.deletes,
        sink.batch_bytes,
    )
    count = len(plan.file_groups)
    sent = records.map_batches(blocks(iter, ends_of(plan.file_groups), sink.batch_bytes), BLOCK)
    lines = sink.engine.shuffle_blocks(sent, range(count), count).map_batches(_judged(plan), _JUDGED).collect()
    id_ranges = _ranges(lines)
    wrong_ids = [{"Id": line["wrong"]} for line in lines if line["wrong"] is not None]
    merge = MarkMerge(columns, refresh.applied_sequence, time.time_ns() // 1_000)
    incoming = Incoming(table, table, merge, _IDS, count=0)
    marked = sink.engine.rows_of(pa.RecordBatch.from_pylist(wrong_ids, schema=_IDS))
    after, _ = sink.merge_rows(name, incoming, marked)
    report = {
        "table": name,
        "as_of": None if moment is None else (_EPOCH + timedelta(microseconds=moment)).isoformat(),
        "columns": list(refresh.columns),
        "records": {verdict: sum(each[verdict] for each in id_ranges) for verdict in get_args(Verdict)},
        "ranges": id_ranges,
    }
    report_path = f"{RECONCILIATIONS}/{refresh_id}/{name}.json"
    sink.engine.files.replace_text(f"{sink.base}/{report_path}", json.dumps(report, indent=1))
    differing = [line for line in id_ranges if any(line[verdict] for verdict in _WRONG)]
    compared = {*refresh.columns, *table.computed.columns}
    return after, {
        "as_of": report["as_of"],
        "records": report["records"],
        "uncompared": [name for name in columns if name not in compared],
        "ranges": len(id_ranges),
        "differing_ranges": differing[:_REPORTED_RANGES],
        "report": report_path,
    }


@dataclass(frozen=True)
class _Comparison:
    """Arguments of a comparison.

    :param schema: schema of the columns to read; ``images``: of the fetched records.
    :param applied_sequence: as in the refresh. A row that has seen a later event is not compared.
    :param moment: time of the last change in the table (microseconds since the epoch); ``None``: it has no change.
    """

    location: TableLocation
    file_groups: tuple[FileGroup, ...]
    schema: pa.Schema
    images: pa.Schema
    columns: tuple[str, ...]
    applied_sequence: int
    moment: int | None
    deletes: Deletes
    batch_bytes: int


def _moments(batches: Batches) -> Batches:
    """Yield the latest ``_commit_time`` of rows of a table, as :data:`_MOMENTS`."""
    for batch in batches:
        latest = pc.max(batch.column("_commit_time").cast(pa.int64()))
        yield pa.RecordBatch.from_arrays([pa.array([latest.as_py()], pa.int64())], schema=_MOMENTS)


def _judged(plan: _Comparison) -> Rows:
    """Return a function for ``mapInArrow`` that reads all packed records of file groups, and yields :data:`_JUDGED`."""

    def rows(batches: Batches) -> Batches:
        with ShuffleBlocks() as blocks:
            for batch in batches:
                blocks.add(batch)
            for number in blocks.file_groups():
                for part, tables in ranges_of(plan.file_groups[number], number, blocks, plan.batch_bytes):
                    images = each_once(combined(plan.images, tables))
                    for ids, verdicts in _verdicts(plan, part, images):
                        yield from _verdict_rows(ids, verdicts)
                blocks.forget(number)

    return rows


def _ranges(lines: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return each ID range, in order: the prefix of its IDs, and its number of records for each verdict."""
    counts_by_prefix: dict[str, dict[str, Any]] = {}
    for line in lines:
        if line["wrong"] is None:
            prefix = line["id_prefix"]
            counts = counts_by_prefix.setdefault(prefix, {"id_prefix": prefix} | dict.fromkeys(get_args(Verdict), 0))
            counts[line["verdict"]] += line["count"]
    return [counts_by_prefix[prefix] for prefix in sorted(counts_by_prefix)]


def _verdicts(plan: _Comparison, file_group: FileGroup, images: pa.RecordBatch) -> Iterator[tuple[pa.Array, pa.Array]]:
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


def _verdict(plan: _Comparison, rows: pa.RecordBatch, images: pa.RecordBatch) -> pa.Array:
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
    wrong_ids = ids.filter(pc.is_in(verdicts, pa.array(_WRONG))).to_pylist()
    yield pa.RecordBatch.from_pylist([*lines, *({"wrong": id_} for id_ in wrong_ids)], schema=_JUDGED)
