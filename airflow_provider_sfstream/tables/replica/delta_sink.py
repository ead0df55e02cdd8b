"""Delta tables of a replica: tasks rewrite the file groups with changed records, the driver commits their files.

The valid version of a table is the one that a snapshot names. Other readers see the newest version, which a run that
failed early may have left ahead of the snapshot; the next run reverts it first.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise, starmap
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_provider_sfstream.tables.delta.delta_table import TableVersion
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.delta.table_versions import TableVersions
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig
from airflow_provider_sfstream.tables.replica.dirty_lists import (
    ENTRIES,
    FOLDER,
    LIST_FILES,
    former_entries,
    new_entries,
    remove_lists,
    write_list,
)
from airflow_provider_sfstream.tables.replica.file_groups import FileGroup, ends_of, file_groups_of_table, quantiles
from airflow_provider_sfstream.tables.replica.rewriting import RewritePlan, rewritten
from airflow_provider_sfstream.tables.replica.rewritten_files import REWRITTEN, RewriteResult, table_files
from airflow_provider_sfstream.tables.replica.snapshots import Snapshot, TableState
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows
from airflow_provider_sfstream.tables.rows.history_batches import version_schema
from airflow_provider_sfstream.tables.rows.merging import Merge, table_schema
from airflow_provider_sfstream.tables.rows.shuffle import BLOCK, blocks
from airflow_provider_sfstream.tables.runner.engine import Engine, Frame, JobFiles, each_table

HISTORY = "{}__history"
"""Name of the table that stores the ended versions of a table's rows."""
PROGRESS = "sfstream-replica"
"""Progress mark that every commit of a replica advances, so that Delta rejects the commit of a concurrent job."""
_MANY, _FIRST_FILES = 50_000, 16
"""If at least this many rows are incoming, and not fewer than the table has, it is divided into this many files, or one
for each task if there are more tasks. A change of few records then rewrites a part of it. Files grow later."""
_SAMPLED = 10_000
_IDS = pa.schema([("Id", pa.string())])
_SMALL_FILES, _SMALL = 64, 32 << 20
"""Small files of a history, below this many bytes, are merged if there are more than this many."""


@dataclass(frozen=True)
class Incoming:
    """Incoming rows of a table.

    :param before: state of the table.
    :param table: its state with new columns.
    :param schema: schema of the incoming rows: for :class:`ChangesMerge` change rows in any order; else one row for
        each ``Id``.
    :param count: approximate number of incoming rows.
    :param ids: function for ``mapInArrow`` that yields the ``Id`` of incoming rows, called with a sample of the rows if
        they are many and the table has few rows.
    :param check: receives the result of the rewrite before it is committed.
    :param gone_at: as in :class:`RewritePlan`.
    :param changed_after: sequence number of the last event that was applied before; rewritten rows that have seen a
        later one are listed as changed. ``None``: no row was changed by an event.
    :param changed_since: former changed rows are omitted if their last event is before this sequence number.
    """

    before: TableState
    table: TableState
    merge: Merge
    schema: pa.Schema
    count: int
    ids: Rows = iter
    check: Callable[[RewriteResult], None] = lambda _: None
    gone_at: int = 0
    changed_after: int | None = None
    changed_since: int | None = None


