"""Config and metrics of the ``maintain`` job."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_provider_sfstream.arguments import check_positive
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.job_config import JobConfig

TARGET_FILE_BYTES = 128 << 20
MIN_RETENTION_HOURS = 24
"""Minimum retention. A job writes its files first and commits them at its end. If a job ran longer than the retention,
its files would be mistaken for those of a killed job."""


@dataclass(frozen=True, kw_only=True)
class MaintenanceConfig(JobConfig):
    """Arguments of the ``maintain`` job, besides those of :class:`JobConfig`.

    :param retention_hours: hours (at least 24, default 168) for which files that no version has any longer remain.
    :param target_file_bytes: size in bytes of the files that smaller files are merged into.
    """

    retention_hours: int = 7 * 24
    target_file_bytes: int = TARGET_FILE_BYTES

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.retention_hours < MIN_RETENTION_HOURS:
            raise ConfigurationError(
                f"retention_hours={self.retention_hours!r} must be at least {MIN_RETENTION_HOURS}: the files of a "
                "running job cannot be distinguished from the files of a killed job. Nothing was removed."
            )
        check_positive(target_file_bytes=self.target_file_bytes)


@dataclass
class MaintainedTableMetrics:
    """Metrics of one table: number of files and version, before and after the job; files and bytes removed from the
    storage; and, if the maintenance was not completed, the reason (``left``)."""

    files_before: int = 0
    files: int = 0
    version_before: int = 0
    version: int = 0
    removed_files: int = 0
    removed_bytes: int = 0
    left: str | None = None


@dataclass
class MaintenanceMetrics:
    """Metrics of each table, and number of the replica's current ``snapshot``, 0 if there is no replica."""

    tables: dict[str, MaintainedTableMetrics] = field(default_factory=dict)
    snapshot: int = 0
    seconds: float = 0.0
