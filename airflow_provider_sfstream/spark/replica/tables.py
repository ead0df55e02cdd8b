"""What a run does to the tables of a replica: changes applied, records as fetched merged, old files removed."""

from __future__ import annotations

import json
import logging
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.spark.replica.dirty_lists import DirtyLists
from airflow_provider_sfstream.spark.replica.files import ReplicaFiles
from airflow_provider_sfstream.spark.replica.history import (
    HISTORY,
    closed_versions,
    compacted,
    replaced_versions,
    write_versions,
)
from airflow_provider_sfstream.spark.replica.landed_changes import LandedChanges
from airflow_provider_sfstream.spark.replica.reconciliation import (
    marked_columns,
    moment,
    ranges,
    totals,
    verdicts,
    wrong,
)
from airflow_provider_sfstream.spark.replica.refresh import differing, images, refreshed_columns
from airflow_provider_sfstream.spark.replica.refresh_document import TableRefresh
from airflow_provider_sfstream.spark.replica.sinks import MergeSink, ParquetSink, ReplicaSink
from airflow_provider_sfstream.spark.replica.snapshots import Flag, Snapshot, TableState
from airflow_provider_sfstream.spark.replica.table_fields import fields_of, with_computed, with_fields
from airflow_provider_sfstream.spark.rows.change_batches import ChangePlan, ChangeSchema, change_rows, undecodable_rows
from airflow_provider_sfstream.spark.rows.event_batches import quarantine_schema
from airflow_provider_sfstream.spark.rows.replica_columns import replica_columns
from airflow_provider_sfstream.spark.rows.replica_merge import (
    DROPPED,
    Deletes,
    folded_changes,
    merged_columns,
    with_bucket,
    with_seen,
)
from airflow_provider_sfstream.spark.rows.replica_rows import BUCKET, TABLE_ENVELOPE
from airflow_provider_sfstream.spark.storage.column_registry import ColumnRegistry
from airflow_provider_sfstream.spark.storage.counting import CounterParam
from airflow_provider_sfstream.spark.storage.hadoop_files import HadoopFiles

log = logging.getLogger(__name__)

_FEW_ROWS = 10
"""So many rows may be gone whatever share of a small table they are."""
_FETCHED = ("Id", "_refreshed_at")
RECONCILIATIONS = "_sfstream/replica/reconciliations"
"""Where the reports of comparisons are, below the output folder. They are kept."""
_RANGES_TOLD = 10
"""So many of the ranges that differ are in the metrics; all are in the report."""


@dataclass(frozen=True)
class Applied:
    """A table after its changes: how many rows were written anew, how many of them are deleted records, the events that
    could not be read, as rows of the quarantine, and how many rows had other values in their computed columns."""

    table: TableState
    rows: int
    deleted: int
    outcasts: Any | None
    differed: int = 0


