"""Delta tables of a replica: tasks rewrite the file groups with changed records, the driver commits their files.

The valid version of a table is the one that a snapshot names. Other readers see the newest version, which a run that
failed early may have left ahead of the snapshot; the next run reverts it first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import pyarrow as pa

from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog, TableFile, TableVersion
from airflow_provider_sfstream.tables.delta.hadoop_files import HadoopFiles
from airflow_provider_sfstream.tables.delta.table_versions import TableVersions
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig
from airflow_provider_sfstream.tables.replica.file_groups import FileGroup, ends_of, file_groups_of_table, quantiles
from airflow_provider_sfstream.tables.replica.quarantine import QuarantinePlan
from airflow_provider_sfstream.tables.replica.rewriting import REWRITTEN, RewritePlan, rewritten
from airflow_provider_sfstream.tables.replica.rewritten_files import HistoryPlan
from airflow_provider_sfstream.tables.replica.snapshots import Snapshot, TableState
from airflow_provider_sfstream.tables.rows.event_batches import Rows
from airflow_provider_sfstream.tables.rows.history_batches import version_schema
from airflow_provider_sfstream.tables.rows.merging import Merge, table_schema
from airflow_provider_sfstream.tables.rows.shuffle import BLOCK
from airflow_provider_sfstream.tables.runner.engine import Engine, Frame

HISTORY = "{}__history"
"""Name of the table that stores the ended versions of a table's rows."""
PROGRESS = "sfstream-replica"
"""Progress mark that every commit of a replica advances, so that Delta rejects the commit of a concurrent job."""
_MANY, _FIRST_FILES = 50_000, 16
"""If at least this many rows are incoming, and not fewer than the table has, it is divided into this many files, or one
for each task if there are more tasks. A change of few records then rewrites a part of it. Files grow later."""
_SAMPLED = 10_000
_SMALL_FILES, _SMALL = 64, 32 << 20
"""Small files of a history, below this many bytes, are merged if there are more than this many."""


@dataclass(frozen=True)
class Incoming:
    """Incoming rows of a table.

    :param table: state of the table.
    :param merge: merge of the incoming rows into rows of the table.
    :param schema: schema of the incoming rows: change rows in any order if ``are_changes``; else one row for each
        ``Id``.
    :param count: approximate number of incoming rows.
    :param sample: returns some of their IDs, in any order; called if they are many and the table has few rows.
    :param may_be_seen: whether records may have been fetched after some of the changes were committed.
    :param everything: whether to also merge rows of the table that have no incoming row.
    :param only_differing: columns of which one must differ from the row, or the record is skipped; ``None``: merge all.
    :param check: receives the result of the rewrite before it is committed.
    :param gone_at: for a refresh, the end of the version of a row that it drops (microseconds since the epoch).
    """

    table: TableState
    merge: Merge
    schema: pa.Schema
    are_changes: bool
    count: int
    sample: Callable[[float], list[str]] = lambda _: []
    may_be_seen: bool = False
    everything: bool = False
    only_differing: tuple[str, ...] | None = None
    check: Callable[[RewriteResult], None] = lambda _: None
    gone_at: int | None = None


@dataclass(frozen=True)
class RewriteResult:
    """Number of rewritten ``rows``, and of ``dirty`` and ``deleted`` rows among them; their ``files``, and the ID
    ``ranges`` of the rewritten file groups, as in :class:`FileGroup`.

    For fetched records: number of rows without a record in the org (``gone``), number of merged records (``incoming``),
    and the latest ``_refreshed_at`` of all (microseconds since the epoch).
    """

    rows: int
    dirty: int
    deleted: int
    gone: int = 0
    incoming: int = 0
    latest: int | None = None
    files: tuple[str, ...] = ()
    ranges: tuple[tuple[str | None, str | None], ...] = ()


