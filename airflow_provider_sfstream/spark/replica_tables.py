"""What a run does to the tables of a replica: changes applied, unreadable events set aside, old files removed."""

from __future__ import annotations

import json
import logging
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from typing import Any

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.spark.avro_decoding import DecoderChoice
from airflow_provider_sfstream.spark.change_batches import ChangePlan, ChangeSchema, change_rows, undecodable_rows
from airflow_provider_sfstream.spark.column_registry import ColumnRegistry
from airflow_provider_sfstream.spark.counting import CounterParam
from airflow_provider_sfstream.spark.event_batches import WindowReference, quarantine_schema, refused_rows
from airflow_provider_sfstream.spark.event_tables import QUARANTINE_TABLE, EventTables
from airflow_provider_sfstream.spark.hadoop_files import HadoopFiles
from airflow_provider_sfstream.spark.landed_windows import LandedWindow
from airflow_provider_sfstream.spark.refresh_document import TableRefresh
from airflow_provider_sfstream.spark.replica_columns import replica_columns
from airflow_provider_sfstream.spark.replica_files import ReplicaFiles
from airflow_provider_sfstream.spark.replica_history import HISTORY, closed_versions, replaced_versions, write_versions
from airflow_provider_sfstream.spark.replica_merge import DROPPED, Deletes, folded_changes, merged_columns, with_bucket
from airflow_provider_sfstream.spark.replica_refresh import images, refreshed_columns
from airflow_provider_sfstream.spark.replica_rows import BUCKET, TABLE_ENVELOPE
from airflow_provider_sfstream.spark.replica_sinks import MergeSink, ParquetSink, ReplicaSink
from airflow_provider_sfstream.spark.replica_snapshots import Flag, Snapshot, TableState

log = logging.getLogger(__name__)

_DIRTY_LISTS = "_sfstream/replica/dirty"


@dataclass(frozen=True)
class Changes:
    """Landed events to apply.

    :param rows: those of the span to apply, with the number of their window.
    :param landed: all rows of these windows.
    :param first_sequences: for each window the sequence of its first event.
    :param refused: why schemas cannot be used, by id.
    """

    rows: Any
    landed: Any
    windows: tuple[LandedWindow, ...]
    first_sequences: tuple[int, ...]
    refused: Mapping[str, str]
    decoder: DecoderChoice

    @property
    def references(self) -> tuple[WindowReference, ...]:
        """The windows as the quarantine names them."""
        return tuple(WindowReference(window.window_id, window.org_id, window.topic) for window in self.windows)

    def since(self) -> str:
        """Return the time of the first event (ISO 8601, UTC)."""
        times = [window.first_event_time for window in self.windows if window.first_event_time is not None]
        return min(times, default=datetime.now(UTC)).astimezone(UTC).isoformat()


@dataclass(frozen=True)
class Applied:
    """A table after its changes: how many rows were written anew, how many of them are deleted records, and the events
    that could not be read, as rows of the quarantine."""

    table: TableState
    rows: int
    deleted: int
    outcasts: Any | None


