"""Replica of an operator: its current snapshot, read on the worker, and the config of its refresh."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.arguments import check_choice, check_positive
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.redaction import quoted
from airflow_provider_sfstream.tables.job_config import Deletes
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig

if TYPE_CHECKING:
    from airflow_provider_sfstream.tables.replica.snapshots import Snapshot

log = logging.getLogger(__name__)


def read_snapshot(output_url: str, output_conn_id: str | None) -> Snapshot:
    """Return the replica below ``output_url`` as it is now; its number is 0 where there is none.

    :raises ConfigurationError: if its newest snapshot cannot be understood.
    """
    from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotReader

    return SnapshotReader(ObjectStorageFiles(output_conn_id), output_url.rstrip("/")).current()


def snapshot_if_readable(output_url: str, output_conn_id: str | None) -> Snapshot | None:
    """Return the replica below ``output_url`` as it is now; ``None`` where the worker cannot read it."""
    try:
        return read_snapshot(output_url, output_conn_id)
    except Exception as error:  # the job is Spark's, which may read where the worker may not
        log.info("The worker cannot read the replica at %s: %s", output_url, quoted(str(error)))
        return None


def holds_events(output_url: str, output_conn_id: str | None) -> bool:
    """Return whether the replica holds events of incomplete transactions, which an empty window may complete.

    ``True`` if the worker cannot read the replica: the job can.
    """
    snapshot = snapshot_if_readable(output_url, output_conn_id)
    return snapshot is None or any(stream.held for stream in snapshot.streams.values())


if TYPE_CHECKING:
    from airflow_provider_sfstream.tables.refresh.plan import ComputedFields, RefreshPlan
    from airflow_provider_sfstream.tables.replica.snapshots import Snapshot

Scope = Literal["dirty", "computed", "all"]


@dataclass(frozen=True, kw_only=True)
class RefreshConfig:
    """Arguments of a refresh, which its operator documents. ``None``: the argument's default.

    :raises ConfigurationError: if an argument has an invalid value, or the scope does not support it.
    """

    scope: Scope = "dirty"
    verify: bool = False
    computed_fields: ComputedFields | None = None
    deletes: Deletes | None = None
    max_deleted_fraction: float | None = None
    keep_snapshots: int = 10
    bulk_threshold: int = 10_000
    bulk_page_records: int = 10_000

    def __post_init__(self) -> None:
        check_choice("scope", self.scope, ("dirty", "computed", "all"))
        if self.verify and self.scope != "all":
            raise ConfigurationError(
                f"verify=True compares all records, so scope={self.scope!r} does not support it. Set scope='all'."
            )
        if self.computed_fields is not None:
            check_choice("computed_fields", self.computed_fields, ("on_fetch", "on_change", "never"))
        check_positive(bulk_threshold=self.bulk_threshold, bulk_page_records=self.bulk_page_records)
        self.job_config("")
        if self.scope == "computed":
            why = "scope='computed' only updates the fields that no event carries, in rows that exist"
            self._check_unset(why, "computed_fields", "deletes", "max_deleted_fraction")
        elif self.verify:
            why = "verify=True only compares records with rows, without the fields that no event carries"
            self._check_unset(why, "computed_fields", "max_deleted_fraction")

    def _check_unset(self, why: str, *arguments: str) -> None:
        unsupported = [name for name in arguments if getattr(self, name) is not None]
        if unsupported:
            raise ConfigurationError(f"{why}, so it does not support {', '.join(unsupported)}. Remove these arguments.")

    @property
    def nothing_to_do(self) -> str:
        """The reason to skip the task if there is nothing to fetch."""
        if self.scope == "dirty":
            return "No row of the replica is dirty, and no table is flagged."
        return "The replica has no table yet."

    def plans(self, snapshot: Snapshot, tables: Collection[str] | None) -> list[RefreshPlan]:
        """Return the tables to fetch, and which of their records.

        :param tables: tables to consider, ``None`` for all.
        :raises ConfigurationError: if a table was created with another ``deletes``, or does not exist.
        """
        from airflow_provider_sfstream.tables.replica.snapshots import check_deletes

        plans = self._plans(snapshot, tables)
        check_deletes({plan.name: plan.table for plan in plans}, self.deletes)
        for plan in plans:  # a job may remove this snapshot while tables are fetched
            plan.table.load_schema()
        return plans

    def _plans(self, snapshot: Snapshot, tables: Collection[str] | None) -> list[RefreshPlan]:
        from airflow_provider_sfstream.tables.refresh.plan import plan_all, plan_dirty

        computed_fields = self.computed_fields or "on_fetch"
        if self.scope == "dirty":
            return plan_dirty(snapshot, tables, computed_fields)
        if self.scope == "computed":
            return plan_all(snapshot, tables, "computed")
        return plan_all(snapshot, tables, "compare" if self.verify else "full", computed_fields)

    def job_config(self, refresh_url: str) -> ReplicaConfig:
        """Return the config of the ``replica`` job that merges fetched records.

        :param refresh_url: URL of the document of the refresh.
        """
        options = {"deletes": self.deletes, "max_deleted_fraction": self.max_deleted_fraction}
        arguments: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        return ReplicaConfig(output_url="", refresh_url=refresh_url, keep_snapshots=self.keep_snapshots, **arguments)

    def table_result(self, merged: dict[str, Any]) -> dict[str, Any]:
        """Return the job's part of a table's result.

        :param merged: the job's metrics of the table.
        """
        if self.scope == "computed":
            return {"differed": merged.get("differed")}
        if self.verify:
            reconciliation = merged.get("reconciliation") or {}
            names = ("records", "as_of", "ranges", "differing_ranges", "report")
            return {"flag": merged.get("flag"), **{name: reconciliation.get(name) for name in names}}
        return {"still_dirty": merged.get("dirty"), "flag": merged.get("flag")}


def table_names(tables: Any) -> Collection[str] | None:
    """Return the argument ``tables``, which may be templated.

    :raises ConfigurationError: if it is no list of names.
    """
    if tables is None or (isinstance(tables, list | tuple) and all(isinstance(name, str) for name in tables)):
        return tables
    raise ConfigurationError(
        f"tables={tables!r} must be a list of table names. If it is a template, set "
        "render_template_as_native_obj=True in the DAG. Nothing was fetched."
    )