class DeltaSink:
    """Delta tables below one output folder.

    :param base: the output folder, as the engine names it.
    """

    def __init__(self, engine: Engine, base: str, config: ReplicaConfig) -> None:
        self._engine, self._base, self._config = engine, base, config
        self._location = engine.files.table_location(base)
        self._checked: dict[str, TableVersion] = {}
        """Versions that a check has read and that have not changed since."""

    def check(self, name: str, table: TableState) -> None:
        """Revert the changes of a run that failed before it published a snapshot.

        :raises ConfigurationError: if another program has changed the table; nothing was written.
        """
        self._checked[name] = self._log(name).restore(table.version, [PROGRESS])
        if table.history is not None:
            self._log(HISTORY.format(name)).restore(table.history)

    def read(self, name: str, table: TableState, paths: Sequence[str] | None = None) -> Frame:
        """Return the rows of some files of a table; ``None``: of all."""
        if paths is None:
            paths = tuple(self._log(name).version(table.version).files) if table.version >= 0 else ()
        return self._engine.file_rows(f"{self._base}/{name}", paths, table_schema(table.columns.columns))

    def merge(
        self,
        incoming: Mapping[str, Incoming],
        rows: Frame,
        send: Callable[[Sequence[Sequence[str]]], Rows],
        quarantine: QuarantinePlan | None = None,
    ) -> tuple[dict[str, tuple[TableState, RewriteResult]], list[Mapping[str, Any]]]:
        """Merge incoming rows into tables, all in one job.

        Return the new state of each table, and the lines of the task that has the quarantine and the counts. Merging
        the same rows again has the same result.

        :param incoming: by table, in the order in which ``send`` numbers them.
        :param rows: rows that ``send`` packs. ``send`` receives, for each table, the last ID of every file group but
            the last one.
        """
        with ThreadPoolExecutor(max_workers=self._engine.tables_at_once) as pool:
            versions = dict(zip(incoming, pool.map(self._version, incoming), strict=True))
            plans = {name: self._plan(name, changes, versions[name]) for name, changes in incoming.items()}
            lines = self._rewritten(list(plans.values()), rows, send, quarantine)
            first_groups = dict(
                zip(plans, accumulate((len(plan.file_groups) for plan in plans.values()), initial=0), strict=False)
            )
            table_lines = {
                name: [line for line in lines if 0 <= line["file_group"] - first_groups[name] < len(plan.file_groups)]
                for name, plan in plans.items()
            }

            def commit(name: str) -> tuple[TableState, RewriteResult]:
                return self._commit(
                    name, incoming[name], versions[name], plans[name], table_lines[name], first_groups[name]
                )

            committed = dict(zip(incoming, pool.map(commit, incoming), strict=True))
        file_groups = sum(len(plan.file_groups) for plan in plans.values())
        return committed, [line for line in lines if line["file_group"] >= file_groups]

    def _version(self, name: str) -> TableVersion:
        """Return the newest version of a table."""
        return self._checked.pop(name, None) or self._log(name).version(progress=[PROGRESS])

    def _plan(self, name: str, incoming: Incoming, version: TableVersion) -> RewritePlan:
        history = None
        if incoming.table.history is not None:
            location = self._location.below(HISTORY.format(name))
            history = HistoryPlan(location, incoming.table.effective_deletes, incoming.gone_at)
        return RewritePlan(
            location=self._location.below(name),
            file_groups=self._file_groups(version, incoming),
            merge=incoming.merge,
            incoming=incoming.schema,
            are_changes=incoming.are_changes,
            may_be_seen=incoming.may_be_seen,
            everything=incoming.everything,
            only_differing=incoming.only_differing,
            history=history,
            target=self._config.target_file_bytes,
        )

    def _commit(
        self,
        name: str,
        incoming: Incoming,
        version: TableVersion,
        plan: RewritePlan,
        lines: Sequence[Mapping[str, Any]],
        first_group: int,
    ) -> tuple[TableState, RewriteResult]:
        """Commit the files of one table.

        :param first: number of the table's first file group.
        """
        table, merge = incoming.table, incoming.merge
        rows = [line for line in lines if line["is_history"] is False]
        file_groups = [
            plan.file_groups[number] for number in sorted({line["file_group"] - first_group for line in rows})
        ]
        result = _rewritten(rows, lines, file_groups)
        incoming.check(result)
        if rows:
            removed = {file.path for file_group in file_groups for file in file_group.files}
            committed = self._log(name).commit(version, table_schema(merge.columns), _files(rows), sorted(removed))
            table = replace(table, version=committed)
        if table.history is not None:
            ended = _files(line for line in lines if line["is_history"])
            table = replace(table, history=self._with_versions(name, table.history, merge, ended))
        return table, result

    def file_groups(self, name: str, table: TableState) -> tuple[FileGroup, ...]:
        """Return the file groups of a table."""
        return file_groups_of_table(self._log(name).version(table.version).files if table.version >= 0 else {})

    def forget(self, gone: Sequence[Snapshot], kept: Sequence[Snapshot]) -> None:
        """Remove the files that only the snapshots in ``gone`` have."""
        live, removed = versions_named(kept), versions_named(gone)
        with ThreadPoolExecutor(max_workers=self._engine.tables_at_once) as pool:
            removals = [
                pool.submit(self._log(name).forget, min(numbers), live.get(name, set()))
                for name, numbers in removed.items()
            ]
            for removal in removals:
                removal.result()

    def _log(self, name: str) -> TableVersions:
        job = self._config.job or self._engine.application_id
        # The log stays complete, because a snapshot can name a version that is older than Delta's log retention.
        return TableVersions(self._location.below(name), job, cuts_log=False)

    def _file_groups(self, version: TableVersion, incoming: Incoming) -> tuple[FileGroup, ...]:
        """Return the table's file groups, divided further if most of its rows are incoming."""
        stored_rows = sum(file["num_records"] or 0 for file in version.files.values())
        if incoming.count < max(_MANY, stored_rows):
            return file_groups_of_table(version.files)
        ids = incoming.sample(min(1.0, _SAMPLED / incoming.count))
        count = min(max(_FIRST_FILES, self._engine.tasks_at_once), incoming.count // _MANY)
        return file_groups_of_table(version.files, quantiles(sorted(set(ids)), count))

    def _rewritten(
        self,
        plans: Sequence[RewritePlan],
        rows: Frame,
        send: Callable[[Sequence[Sequence[str]]], Rows],
        quarantine: QuarantinePlan | None,
    ) -> list[Mapping[str, Any]]:
        """Shuffle the incoming rows to the tasks that own their file groups; return the lines of these tasks."""
        sent = rows.map_batches(send([ends_of(plan.file_groups) for plan in plans]), BLOCK)
        file_groups = [(plan, file_group) for plan in plans for file_group in plan.file_groups]
        shared = [
            number for number, (plan, file_group) in enumerate(file_groups) if plan.everything or file_group.is_shared
        ]
        # Two more groups: that of the quarantine and that of the counts (change_blocks).
        shuffled = self._engine.shuffle_blocks(sent, shared, len(file_groups) + 2)
        lines: list[Mapping[str, Any]] = shuffled.map_batches(rewritten(plans, quarantine), REWRITTEN).collect()
        return lines

    def _with_versions(self, name: str, number: int, merge: Merge, ended: Sequence[TableFile]) -> int:
        """Add ended versions to the history; return its version number."""
        log = self._log(HISTORY.format(name))
        if ended:
            log.commit(log.version(progress=[PROGRESS]), version_schema(merge.columns), ended, [])
            number = log.compact(_SMALL_FILES, _SMALL)
        return number


def read_version(spark: Any, files: HadoopFiles, base: str, name: str, number: int, schema: pa.Schema) -> Any:
    """Return the rows of a version of a table as a DataFrame. Columns that a file lacks are null in its rows.

    :param base: the output folder, as Hadoop names it.
    :param number: version number; -1 for no version.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    log = DeltaTableLog(files.table_location(base).below(name))
    version = log.version(number) if number >= 0 else None
    if version is None or not version.files:
        return spark.createDataFrame([], from_arrow_schema(schema))
    return spark.read.schema(from_arrow_schema(schema)).parquet(*(f"{base}/{name}/{path}" for path in version.files))


def versions_named(snapshots: Iterable[Snapshot]) -> dict[str, set[int]]:
    """Return the versions of each Delta table that snapshots name."""
    numbers: dict[str, set[int]] = {}
    for name, table in ((name, table) for snapshot in snapshots for name, table in snapshot.tables.items()):
        for table_name, number in ((name, table.version), (HISTORY.format(name), table.history)):
            if number is not None and number >= 0:
                numbers.setdefault(table_name, set()).add(number)
    return numbers


def _rewritten(
    rows: Sequence[Mapping[str, Any]], lines: Sequence[Mapping[str, Any]], file_groups: Iterable[FileGroup]
) -> RewriteResult:
    counts = [json.loads(bytes(line["counts"])) for line in lines if line["counts"] is not None]
    latest = max((count["latest"] for count in counts), default=0) or None
    written = {key: sum(line[key] for line in rows) for key in ("rows", "dirty", "deleted")}
    fetched = {key: sum(count[key] for count in counts) for key in ("gone", "incoming")}
    return RewriteResult(
        **written,
        **fetched,
        latest=latest,
        files=tuple(line["path"] for line in rows if line["path"]),
        ranges=tuple((file_group.after, file_group.through) for file_group in file_groups),
    )


def _files(lines: Iterable[Any]) -> list[TableFile]:
    return [TableFile(line["path"], line["size"], line["rows"], line["stats"]) for line in lines if line["path"]]