class DeltaSink:
    """Delta tables below the output folder ``base``, with their lists of rows to fetch."""

    def __init__(self, engine: Engine, base: str, config: ReplicaConfig) -> None:
        self.engine, self.base, self._config, self.batch_bytes = engine, base, config, config.batch_bytes
        self.location = engine.files.table_location(base)
        self._checked: dict[str, TableVersion] = {}
        """Versions that a check has read and that have not changed since."""

    def check(self, tables: Mapping[str, TableState]) -> None:
        """Revert the changes of a run that failed before it published a snapshot.

        :raises ConfigurationError: if another program has changed the table; nothing was written.
        """
        numbers = {name: table.version for name, table in tables.items()} | {
            HISTORY.format(name): table.history for name, table in tables.items() if table.history is not None
        }
        self._checked |= each_table(lambda name: self._log(name).restore(numbers[name], [PROGRESS]), numbers)

    def read(self, name: str, table: TableState, paths: Sequence[str] | None = None) -> Frame:
        """Return the rows of some files of a table; ``None``: of all."""
        if paths is None:
            paths = tuple(self._log(name).version(table.version).files) if table.version >= 0 else ()
        return self.engine.file_rows(f"{self.base}/{name}", paths, table_schema(dict(table.columns)))

    def merge(
        self,
        incoming: Mapping[str, Incoming],
        rows: Frame,
        send: Callable[[Sequence[Sequence[str]]], Rows],
        quarantine: TableLocation | None = None,
    ) -> tuple[dict[str, tuple[TableState, RewriteResult]], list[Mapping[str, Any]]]:
        """Merge incoming rows into tables, all in one job. Readers see no change until the new states are published.

        Return the new state of each table, and the lines of the task that has the quarantine and the flags. Merging
        the same rows again has the same result.

        :param incoming: by table, in the order in which ``send`` numbers them.
        :param rows: rows that ``send`` packs. ``send`` receives, for each table, the last ID of every file group but
            the last one.
        """
        versions = each_table(self._version, incoming)
        plans = {name: self._plan(name, changes, versions[name], rows) for name, changes in incoming.items()}
        lines = self._rewritten(list(plans.values()), rows, send, quarantine)
        file_groups = [file_group for plan in plans.values() for file_group in plan.file_groups]
        first_groups = accumulate((len(plan.file_groups) for plan in plans.values()), initial=0)
        numbers = dict(zip(plans, starmap(range, pairwise(first_groups)), strict=True))

        def commit(name: str) -> tuple[TableState, RewriteResult]:
            lines_of_table = [line for line in lines if line["file_group"] in numbers[name]]
            return self._commit(name, incoming[name], versions[name], file_groups, lines_of_table)

        return each_table(commit, incoming), [line for line in lines if line["file_group"] >= len(file_groups)]

    def merge_rows(self, name: str, incoming: Incoming, rows: Frame) -> tuple[TableState, RewriteResult]:
        """Merge rows into a table that need no conversion, as :meth:`merge`."""
        merged, _ = self.merge({name: incoming}, rows, lambda ends: blocks(iter, ends[0], self.batch_bytes))
        return merged[name]

    def _version(self, name: str) -> TableVersion:
        return self._checked.pop(name, None) or self._log(name).version(progress=[PROGRESS])

    def _plan(self, name: str, incoming: Incoming, version: TableVersion, rows: Frame) -> RewritePlan:
        has_history = incoming.table.history is not None
        return RewritePlan(
            location=self.location.below(name),
            file_groups=self._file_groups(version, incoming, rows),
            merge=incoming.merge,
            incoming=incoming.schema,
            history=self.location.below(HISTORY.format(name)) if has_history else None,
            gone_at=incoming.gone_at,
            target=self._config.target_file_bytes,
            batch_bytes=self.batch_bytes,
        )

    def _commit(
        self,
        name: str,
        incoming: Incoming,
        version: TableVersion,
        file_groups: Sequence[FileGroup],
        lines: Sequence[Mapping[str, Any]],
    ) -> tuple[TableState, RewriteResult]:
        """Commit the files of one table, then write its list of rows to fetch. Its ``lines`` have indexes of
        ``file_groups``."""
        table, merge = incoming.table, incoming.merge
        numbers = sorted({line["file_group"] for line in lines if line["is_history"] is False})
        rewritten_groups = [file_groups[number] for number in numbers]
        result = RewriteResult.from_lines(lines, rewritten_groups)
        incoming.check(result)
        if rewritten_groups:
            removed = {file.path for file_group in rewritten_groups for file in file_group.files}
            files = table_files(lines, is_history=False)
            committed = self._log(name).commit(version, table_schema(merge.columns), files, sorted(removed))
            table = replace(table, version=committed)
        if table.history is not None and (ended := table_files(lines, is_history=True)):
            history, log = self._version(HISTORY.format(name)), self._log(HISTORY.format(name))
            committed = log.commit(history, version_schema(merge.columns), ended, [])
            if len(history.files) + len(ended) > _SMALL_FILES:
                committed = log.compact(_SMALL_FILES, _SMALL)
            table = replace(table, history=committed)
        return self._with_list(name, incoming, table, result), result

    def _with_list(self, name: str, incoming: Incoming, table: TableState, result: RewriteResult) -> TableState:
        """Return the table with its list of rows to fetch after some file groups were rewritten."""
        files, before, on_change = self.engine.files, incoming.before, table.computed.on_change
        if not result.ranges and incoming.changed_since is None and before.computed.on_change == on_change:
            return table
        parts: list[Frame] = []
        if result.dirty or (on_change and incoming.changed_after is not None):
            select_new = new_entries(incoming.changed_after if on_change else None)
            rows = self.read(name, table, result.files).select("Id", "_sequence", "_dirty")
            parts.append(rows.map_batches(select_new, ENTRIES))
        if before.dirty_list is not None:
            url = f"{self.base}/{before.dirty_list}"
            names = [name for name in files.file_names(url) if name.endswith(".json")]
            entries = self.engine.text_rows(url, names, ("Id", "sequence", "changed"))
            select_former = former_entries(result.ranges, (incoming.changed_since or 0) if on_change else None)
            parts.append(entries.map_batches(select_former, ENTRIES))
        if not parts:
            return replace(table, dirty=0, dirty_list=None, computed=replace(table.computed, changed=0))
        folder = f"{FOLDER}/{name}/{uuid.uuid4().hex}"
        written = self.engine.shuffle(parts, ("Id",), 1).map_batches(write_list(self.location, folder), LIST_FILES)
        lines = written.collect()
        written_names = {line["name"] for line in lines}
        for file_name in files.file_names(f"{self.base}/{folder}"):
            if file_name not in written_names:  # written by a task that was lost and run again
                files.delete(f"{self.base}/{folder}/{file_name}")
        dirty, changed = (sum(line[key] for line in lines) for key in ("dirty", "changed"))
        computed = replace(table.computed, changed=changed)
        return replace(table, dirty=dirty, dirty_list=folder if dirty + changed else None, computed=computed)

    def file_groups(self, name: str, table: TableState) -> tuple[FileGroup, ...]:
        """Return the file groups of a table."""
        return file_groups_of_table(self._log(name).version(table.version).files if table.version >= 0 else {})

    def _log(self, name: str) -> TableVersions:
        job = self._config.job or self.engine.application_id
        # The log stays complete, because a snapshot can name a version that is older than Delta's log retention.
        return TableVersions(self.location.below(name), job, cuts_log=False)

    def _file_groups(self, version: TableVersion, incoming: Incoming, rows: Frame) -> tuple[FileGroup, ...]:
        """Return the table's file groups, divided further if most of its rows are incoming."""
        stored_rows = sum(file["num_records"] or 0 for file in version.files.values())
        if incoming.count < max(_MANY, stored_rows):
            return file_groups_of_table(version.files)
        ids = {row["Id"] for row in rows.map_batches(_sample(incoming), _IDS).collect()}
        count = min(max(_FIRST_FILES, self.engine.tasks_at_once), incoming.count // _MANY)
        return file_groups_of_table(version.files, quantiles(sorted(ids), count))

    def _rewritten(
        self,
        plans: Sequence[RewritePlan],
        rows: Frame,
        send: Callable[[Sequence[Sequence[str]]], Rows],
        quarantine: TableLocation | None,
    ) -> list[Mapping[str, Any]]:
        """Shuffle the incoming rows to the tasks that own their file groups; return the lines of these tasks."""
        sent = rows.map_batches(send([ends_of(plan.file_groups) for plan in plans]), BLOCK)
        file_groups = [(plan, file_group) for plan in plans for file_group in plan.file_groups]
        shared = [
            number for number, (plan, file_group) in enumerate(file_groups) if plan.everything or file_group.is_shared
        ]
        # Two more groups: that of the quarantine and that of the flags (change_blocks).
        shuffled = self.engine.shuffle_blocks(sent, shared, len(file_groups) + 2)
        lines: list[Mapping[str, Any]] = shuffled.map_batches(rewritten(plans, quarantine), REWRITTEN).collect()
        return lines


def _sample(incoming: Incoming) -> Rows:
    """Return a function for ``mapInArrow`` that yields the IDs of a random sample of incoming rows."""
    ids, fraction = incoming.ids, _SAMPLED / incoming.count

    def sampled(batches: Batches) -> Batches:
        rows = (batch.filter(pa.array(np.random.default_rng().random(len(batch)) < fraction)) for batch in batches)
        return (batch.select(_IDS.names) for batch in ids(rows))

    return sampled


def forget_snapshots(files: JobFiles, base: str, gone: Sequence[Snapshot], kept: Sequence[Snapshot]) -> None:
    """Remove the files and the lists that only the snapshots in ``gone`` name."""
    location, live, removed = files.table_location(base), versions_named(kept), versions_named(gone)
    each_table(lambda name: TableVersions(location.below(name)).forget(min(removed[name]), live.get(name, ())), removed)
    for name in {name for snapshot in gone for name in snapshot.tables}:
        live_lists = [each.tables[name].dirty_list for each in kept if name in each.tables]
        remove_lists(files, base, name, live_lists)


def versions_named(snapshots: Iterable[Snapshot]) -> dict[str, set[int]]:
    """Return the versions of each Delta table that snapshots name."""
    numbers: dict[str, set[int]] = {}
    for name, table in ((name, table) for snapshot in snapshots for name, table in snapshot.tables.items()):
        for table_name, number in ((name, table.version), (HISTORY.format(name), table.history)):
            if number is not None and number >= 0:
                numbers.setdefault(table_name, set()).add(number)
    return numbers
