"""What the ``maintain`` job is asked to do, and what it says that it did."""

from __future__ import annotations

from dataclasses import dataclass, field

TARGET_BYTES = 128 << 20
"""How large a file is to be."""
LEAST_RETENTION_HOURS = 24
"""How old a file that no version has is at least before it is removed. A job writes its files first and commits them at
its end: those of one that takes longer than this would look as if a killed job had left them."""
RETENTION_HOURS = 7 * 24


@dataclass(frozen=True)
class MaintenanceOptions:
    """What the job is asked to do.

    :param output: folder of the tables.
    :param retention_hours: how long files stay that the table does not have any longer.
    :param target_file_bytes: smaller files are merged into such.
    :param job: who does it, as the tables' histories and another job's error name it; the Spark application if empty.
    """

    output: str
    retention_hours: int = RETENTION_HOURS
    target_file_bytes: int = TARGET_BYTES
    metrics_file: str | None = None
    job: str = ""


@dataclass
class TableMetrics:
    """What became of one table: how many files it had and has, the version that it had and has, files and bytes removed
    from the storage, and why it was left as it is, or some of the work to the next run, if it was."""

    files_before: int = 0
    files: int = 0
    version_before: int = 0
    version: int = 0
    removed_files: int = 0
    removed_bytes: int = 0
    left: str | None = None


@dataclass
class MaintenanceMetrics:
    """What became of each table, and the number of the replica's current ``snapshot``, 0 where there is none."""

    tables: dict[str, TableMetrics] = field(default_factory=dict)
    snapshot: int = 0
    seconds: float = 0.0