class ReplicaTables:
    """The tables below one output folder.

    :param spark: a ``SparkSession``.
    :param base: the output folder, as Hadoop names it.
    """

    def __init__(self, spark: Any, files: HadoopFiles, base: str, deletes: Deletes) -> None:
        self._spark, self._files, self._base, self._deletes = spark, files, base, deletes
        self._parquet = ReplicaFiles(spark, files, base)
        self._lists = DirtyLists(spark, files, base)
        self._sinks: dict[bool, ReplicaSink] = {True: ParquetSink(self._parquet), False: MergeSink(spark, base)}

    def check(self, name: str, table: TableState) -> None:
        """Make sure that a table can be written as it is to be.

        :raises ConfigurationError: if not; nothing was written.
        """
        if table.history is not None and table.table_format != "parquet":
            raise ConfigurationError(
                f"A history of {name} is kept for tables in Parquet only, and this one is in {table.table_format}. "
                "Leave out history=True. Nothing was written."
            )
        self._sink(table).check(table)

    def apply(self, name: str, table: TableState, changes: LandedChanges, schemas: Mapping[str, str]) -> Applied:
        """Apply the changes of one table's events. Tables may be worked on at the same time.

        Nothing that readers see has changed until the table's new state is published.

        :param schemas: the Avro schemas of its events by id.
        """
        from pyspark.sql import functions as f
        from pyspark.sql.pandas.types import from_arrow_schema

        plan = _plan(name, table, schemas, changes)
        counted = self._spark.sparkContext.accumulator(Counter(), CounterParam())
        mine = f.col("schema_id").isin(sorted(schemas))
        decoded = changes.rows.where(mine).mapInArrow(
            change_rows(plan, counted.add), from_arrow_schema(plan.arrow_schema())
        )
        after = replace(table, columns=ColumnRegistry(plan.columns))
        told = [fields_of(plan.schemas[schema_id]) for schema_id in changes.newest_last(schemas)]
        after = with_fields(after, table, told, changes.since(), max(changes.first_sequences))
        fetched = self._fetched(name, table, changes)
        if fetched is not None:
            decoded = with_seen(decoded, fetched)
        if table.history is not None:
            decoded = decoded.persist()
        folded = folded_changes(decoded, plan.columns, self._partitions, table.buckets).persist()
        try:
            merge = merged_columns(plan.columns, deletes=self._deletes)
            after, rewritten = self._sink(table).merge(name, after, folded, merge, everything=False)
            if table.history is not None:
                base = self._former_rows(name, table, after)
                closed = closed_versions(base, decoded, plan.columns, self._partitions, deletes=self._deletes)
                after = self._with_versions(name, after, closed)
            listed = self._lists.listed(table)
            if listed is not None:
                listed = listed.union(folded.select("Id", "_sequence"))
            after = self._with_list(name, after, table.dirty + rewritten.dirty, listed)
        finally:
            folded.unpersist()
            decoded.unpersist()
        outcasts = None
        if any(key[0] == "undecodable" for key in counted.value):
            outcasts = changes.rows.where(mine).mapInArrow(
                undecodable_rows(plan, changes.references), from_arrow_schema(quarantine_schema())
            )
            after = after.flagged(Flag("undecodable", changes.since(), max(changes.first_sequences)))
        return Applied(_flagged(after, counted.value), rewritten.rows, rewritten.deleted, outcasts)

    def refresh(
        self,
        name: str,
        table: TableState,
        refresh: TableRefresh,
        folder: str,
        *,
        moved_on: bool,
        max_deleted_fraction: float,
    ) -> Applied:
        """Merge records as they were fetched; nothing that readers see has changed until the new state is published.

        :param folder: of the refresh, as Hadoop names it.
        :param moved_on: whether the stream has had events applied since the fetch began.
        :param max_deleted_fraction: the share of a table's rows that may be gone from the org.
        :raises ConfigurationError: if more are, or a column that no event carries is of another type by now.
        """
        computed = {*(refresh.computed or ()), *table.computed.columns}.intersection(refresh.columns)
        table = with_computed(name, table, refresh)
        columns, is_full = table.columns.columns, refresh.mode == "full"
        fetched = rows = with_bucket(images(self._spark, folder, refresh, columns), table.buckets).persist()
        merge = refreshed_columns(columns, refresh, computed, deletes=self._deletes, moved_on=moved_on)
        table, differed = _refreshed_through(table, rows), 0
        try:
            if refresh.mode == "computed":
                rows = differing(self._sink(table).read(name, table), fetched, refresh.columns).persist()
                differed = int(rows.count())
            if refresh.mode in ("full", "records"):
                self._check_gone(name, table, rows, refresh, max_deleted_fraction)
            # A full refresh has no line for a record that the org no longer has, so it looks at every row.
            after, rewritten = self._sink(table).merge(name, table, rows, merge, everything=is_full)
            if table.history is not None:
                base = self._former_rows(name, table, after)
                gone_at = datetime.fromisoformat(table.flag.since) if table.flag else datetime.now(UTC)
                ended = replaced_versions(base, rows, merge, columns, self._partitions, gone_at)
                after = self._with_versions(name, after, ended)
        finally:
            rows.unpersist()
            fetched.unpersist()
        listed = self._lists.listed(table)
        if listed is not None and refresh.computed is not None:
            listed = listed.where(f"sequence > {refresh.applied_sequence}")
        after = self._with_list(name, after, rewritten.dirty + (0 if is_full else table.dirty), listed)
        return Applied(after, rewritten.rows, rewritten.deleted, None, differed)

    def reconcile(
        self, name: str, table: TableState, refresh: TableRefresh, folder: str, refresh_id: str
    ) -> tuple[TableState, dict[str, Any]]:
        """Compare a table with the records of the org; return it with wrong rows dirty, and what was found.

        All ranges of ids are in a file of their own, ``{output}/_sfstream/replica/reconciliations/{refresh_id}/``.

        :param folder: of the refresh, as Hadoop names it.
        """
        from pyspark.sql import functions as f

        columns, rows = table.columns.columns, self._sink(table).read(name, table)
        fetched = images(self._spark, folder, refresh, columns)
        judged = verdicts(rows, fetched, refresh.columns, refresh.applied_sequence, deletes=self._deletes).persist()
        try:
            found = ranges(judged)
            bad = with_bucket(wrong(judged), table.buckets).persist()
            merge = marked_columns(columns, refresh.applied_sequence, f.current_timestamp())
            after, rewritten = self._sink(table).merge(name, table, bad, merge, everything=False)
            bad.unpersist()
        finally:
            judged.unpersist()
        through = moment(rows)
        report = {
            "table": name,
            "as_of": None if through is None else through.astimezone(UTC).isoformat(),
            "columns": list(refresh.columns),
            "records": totals(found),
            "ranges": found,
        }
        place = f"{RECONCILIATIONS}/{refresh_id}/{name}.json"
        self._files.replace_text(f"{self._base}/{place}", json.dumps(report, indent=1))
        after = self._with_list(name, after, rewritten.dirty + table.dirty, self._lists.listed(table))
        said = {key: report[key] for key in ("as_of", "records")}
        differing = [each for each in found if each["org_checksum"] != each["replica_checksum"]]
        return after, {**said, "ranges": len(found), "differing_ranges": differing[:_RANGES_TOLD], "report": place}

    def tidy(self, kept: Sequence[Snapshot]) -> None:
        """Remove the files that no kept snapshot names: those of older ones, and what killed runs left."""
        live = {path for snapshot in kept for table in snapshot.tables.values() for path in table.paths()}
        for name in {name for snapshot in kept for name in snapshot.tables}:
            for folder in (name, HISTORY.format(name)):
                self._parquet.remove_unreferenced(folder, live)
            self._lists.tidy(name, live)

    @property
    def _partitions(self) -> int:
        return int(self._spark.conf.get("spark.sql.shuffle.partitions"))

    def _sink(self, table: TableState) -> ReplicaSink:
        return self._sinks[table.table_format == "parquet"]

    def _with_list(self, name: str, table: TableState, at_most: int, changed: Any | None) -> TableState:
        rows = self._sink(table).read(name, table) if at_most or changed is not None else None
        return self._lists.written(name, table, rows, at_most, changed)

    def _check_gone(
        self, name: str, table: TableState, images: Any, refresh: TableRefresh, max_deleted_fraction: float
    ) -> None:
        """Make sure that not too many rows are about to be deleted because the org did not give their records."""
        from pyspark.sql import functions as f

        rows = self._sink(table).read(name, table).where(~f.col("_deleted"))
        if refresh.mode == "full":
            rows, given, kind = rows.where(f.col("_sequence") <= refresh.applied_sequence), images, "left_anti"
        else:
            given, kind = images.where("NOT _found"), "left_semi"
            if given.count() <= _FEW_ROWS:
                return
        rows = rows.select("Id").persist()
        try:
            gone = int(rows.join(given.select("Id"), "Id", kind).count())
            live = int(rows.count()) if gone else 0
        finally:
            rows.unpersist()
        if gone > max(_FEW_ROWS, max_deleted_fraction * live):
            raise ConfigurationError(
                f"{name}: of {live} rows that are not deleted, the org gave no record for {gone}, not even in its "
                f"recycle bin. That is more than max_deleted_fraction={max_deleted_fraction}: the user of the "
                "connection may not see them. Nothing was published. If they were deleted for good, run it again with "
                "max_deleted_fraction=1."
            )

    def _fetched(self, name: str, table: TableState, changes: LandedChanges) -> Any | None:
        """Return the ids and times of the rows that may have been fetched after some of these changes were committed;
        ``None`` if there are none."""
        from pyspark.sql import functions as f

        first = changes.earliest()
        if table.refreshed_through is None or datetime.fromisoformat(table.refreshed_through) < first:
            return None
        return self._sink(table).read(name, table).where(f.col("_refreshed_at") >= f.lit(first)).select(*_FETCHED)

    def _former_rows(self, name: str, before: TableState, after: TableState) -> Any:
        """Return the rows, as they were before, of the buckets that a merge rewrote."""
        rewritten = {bucket: names for bucket, names in before.files.items() if after.files.get(bucket) != names}
        return ParquetSink(self._parquet).read(name, replace(after, files=rewritten))

    def _with_versions(self, name: str, table: TableState, versions: Any) -> TableState:
        written = write_versions(self._spark, self._base, name, versions, uuid.uuid4().hex)
        return compacted(self._spark, self._base, name, replace(table, history=(*(table.history or ()), *written)))