class ReplicaTables:
    """The tables below one output folder.

    :param spark: a ``SparkSession``.
    :param base: the output folder, as Hadoop names it.
    """

    def __init__(self, spark: Any, files: HadoopFiles, base: str, deletes: Deletes) -> None:
        self._spark, self._files, self._base, self._deletes = spark, files, base, deletes
        self._parquet = ReplicaFiles(spark, files, base)
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

    def apply(self, name: str, table: TableState, changes: Changes, schemas: Mapping[str, str]) -> Applied:
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
        finally:
            folded.unpersist()
            decoded.unpersist()
        outcasts = None
        if any(key[0] == "undecodable" for key in counted.value):
            outcasts = changes.landed.where(mine).mapInArrow(
                undecodable_rows(plan, changes.references), from_arrow_schema(quarantine_schema())
            )
            after = after.flagged(Flag("undecodable", changes.since(), max(changes.first_sequences)))
        after = self._with_dirty_list(name, _flagged(after, counted.value), table.dirty + rewritten.dirty)
        return Applied(after, rewritten.rows, rewritten.deleted, outcasts)

    def refresh(self, name: str, table: TableState, refresh: TableRefresh, folder: str, *, moved_on: bool) -> Applied:
        """Merge records as they were fetched; nothing that readers see has changed until the new state is published.

        :param folder: of the refresh, as Hadoop names it.
        :param moved_on: whether the stream has had events applied since the fetch began.
        """
        columns, is_full = table.columns.columns, refresh.mode == "full"
        rows = with_bucket(images(self._spark, folder, refresh, columns), table.buckets).persist()
        merge = refreshed_columns(columns, refresh, deletes=self._deletes, moved_on=moved_on)
        try:
            # A full refresh has no line for a record that the org no longer has, so it looks at every row.
            after, rewritten = self._sink(table).merge(name, table, rows, merge, everything=is_full)
            if table.history is not None:
                base = self._former_rows(name, table, after)
                gone_at = datetime.fromisoformat(table.flag.since) if table.flag else datetime.now(UTC)
                ended = replaced_versions(base, rows, merge, columns, self._partitions, gone_at)
                after = self._with_versions(name, after, ended)
        finally:
            rows.unpersist()
        after = self._with_dirty_list(name, after, rewritten.dirty + (0 if is_full else table.dirty))
        return Applied(after, rewritten.rows, rewritten.deleted, None)

    def without_schema(self, changes: Changes, unusable: Iterable[str | None]) -> Any | None:
        """Return the events of schemas that cannot be used, as rows of the quarantine; ``None`` if there are none."""
        from pyspark.sql import functions as f
        from pyspark.sql.pandas.types import from_arrow_schema

        ids = set(unusable)
        if not ids:
            return None
        without = f.col("schema_id").isNull() | f.col("schema_id").isin(sorted(id_ for id_ in ids if id_ is not None))
        refuse = refused_rows(dict(changes.refused), changes.references)
        return changes.landed.where(without).mapInArrow(refuse, from_arrow_schema(quarantine_schema()))

    def quarantine(self, outcasts: Sequence[Any]) -> int:
        """Set aside the events that cannot be read, all of the run at once; return how many they are."""
        if not outcasts:
            return 0
        rows = reduce(lambda one, other: one.unionByName(other), outcasts).persist()
        try:
            count = int(rows.count())
            log.warning("%d events could not be read; they are in %s.", count, QUARANTINE_TABLE)
            tables = EventTables(self._spark, self._files, self._base)
            tables.replace(QUARANTINE_TABLE, rows.coalesce(1), ("window_id",))
        finally:
            rows.unpersist()
        return count

    def tidy(self, kept: Sequence[Snapshot]) -> None:
        """Remove the files that no kept snapshot names: those of older ones, and what killed runs left."""
        live = {path for snapshot in kept for table in snapshot.tables.values() for path in table.paths()}
        for name in {name for snapshot in kept for name in snapshot.tables}:
            for folder in (name, HISTORY.format(name)):
                self._parquet.remove_unreferenced(folder, live)
            for folder in self._files.folders(f"{self._base}/{_DIRTY_LISTS}/{name}"):
                if f"{_DIRTY_LISTS}/{name}/{folder}" not in live:
                    self._files.delete(f"{self._base}/{_DIRTY_LISTS}/{name}/{folder}")

    @property
    def _partitions(self) -> int:
        return int(self._spark.conf.get("spark.sql.shuffle.partitions"))

    def _sink(self, table: TableState) -> ReplicaSink:
        return self._sinks[table.table_format == "parquet"]

    def _former_rows(self, name: str, before: TableState, after: TableState) -> Any:
        """Return the rows, as they were before, of the buckets that a merge rewrote."""
        rewritten = {bucket: names for bucket, names in before.files.items() if after.files.get(bucket) != names}
        return ParquetSink(self._parquet).read(name, replace(after, files=rewritten))

    def _with_versions(self, name: str, table: TableState, versions: Any) -> TableState:
        written = write_versions(self._spark, self._base, name, versions, uuid.uuid4().hex)
        return replace(table, history=(*(table.history or ()), *written))

    def _with_dirty_list(self, name: str, table: TableState, at_most: int) -> TableState:
        """Return the table with the list of its dirty rows."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        if not at_most:
            return replace(table, dirty=0, dirty_list=None)
        rows = self._sink(table).read(name, table).where("_dirty")
        counts, place = Observation(), f"{_DIRTY_LISTS}/{name}/{uuid.uuid4().hex}"
        listed = rows.select("Id", f.col("_sequence").alias("sequence")).observe(
            counts, f.count(f.lit(1)).alias("rows")
        )
        listed.coalesce(1).write.json(f"{self._base}/{place}")
        count = int(counts.get["rows"])
        return replace(table, dirty=count, dirty_list=place if count else None)


def _plan(name: str, table: TableState, schemas: Mapping[str, str], changes: Changes) -> ChangePlan:
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


def _flagged(table: TableState, counted: Counter[Any]) -> TableState:
    """Return the table flagged by events that stand for changes of more records than they name."""
    for key in counted:
        if key[0] in ("overflow", "all_records"):
            reason, milliseconds, _, sequence = key
            since = datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()
            table = table.flagged(Flag(reason, since, sequence))
    return table
