"""Events that a replica could not read: ``{base}/_replica_quarantine/window_id=.../from_ordinal=.../*.parquet``.

Separate from the tables, and from the quarantine of an event log, which may be below the same folder.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from airflow_provider_sfstream.tables.delta.table_files import PartitionFiles
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.replica.windows import LandedChanges
from airflow_provider_sfstream.tables.rows.shuffle import unpacked
from airflow_provider_sfstream.tables.runner.engine import Engine

log = logging.getLogger(__name__)

REPLICA_QUARANTINE = "_replica_quarantine"
FROM_ORDINAL = "from_ordinal"


@dataclass(frozen=True)
class QuarantinePlan:
    """Folder of the quarantined events of a run, and the ordinal of the first event to apply, by window ID, if it is
    not the window's first event."""

    location: TableLocation
    begun: Mapping[str, int]


def write_quarantine(plan: QuarantinePlan, blocks: Iterable[Any]) -> list[dict[str, Any]]:
    """Write packed rows of the quarantine; return ``path``, ``size`` and ``rows`` of each file."""
    with PartitionFiles(plan.location) as files:
        for batch in (batch for content in blocks for batch in unpacked(content).to_batches()):
            ordinals = [plan.begun.get(window_id, 0) for window_id in batch.column("window_id").to_pylist()]
            rows = batch.append_column(FROM_ORDINAL, pa.array(ordinals, pa.int64()))
            files.append("", rows, ("window_id", FROM_ORDINAL))
        return [{"path": file.path, "size": file.size, "rows": file.rows} for _, file in files.close()]


class ReplicaQuarantine:
    """Quarantine below one output folder.

    Several runs may apply the events of one window, each from where the previous one ended. Each run writes to a
    partition of the ordinal that it started with. So it never replaces the quarantined events of another run, and a
    repeated run replaces its own.
    """

    def __init__(self, engine: Engine, base: str) -> None:
        self._files, self._url = engine.files, f"{base}/{REPLICA_QUARANTINE}"
        self._location = engine.files.table_location(base).below(REPLICA_QUARANTINE)

    def plan(self, changes: LandedChanges) -> QuarantinePlan:
        """Return the plan for the unreadable events of a run, and remove the files that a killed run has left for the
        same events."""
        begun, folders = changes.begun(), set(self._files.folders(self._url))
        for window in changes.windows:
            if (folder := f"window_id={window.window_id}") in folders:
                partition = f"{FROM_ORDINAL}={begun.get(window.window_id, 0)}"
                self._files.delete(f"{self._url}/{folder}/{partition}")
        return QuarantinePlan(self._location, begun)

    def finish(self, files: Sequence[Mapping[str, Any]]) -> int:
        """Remove the files that a lost task, which was run again, has left beside those of the run; return the number
        of rows of the run.

        :param files: as returned by :func:`write_quarantine`.
        """
        written = {file["path"] for file in files}
        for folder in {path.rpartition("/")[0] for path in written}:
            for name in self._files.file_names(f"{self._url}/{folder}"):
                if f"{folder}/{name}" not in written:
                    self._files.delete(f"{self._url}/{folder}/{name}")
        count = int(sum(file["rows"] for file in files))
        if count:
            log.warning("%d events could not be read. They were written to %s.", count, REPLICA_QUARANTINE)
        return count