def _plan(name: str, table: TableState, schemas: Mapping[str, str], changes: LandedChanges) -> ChangePlan:
    """Return how the events of one table are read, with a column for each of their fields."""
    registry = ColumnRegistry(dict(table.columns.columns))
    placed: dict[str, ChangeSchema] = {}
    for schema_id, text in sorted(schemas.items()):
        wanted = [(column.name, column.type) for column in replica_columns(json.loads(text))]
        columns = registry.place(wanted, reserved=(*TABLE_ENVELOPE, BUCKET, DROPPED))
        for (field, _), column in zip(wanted, columns, strict=True):
            if field.lower() != column.lower():
                log.warning("%s of %s (schema %s) is written to column %s.", field, name, schema_id, column)
        placed[schema_id] = ChangeSchema(text, columns)
    return ChangePlan(name, registry.columns, placed, changes.first_sequences, changes.decoder)


def _refreshed_through(table: TableState, images: Any) -> TableState:
    from pyspark.sql import functions as f

    latest = images.agg(f.unix_micros(f.max("_refreshed_at"))).first()[0]
    if latest is None:
        return table
    moment = (datetime.fromtimestamp(0, UTC) + timedelta(microseconds=latest)).isoformat(timespec="microseconds")
    return replace(table, refreshed_through=max(moment, table.refreshed_through or moment))


def _flagged(table: TableState, counted: Counter[Any]) -> TableState:
    """Return the table flagged by events that stand for changes of more records than they name."""
    for key in counted:
        if key[0] in ("overflow", "all_records"):
            reason, milliseconds, _, sequence = key
            since = datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()
            table = table.flagged(Flag(reason, since, sequence))
    return table
