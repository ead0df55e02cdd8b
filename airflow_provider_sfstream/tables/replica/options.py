"""What the ``replica`` job is asked to do, and what it says that it did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airflow_provider_sfstream.privacy.field_rules import NO_RULES, FieldRules
from airflow_provider_sfstream.tables.replica.pieces import TARGET_BYTES
from airflow_provider_sfstream.tables.rows.merging import Deletes


@dataclass(frozen=True)
class ReplicaOptions:
    """What the job is asked to do: apply the windows of ``manifests``, or the records fetched of ``refresh``.

    :param output: folder of the replica.
    :param manifests: URLs of manifests, in any order.
    :param refresh: URL of the document of a refresh.
    :param max_deleted_fraction: the share of a table's rows (0 to 1) that a refresh may find gone from
        the org. Up to ten rows always may.
    :param deletes: ``"hard"`` removes deleted records, ``"soft"`` marks them.
    :param history: keep ended versions from now on. Once kept, they are kept on.
    :param target_file_bytes: how large the files of tables are to be.
    :param job: who writes, as the tables' histories and another job's error name it; the Spark application if empty.
    :param keep_snapshots: how many snapshots stay readable.
    :param verify_files: compare landed files with their SHA-256 first.
    :param rules: which fields may not be stored as they come.
    """

    output: str
    manifests: tuple[str, ...] = ()
    refresh: str | None = None
    max_deleted_fraction: float = 0.2
    deletes: Deletes = "soft"
    history: bool = False
    target_file_bytes: int = TARGET_BYTES
    keep_snapshots: int = 10
    metrics_file: str | None = None
    verify_files: bool = True
    job: str = ""
    rules: FieldRules = NO_RULES


@dataclass
class TableMetrics:
    """What became of one table: rows written anew (those of touched files), how many of them are deleted records,
    rows of the whole table that have to be fetched, why the whole table has to be, if it has, how many rows had other
    values in the columns that no event carries, if those of all records were fetched, and what a comparison of the
    table with the org gave."""

    rows: int = 0
    deleted: int = 0
    dirty: int = 0
    flag: str | None = None
    differed: int = 0
    reconciliation: dict[str, Any] | None = None


@dataclass
class ReplicaMetrics:
    """``windows`` taken in, ``events`` in them, those ``held`` until the rest of their transaction comes, those
    ``quarantined``, the number of the replica's current ``snapshot``, and the Spark application that it was."""

    windows: list[str] = field(default_factory=list)
    events: int = 0
    held: int = 0
    quarantined: int = 0
    snapshot: int = 0
    tables: dict[str, TableMetrics] = field(default_factory=dict)
    seconds: float = 0.0
    application_id: str = ""

    def of_table(self, name: str) -> TableMetrics:
        """Return the metrics of one table."""
        return self.tables.setdefault(name, TableMetrics())
