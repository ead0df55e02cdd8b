"""Config and metrics of the ``replica`` job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, get_args

from airflow_provider_sfstream.arguments import check_choice, check_positive
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.job_config import Deletes, WindowsJobConfig

TARGET_FILE_BYTES = 128 << 20


@dataclass(frozen=True, kw_only=True)
class ReplicaConfig(WindowsJobConfig):
    """Arguments of the ``replica`` job, besides those of :class:`WindowsJobConfig`.

    The job applies either the change events of ``manifests``, or the records that a refresh has fetched.

    :param refresh_url: URL of the document of a refresh; ``None``: apply ``manifests``.
    :param max_deleted_fraction: share of the rows of a table (0 to 1, default 0.2) for which a refresh may find no
        record. Up to ten rows of a table may always lack one.
    :param deletes: ``"soft"`` marks deleted records, ``"hard"`` removes them. A table records the choice with which it
        was created, and a run with another choice fails. ``None`` (default): the recorded choice, ``"soft"`` if no
        choice is recorded.
    :param history: also store every version of each record. A table that has a history retains it.
    :param target_file_bytes: size in bytes of the files of a table.
    :param keep_snapshots: number of snapshots that stay readable.
    """

    refresh_url: str | None = None
    max_deleted_fraction: float = 0.2
    deletes: Deletes | None = None
    history: bool = False
    target_file_bytes: int = TARGET_FILE_BYTES
    keep_snapshots: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.deletes is not None:
            check_choice("deletes", self.deletes, get_args(Deletes))
        check_positive(target_file_bytes=self.target_file_bytes, keep_snapshots=self.keep_snapshots)
        if not 0 <= self.max_deleted_fraction <= 1:
            raise ConfigurationError(
                f"max_deleted_fraction={self.max_deleted_fraction!r} must be from 0 to 1. It is the share of the rows "
                "of a table that a refresh may delete because the org has no record for them."
            )
        if self.manifests and self.refresh_url:
            raise ConfigurationError("Set manifests or refresh_url, not both. Nothing was written.")


@dataclass
class ReplicaTableMetrics:
    """Metrics of one table: ``rows`` rewritten (those of rewritten files), ``deleted`` records among them, ``dirty``
    rows of the whole table, and the reason of its ``flag``, if the whole table must be fetched. After a fetch of the
    computed columns of all records, ``differed`` rows had other values in them. ``reconciliation``: result of a
    comparison with the org."""

    rows: int = 0
    deleted: int = 0
    dirty: int = 0
    flag: str | None = None
    differed: int = 0
    reconciliation: dict[str, Any] | None = None


@dataclass
class ReplicaMetrics:
    """Metrics of the job: processed ``windows``, their ``events``, events ``held`` until the rest of their transaction
    arrives, ``quarantined`` events, number of the replica's current ``snapshot``, and ID of the Spark application."""

    windows: list[str] = field(default_factory=list)
    events: int = 0
    held: int = 0
    quarantined: int = 0
    snapshot: int = 0
    tables: dict[str, ReplicaTableMetrics] = field(default_factory=dict)
    seconds: float = 0.0
    application_id: str = ""

    def of_table(self, name: str) -> ReplicaTableMetrics:
        """Return the metrics of one table."""
        return self.tables.setdefault(name, ReplicaTableMetrics())
