"""The events that a replica could not read: ``{base}/_replica_quarantine/window_id=.../from_ordinal=.../*.parquet``.

Beside the tables, and not that of an event log, which may be below the same folder.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

import pyarrow as pa

from airflow_provider_sfstream.tables.delta.landed_windows import LandedWindow
from airflow_provider_sfstream.tables.delta.partition_files import WRITTEN, files_of, write_files
from airflow_provider_sfstream.tables.replica.windows import LandedChanges
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows, quarantine_schema, refused_rows
from airflow_provider_sfstream.tables.runner.engine import Engine, Frame

log = logging.getLogger(__name__)

REPLICA_QUARANTINE = "_replica_quarantine"
FROM_ORDINAL = "from_ordinal"


def without_schema(changes: LandedChanges, unusable: Iterable[str | None]) -> Frame | None:
    """Return the events of schemas that cannot be used, as rows of the quarantine; ``None`` if there are none.

    :param unusable: ids of such schemas, which other events of these windows may have.
    """
    ids = set(unusable)
    rows = changes.rows.where(lambda columns: columns.one_of("schema_id", ids))
    if not ids or not rows.counted("schema_id"):
        return None
    return rows.made(refused_rows(dict(changes.refused), changes.references), quarantine_schema())


class ReplicaQuarantine:
    """The quarantine below one output folder.

    :param base: the output folder, as the engine names it.
    """

    def __init__(self, engine: Engine, base: str) -> None:
        self._files, self._url = engine.files, f"{base}/{REPLICA_QUARANTINE}"
        self._location = engine.files.table_location(base).below(REPLICA_QUARANTINE)

    def set_aside(self, changes: LandedChanges, outcasts: Sequence[Frame]) -> int:
        """Set aside the events that cannot be read, all of the run at once; return how many they are.

        The events of a window may be applied by several runs, each from where the one before it ended. So that none
        of them replaces what another set aside, and a run that is repeated replaces its own, the rows of each are in a
        partition of the ordinal that it began with.
        """
        begun = changes.begun()
        self._remove(changes.windows, begun)
        if not outcasts:
            return 0
        write = write_files(_with_part(begun), self._location, ("window_id", FROM_ORDINAL))
        written = files_of(outcasts[0].together(outcasts[1:]).made(write, WRITTEN).collected())
        self._remove_others({file.path for file in written})
        count = sum(file.rows for file in written)
        log.warning("%d events could not be read; they are in %s.", count, REPLICA_QUARANTINE)
        return count

    def _remove(self, windows: Iterable[LandedWindow], begun: Mapping[str, int]) -> None:
        """Remove what a run that was killed has set aside of the events to apply."""
        present = set(self._files.folders(self._url))
        for window in windows:
            if (folder := f"window_id={window.window_id}") in present:
                part = f"{FROM_ORDINAL}={begun.get(window.window_id, 0)}"
                self._files.delete(f"{self._url}/{folder}/{part}")

    def _remove_others(self, written: Collection[str]) -> None:
        """Remove what a task that was lost and run again has left beside the files that count."""
        for folder in {path.rpartition("/")[0] for path in written}:
            for name in self._files.file_names(f"{self._url}/{folder}"):
                if f"{folder}/{name}" not in written:
                    self._files.delete(f"{self._url}/{folder}/{name}")


def _with_part(begun: Mapping[str, int]) -> Rows:
    """Return a function that adds to rows of the quarantine the ordinal that the run began their window with."""

    def rows(batches: Batches) -> Batches:
        for batch in batches:
            ordinals = [begun.get(window_id, 0) for window_id in batch.column("window_id").to_pylist()]
            yield batch.append_column(FROM_ORDINAL, pa.array(ordinals, pa.int64()))

    return rows
