"""Quarantine of an output folder: one Delta table of the events that the folder's jobs could not decode or apply.

``{base}/_quarantine/{window partition}/part-*.parquet``: a file's folder identifies its window and the job. A run
replaces the partitions of its own windows, as a whole: in one commit, from the version that it has read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog, TableFile
from airflow_provider_sfstream.tables.delta.table_files import WRITTEN, window_of, write_rows
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows, quarantine_schema
from airflow_provider_sfstream.tables.runner.engine import Engine

QUARANTINE_TABLE = "_quarantine"
_OF_REPLICA = ".replica-"


def replica_partition(window_id: str, ordinal: int) -> str:
    """Return the window partition for the events that one run of a replica could not apply.

    Several runs may apply the events of one window, each from where the previous one ended.

    :param ordinal: of the first event of the window that the run applies.
    """
    return f"{window_id}{_OF_REPLICA}{ordinal}"


def is_of_replica(partition: str) -> bool:
    """Return whether a window partition is a replica's, not an event log's."""
    return _OF_REPLICA in partition


class Quarantine:
    """Quarantine below one folder, for one job.

    :param base: the folder, as the engine names it.
    :param job: name of the job in the history of the table.
    :param progress: progress marks that the job's commits advance, so that Delta rejects those of a concurrent job that
        has the same marks.
    """

    def __init__(self, engine: Engine, base: str, job: str, progress: Iterable[str]) -> None:
        self._engine, self._url = engine, f"{base}/{QUARANTINE_TABLE}"
        self.location = engine.files.table_location(base).below(QUARANTINE_TABLE)
        self._log = DeltaTableLog(self.location, job)
        self._read = self._log.version(progress=progress)

    def replace(self, own: Collection[str], added: Sequence[TableFile]) -> None:
        """Commit files in place of all rows of ``own`` window partitions.

        If a compaction has merged such rows with others, those files are rewritten without them.

        :raises PositionConflictError: if a concurrent job has advanced one of the marks; nothing was committed.
        """
        files = self._read.files
        removed = [path for path in files if window_of(path) in own]
        merged = [path for path, file in files.items() if window_of(path) is None and _may_have(file, own)]
        if merged:
            stored = self._engine.file_rows(self._url, merged, quarantine_schema())
            rows = stored.map_batches(_rewritten(own, self.location), WRITTEN).collect()
            rewritten = [TableFile(**row) for row in rows]
            if sum(file.rows for file in rewritten) != sum(files[path]["num_records"] or 0 for path in merged):
                added, removed = [*added, *rewritten], [*removed, *merged]
        if added or removed:
            number = self._log.commit(self._read, quarantine_schema(), added, removed)
            self._read = self._log.version(number, self._read.progress)


def _may_have(file: Mapping[str, Any], own: Collection[str]) -> bool:
    """Return whether the statistics of a file allow rows of window partitions."""
    first, last = file.get("min.window_id"), file.get("max.window_id")
    return first is None or last is None or any(first <= partition <= last for partition in own)


def _rewritten(own: Collection[str], location: TableLocation) -> Rows:
    """Return a function for ``mapInArrow`` that writes rows without those of window partitions to new files."""
    removed = pa.array(sorted(own))

    def rows(batches: Batches) -> Batches:
        remaining = (batch.filter(pc.invert(pc.is_in(batch.column("window_id"), removed))) for batch in batches)
        files = [vars(file) for file in write_rows(location, remaining)]
        yield pa.RecordBatch.from_pylist(files, schema=WRITTEN)

    return rows
