"""Delta tables of a replica: pieces with changed records are rewritten by tasks, the driver commits their files.

What counts is the version that a snapshot names. Whoever reads the table as others do sees its newest one, which a run
that ends too early may have left ahead of the snapshot; the next run takes that back first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog, TableFile, TableVersion
from airflow_provider_sfstream.tables.delta.hadoop_files import HadoopFiles
from airflow_provider_sfstream.tables.delta.table_versions import TableVersions
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig
from airflow_provider_sfstream.tables.replica.pieces import Piece, ends_of, pieces_of_table, quantiles
from airflow_provider_sfstream.tables.replica.rewriting import REWRITTEN, HistoryPlan, Rewriting, rewritten
from airflow_provider_sfstream.tables.replica.snapshots import Snapshot, TableState
from airflow_provider_sfstream.tables.rows.event_batches import Rows
from airflow_provider_sfstream.tables.rows.history_batches import version_schema
from airflow_provider_sfstream.tables.rows.merging import Merge, table_schema
from airflow_provider_sfstream.tables.rows.routing import PARCEL, parcels, pieces_of, sampled
from airflow_provider_sfstream.tables.runner.engine import Engine, Frame

HISTORY = "{}__history"
"""Name of the table of a table's ended versions."""
PROGRESS = "sfstream-replica"
"""The mark that every commit of a replica moves on, so that Delta itself refuses that of a job beside it."""
_MANY, _FIRST_FILES = 50_000, 16
"""Where so many rows come and few are there, they are divided into so many files, or one for each task if these are
more: what changes few records rewrites a part of the table. Files grow from there."""
_SAMPLED = 10_000
_IDS = pa.schema([("Id", pa.string())])
_SMALL_FILES, _SMALL = 64, 32 << 20
"""So many files of so many bytes of a history are merged."""


@dataclass(frozen=True)
class Came:
    """What came for a table.

    :param frame: rows, and ``make`` what its rows are made of it, for ``mapInArrow``.
    :param schema: of those rows: change rows if ``are_changes``, in any order; else rows with an ``Id``, each once.
    :param count: about how many they are.
    :param may_be_seen: whether records may have been fetched after some of the changes were committed.
    """

    frame: Frame
    make: Rows
    schema: pa.Schema
    are_changes: bool
    count: int
    may_be_seen: bool = False


@dataclass(frozen=True)
class Rewritten:
    """How many rows were written anew; ``dirty`` and ``deleted`` of them."""

    rows: int
    dirty: int
    deleted: int


