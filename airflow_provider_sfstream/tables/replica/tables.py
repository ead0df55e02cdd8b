"""Changes to the tables of a replica: apply events, merge or compare fetched records, remove old files."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.delta.column_registry import ColumnRegistry
from airflow_provider_sfstream.tables.delta.partition_files import unchanged_batches
from airflow_provider_sfstream.tables.replica.change_blocks import (
    WITHOUT_SCHEMA,
    ChangesPlan,
    change_blocks,
    change_counts,
    change_plan,
    sampled_ids,
)
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig
from airflow_provider_sfstream.tables.replica.delta_sink import DeltaSink, Incoming, RewriteResult
from airflow_provider_sfstream.tables.replica.dirty_lists import DirtyLists, remove_lists
from airflow_provider_sfstream.tables.replica.file_groups import ends_of
from airflow_provider_sfstream.tables.replica.quarantine import QuarantinePlan
from airflow_provider_sfstream.tables.replica.reconciliation import (
    JUDGED,
    MOMENTS,
    WRONG,
    Comparison,
    compared_columns,
    judged,
    moments,
    ranges,
    totals,
)
from airflow_provider_sfstream.tables.replica.refresh import (
    IDS,
    image_schema,
    live_count,
    refresh_merge,
    sampled_record_ids,
    typed,
)
from airflow_provider_sfstream.tables.replica.refresh_document import TableRefresh
from airflow_provider_sfstream.tables.replica.snapshots import Flag, Snapshot, TableState
from airflow_provider_sfstream.tables.replica.table_fields import documented_fields, with_computed, with_fields
from airflow_provider_sfstream.tables.replica.windows import LandedChanges
from airflow_provider_sfstream.tables.rows.merging import ChangesMerge, Columns, MarkMerge, table_schema
from airflow_provider_sfstream.tables.rows.shuffle import BLOCK, blocks
from airflow_provider_sfstream.tables.runner.engine import Engine, Frame

log = logging.getLogger(__name__)

_EPOCH = datetime.fromtimestamp(0, UTC)
_FEW_ROWS = 10
"""Number of rows of a table that may always lack a record in the org, regardless of their share."""
RECONCILIATIONS = "_sfstream/replica/reconciliations"
"""Folder of the reports of comparisons, below the output folder. Only an erasure removes reports."""
_REPORTED_RANGES = 10
"""Most differing ranges in the metrics; the report has all of them."""


@dataclass(frozen=True)
class MergeResult:
    """Table after its changes: number of rewritten rows, of deleted records among them, and of rows with other values
    in their computed columns."""

    table: TableState
    rows: int
    deleted: int
    differed: int = 0


class ReplicaTables:
    """Tables below one output folder.

    :param base: the output folder, as the engine names it.
    """

    def __init__(self, engine: Engine, base: str, config: ReplicaConfig) -> None:
        self._engine, self._files, self._base = engine, engine.files, base
        self._lists = DirtyLists(engine, base)
        self._delta = DeltaSink(engine, base, config)

    def check(self, name: str, table: TableState) -> None:
        """Revert the changes of a run that failed before it published a snapshot.

        :raises ConfigurationError: if another program has changed the table; nothing was written.
        """
        self._delta.check(name, table)

    def apply(
        self,
        tables: Mapping[str, tuple[TableState, Mapping[str, str]]],
        changes: LandedChanges,
        quarantine: QuarantinePlan,
    ) -> tuple[dict[str, MergeResult], list[Mapping[str, Any]], int]:
        """Apply the changes of all tables' events; return the tables, the files of the quarantine, and the number of
        events whose schema cannot be used.

        Readers see no change until the new state of the tables is published.

        :param tables: by name, each with the Avro schemas of its events by ID.
        """
        plans = {name: change_plan(name, table, schemas, changes) for name, (table, schemas) in tables.items()}
        run = ChangesPlan(plans, changes.span, changes.refused, changes.references, changes.first_sequences)
        incoming = {}
        for name, (table, schemas) in tables.items():
            plan = plans[name]
            after = replace(table, columns=ColumnRegistry(plan.columns))
            fields = [documented_fields(plan.schemas[schema_id]) for schema_id in changes.newest_last(schemas)]
            incoming[name] = Incoming(
                with_fields(after, table, fields, changes.since(), max(changes.first_sequences)),
                ChangesMerge(plan.columns, table.effective_deletes),
                plan.arrow_schema(),
                are_changes=True,
                count=changes.count(schemas),
                sample=partial(sampled_ids, run, name, changes.rows),
                may_be_seen=_may_be_seen(table, changes),
            )
        merged, lines = self._delta.merge(incoming, changes.rows, partial(change_blocks, run), quarantine)
        counted = change_counts(lines)

        def finish(name: str) -> MergeResult:
            before, (after, rewritten) = tables[name][0], merged[name]
            after = self._with_list(name, before, after, rewritten, changed_after=changes.span[0])
            if any(key[0] == "undecodable" for key in counted[name]):
                after = after.flagged(Flag("undecodable", changes.since(), max(changes.first_sequences)))
            return MergeResult(_flagged(after, counted[name]), rewritten.rows, rewritten.deleted)

        with ThreadPoolExecutor(max_workers=self._engine.tables_at_once) as pool:
            applied = dict(zip(tables, pool.map(finish, tables), strict=True))
        without_schema = counted[WITHOUT_SCHEMA][(WITHOUT_SCHEMA,)]
        return applied, [line for line in lines if line["path"] is not None], without_schema

    def refresh(
        self,
        name: str,
        table: TableState,
        refresh: TableRefresh,
        folder: str,
        *,
        moved_on: bool,
        max_deleted_fraction: float,
    ) -> MergeResult:
        """Merge fetched records into a table. Readers see no change until the new state is published.

        :param folder: folder of the refresh, as the engine names it.
        :param moved_on: whether events of the stream have been applied since the fetch began.
        :param max_deleted_fraction: share of a table's rows that may have no record in the org.
        :raises ConfigurationError: if more have none, or the type of a computed column has changed meanwhile.
        """
        computed = {*(refresh.computed or ()), *table.computed.columns}.intersection(refresh.columns)
        before, table = table, with_computed(name, table, refresh)
        columns, is_full = table.columns.columns, refresh.mode == "full"
        merge = refresh_merge(columns, refresh, computed, deletes=table.effective_deletes, moved_on=moved_on)
        gone_at = datetime.fromisoformat(table.flag.since) if table.flag and is_full else datetime.now(UTC)

        def check(rewritten: RewriteResult) -> None:
            self._check_gone(name, table, rewritten.gone, max_deleted_fraction)

        rows, schema = self._images(refresh, columns, folder)
        incoming = Incoming(
            table,
            merge,
            schema,
            are_changes=False,
            count=refresh.fetched,
            sample=partial(sampled_record_ids, rows),
            # A full refresh has no line for a record that the org no longer has, so it reads every row.
            everything=is_full,
            only_differing=refresh.columns if refresh.mode == "computed" else None,
            check=check,
            gone_at=_microseconds(gone_at),
        )
        after, rewritten = self._merge(name, incoming, rows)
        differed = rewritten.incoming if refresh.mode == "computed" else 0
        after = _refreshed_through(after, rewritten.latest)
        later = None if refresh.computed is None else refresh.applied_sequence + 1
        after = self._with_list(name, before, after, rewritten, changed_since=later)
        return MergeResult(after, rewritten.rows, rewritten.deleted, differed)

    def reconcile(
        self, name: str, table: TableState, refresh: TableRefresh, folder: str, refresh_id: str
    ) -> tuple[TableState, dict[str, Any]]:
        """Compare a table with the records of the org; return it with wrong rows marked dirty, and the result.

        A separate file has all ID ranges: ``{output}/_sfstream/replica/reconciliations/{refresh_id}/``.

        :param folder: folder of the refresh, as the engine names it.
        """
        columns, location = table.columns.columns, self._files.table_location(self._base).below(name)
        moments_of_rows = self._delta.read(name, table).select("_commit_time").map_batches(moments, MOMENTS).collect()
        moment = max((row["latest"] for row in moments_of_rows if row["latest"] is not None), default=None)
        images, schema = self._images(refresh, columns, folder)
        fields = [table_schema(columns).field(line) for line in compared_columns(refresh.columns)]
        plan = Comparison(
            location,
            file_groups := self._delta.file_groups(name, table),
            pa.schema(fields),
            schema,
            refresh.columns,
            refresh.applied_sequence,
            moment,
            table.effective_deletes,
        )
        sent = images.map_batches(blocks(unchanged_batches, ends_of(file_groups)), BLOCK)
        shuffled = self._engine.shuffle_blocks(sent, range(len(file_groups)), len(file_groups))
        lines = shuffled.map_batches(judged(plan), JUDGED).collect()
        id_ranges = ranges(lines)
        wrong_ids = [{"Id": line["wrong"]} for line in lines if line["wrong"] is not None]
        merge = MarkMerge(columns, refresh.applied_sequence, _microseconds(datetime.now(UTC)))
        # gone_at must be set, because the rows are not changes; its value is not used, since this merge drops no row.
        incoming = Incoming(table, merge, IDS, are_changes=False, count=0, gone_at=0)
        marked = self._engine.rows_of(pa.RecordBatch.from_pylist(wrong_ids, schema=IDS))
        after, rewritten = self._merge(name, incoming, marked)
        report = {
            "table": name,
            "as_of": None if moment is None else (_EPOCH + timedelta(microseconds=moment)).isoformat(),
            "columns": list(refresh.columns),
            "records": totals(id_ranges),
            "ranges": id_ranges,
        }
        report_path = f"{RECONCILIATIONS}/{refresh_id}/{name}.json"
        self._files.replace_text(f"{self._base}/{report_path}", json.dumps(report, indent=1))
        after = self._with_list(name, table, after, rewritten)
        differing = [line for line in id_ranges if any(line[verdict] for verdict in WRONG)]
        return after, {
            "as_of": report["as_of"],
            "records": report["records"],
            "ranges": len(id_ranges),
            "differing_ranges": differing[:_REPORTED_RANGES],
            "report": report_path,
        }

    def forget(self, gone: Sequence[Snapshot], kept: Sequence[Snapshot]) -> None:
        """Remove the files that only the snapshots in ``gone`` name."""
        self._delta.forget(gone, kept)
        for name in {name for snapshot in gone for name in snapshot.tables}:
            live = [each.tables[name].dirty_list for each in kept if name in each.tables]
            remove_lists(self._files, self._base, name, live)

    def _images(self, refresh: TableRefresh, columns: Columns, folder: str) -> tuple[Frame, pa.Schema]:
        """Return the fetched records, which may contain duplicates, and their schema."""
        schema = image_schema(refresh, columns)
        return self._engine.text_rows(folder, refresh.files, schema.names).map_batches(typed(schema), schema), schema

    def _merge(self, name: str, incoming: Incoming, rows: Frame) -> tuple[TableState, RewriteResult]:
        """Merge rows without conversion into a table."""
        merged, _ = self._delta.merge({name: incoming}, rows, lambda ends: blocks(unchanged_batches, ends[0]))
        return merged[name]

    def _with_list(
        self,
        name: str,
        before: TableState,
        table: TableState,
        rewritten: RewriteResult,
        *,
        changed_after: int | None = None,
        changed_since: int | None = None,
    ) -> TableState:
        """Return the table with the list of rows that a refresh has to fetch; see :meth:`DirtyLists.update`."""
        has_changed = table.computed.on_change and changed_after is not None
        rows = self._delta.read(name, table, rewritten.files) if rewritten.dirty or has_changed else None
        ranges = rewritten.ranges
        if not self._lists.marks_changed_rows(before):  # an earlier version of the package wrote it
            rows, ranges = self._delta.read(name, table), ((None, None),)
        return self._lists.update(
            name, before, table, rows, ranges, changed_after=changed_after, changed_since=changed_since
        )

    def _check_gone(self, name: str, table: TableState, gone: int, max_deleted_fraction: float) -> None:
        """Check that the number of rows to delete because the org returned no record is within the limit."""
        if gone <= _FEW_ROWS:
            return
        live = live_count(self._delta.read(name, table))
        if gone > max_deleted_fraction * live:
            raise ConfigurationError(
                f"{name}: the org returned no record for {gone} of {live} rows that are not deleted, not even from its "
                f"recycle bin. That is more than max_deleted_fraction={max_deleted_fraction}: the user of the "
                "connection may not see the records. Nothing was published. If the records were deleted permanently, "
                "run the refresh again with max_deleted_fraction=1."
            )


def _may_be_seen(table: TableState, changes: LandedChanges) -> bool:
    """Return whether records may have been fetched after some of these changes were committed."""
    through = table.refreshed_through
    return through is not None and datetime.fromisoformat(through) >= changes.earliest()


def _refreshed_through(table: TableState, latest: int | None) -> TableState:
    if latest is None:
        return table
    moment = (_EPOCH + timedelta(microseconds=latest)).isoformat(timespec="microseconds")
    return replace(table, refreshed_through=max(moment, table.refreshed_through or moment))


def _flagged(table: TableState, counted: Counter[Any]) -> TableState:
    """Return the table, flagged by events that represent changes of more records than they name."""
    for key in counted:
        if key[0] in ("overflow", "all_records"):
            reason, milliseconds, _, sequence = key
            since = datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()
            table = table.flagged(Flag(reason, since, sequence))
    return table


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