class DeltaSink:
    """The Delta tables below one output folder.

    :param base: the output folder, as the engine names it.
    """

    def __init__(self, engine: Engine, base: str, config: ReplicaConfig) -> None:
        self._engine, self._base, self._config = engine, base, config
        self._location = engine.files.table_location(base)

    def check(self, name: str, table: TableState) -> None:
        """Take back what a run that ended too early has left of a table.

        :raises ConfigurationError: if somebody else has changed it; nothing was written.
        """
        self._log(name).restore(table.version)
        if table.history is not None:
            self._log(HISTORY.format(name)).restore(table.history)

    def read(self, name: str, table: TableState) -> Frame:
        """Return all rows of a table."""
        version = self._log(name).version(table.version) if table.version >= 0 else None
        paths = () if version is None else tuple(version.files)
        return self._engine.file_rows(f"{self._base}/{name}", paths, table_schema(table.columns.columns))

    def merge(
        self, name: str, table: TableState, came: Came, merge: Merge, *, everything: bool, gone_at: int | None = None
    ) -> tuple[TableState, Rewritten]:
        """Merge what came into a table; return the table as it is then.

        Merging the same again gives the same table.

        :param everything: whether the new rows of records are wanted too for which nothing came.
        :param gone_at: of a refresh, when the version of a row that it drops ends (microseconds since the epoch).
        """
        log = self._log(name)
        read = log.version(progress=[PROGRESS])
        pieces = self._pieces(read, came)
        history = None
        if table.history is not None:
            history = HistoryPlan(self._location.below(HISTORY.format(name)), table.effective_deletes, gone_at)
        plan = Rewriting(
            location=log.location,
            pieces=pieces,
            merge=merge,
            came=came.schema,
            are_changes=came.are_changes,
            may_be_seen=came.may_be_seen,
            everything=everything,
            history=history,
            target=self._config.target_file_bytes,
        )
        lines = self._rewritten(came, plan)
        rows = [line for line in lines if not line["is_history"]]
        if rows:
            removed = [file.path for number in {line["piece"] for line in rows} for file in pieces[number].files]
            table = replace(
                table, version=log.commit(read, table_schema(merge.columns), _files(rows), sorted(set(removed)))
            )
        if table.history is not None:
            ended = _files(line for line in lines if line["is_history"])
            table = replace(table, history=self._with_versions(name, table.history, merge, ended))
        return table, Rewritten(*(sum(line[key] for line in rows) for key in ("rows", "dirty", "deleted")))

    def forget(self, gone: Sequence[Snapshot], kept: Sequence[Snapshot]) -> None:
        """Remove the files that only snapshots ``gone`` have."""
        now = versions_named(kept)
        for name, numbers in versions_named(gone).items():
            self._log(name).forget(min(numbers), now.get(name, set()))

    def _log(self, name: str) -> TableVersions:
        job = self._config.job or self._engine.application_id
        return TableVersions(self._location.below(name), job, cuts_log=False)

    def _pieces(self, read: TableVersion, came: Came) -> tuple[Piece, ...]:
        """Return the table's pieces, more of them where most of its rows are about to come, or more than the engine has
        room for."""
        stored = sum(file["num_records"] or 0 for file in read.files.values())
        pieces, most = pieces_of_table(read.files), self._engine.rows_at_once
        count = 0
        if came.count >= max(_MANY, stored):
            count = min(max(_FIRST_FILES, self._engine.tasks_at_once), came.count // _MANY)
        if not count and (most is None or came.count <= most):
            return pieces
        chosen = sampled(came.make, ["Id"], min(1.0, _SAMPLED / came.count))
        ids = pa.array(sorted({row["Id"] for row in came.frame.made(chosen, _IDS).collected()}), pa.string())
        ends = set(quantiles(ids.to_pylist(), count))
        if most is not None and len(ids):
            rows = came.count / len(ids)
            numbers = pieces_of(ids, sorted({*ends_of(pieces), *ends}))
            for number in np.unique(numbers):
                own = ids.filter(pa.array(numbers == number)).to_pylist()
                ends.update(quantiles(own, math.ceil(len(own) * rows / most)))
        return pieces_of_table(read.files, ends)

    def _rewritten(self, came: Came, plan: Rewriting) -> list[Mapping[str, Any]]:
        """Send what came to the tasks that have its pieces, and return what they wrote."""
        sent = came.frame.made(parcels(came.make, ends_of(plan.pieces)), PARCEL)
        told = [n for n, piece in enumerate(plan.pieces) if plan.everything or piece.is_shared]
        routed = self._engine.routed(sent, told, len(plan.pieces))
        lines: list[Mapping[str, Any]] = routed.made(rewritten(plan), REWRITTEN).collected()
        return lines

    def _with_versions(self, name: str, number: int, merge: Merge, ended: Sequence[TableFile]) -> int:
        """Add ended versions to the history; return its version."""
        log = self._log(HISTORY.format(name))
        if ended:
            log.commit(log.version(progress=[PROGRESS]), version_schema(merge.columns), ended, [])
            number = log.compact(_SMALL_FILES, _SMALL)
        return number


def read_version(spark: Any, files: HadoopFiles, base: str, name: str, number: int, schema: pa.Schema) -> Any:
    """Return the rows of a version of a table as a DataFrame; columns that a file does not have are null in its rows.

    :param base: the output folder, as Hadoop names it.
    :param number: -1 for none.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    log = DeltaTableLog(files.table_location(base).below(name))
    version = log.version(number) if number >= 0 else None
    if version is None or not version.files:
        return spark.createDataFrame([], from_arrow_schema(schema))
    return spark.read.schema(from_arrow_schema(schema)).parquet(*(f"{base}/{name}/{path}" for path in version.files))


def versions_named(snapshots: Iterable[Snapshot]) -> dict[str, set[int]]:
    """Return the versions of each Delta table that snapshots name."""
    found: dict[str, set[int]] = {}
    for name, table in ((name, table) for snapshot in snapshots for name, table in snapshot.tables.items()):
        for each, number in ((name, table.version), (HISTORY.format(name), table.history)):
            if number is not None and number >= 0:
                found.setdefault(each, set()).add(number)
    return found


def _files(lines: Iterable[Any]) -> list[TableFile]:
    return [TableFile(line["path"], line["size"], line["rows"], line["stats"]) for line in lines if line["path"]]
