"""Refresh of a replica: records are fetched on the worker, and a job merges them or compares them."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_sfstream._airflow import AirflowSkipException
from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.actions.status import report_tables
from airflow_provider_sfstream.actions.storage import storage_path
from airflow_provider_sfstream.actions.tables.replica import read_snapshot, snapshot_if_readable
from airflow_provider_sfstream.actions.tables.table_job import TableJobOperator, check_output, hash_key
from airflow_provider_sfstream.arguments import check_choice, check_positive
from airflow_provider_sfstream.exceptions import ConfigurationError, LandingError
from airflow_provider_sfstream.extras import require_extra
from airflow_provider_sfstream.hooks.salesforce_allocations import AllocationReserve
from airflow_provider_sfstream.monitoring.lineage import LineageMixin
from airflow_provider_sfstream.tables.job_config import Deletes
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from airflow_provider_sfstream.privacy.field_rules import FieldRules
    from airflow_provider_sfstream.tables.refresh.fetch import RefreshFiles
    from airflow_provider_sfstream.tables.refresh.plan import ComputedFields, RefreshPlan
    from airflow_provider_sfstream.tables.replica.refresh_document import TableRefresh
    from airflow_provider_sfstream.tables.replica.snapshots import Snapshot

require_extra("salesforce")

log = logging.getLogger(__name__)

Scope = Literal["dirty", "computed", "all"]


@dataclass(frozen=True, kw_only=True)
class RefreshConfig:
    """Arguments of a refresh, which its operator documents. ``None``: the argument's default."""

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

    def nothing_to_do(self, snapshot: Snapshot) -> str:
        """Return the reason to skip the task if there is nothing to fetch."""
        if not snapshot.number:
            return "There is no replica at output_url yet."
        if self.scope == "dirty":
            return "No row of the replica is dirty, and no table is flagged."
        return "The replica has no table yet."

    def plans(self, snapshot: Snapshot, tables: Collection[str] | None) -> list[RefreshPlan]:
        """Return the tables to fetch, of those named, and which of their records. Check their choice of ``deletes``."""
        from airflow_provider_sfstream.tables.refresh.plan import plan_all, plan_dirty
        from airflow_provider_sfstream.tables.replica.snapshots import check_deletes

        computed_fields = self.computed_fields or "on_fetch"
        if self.scope == "dirty":
            plans = plan_dirty(snapshot, tables, computed_fields)
        elif self.scope == "computed":
            plans = plan_all(snapshot, tables, "computed")
        else:
            plans = plan_all(snapshot, tables, "compare" if self.verify else "full", computed_fields)
        check_deletes({plan.name: plan.table for plan in plans}, self.deletes)
        for plan in plans:  # read the columns now: a job may remove this snapshot while tables are fetched
            _ = plan.table.schema
        return plans

    def job_config(self, refresh_url: str) -> ReplicaConfig:
        """Return the config of the ``replica`` job that merges fetched records."""
        options = {"deletes": self.deletes, "max_deleted_fraction": self.max_deleted_fraction}
        arguments: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        return ReplicaConfig(output_url="", refresh_url=refresh_url, keep_snapshots=self.keep_snapshots, **arguments)

    def table_result(self, merged: dict[str, Any]) -> dict[str, Any]:
        """Return the job's part of a table's result."""
        if self.scope == "computed":
            return {"differed": merged.get("differed")}
        if self.verify:
            reconciliation = merged.get("reconciliation") or {}
            names = ("records", "as_of", "uncompared", "ranges", "differing_ranges", "report")
            return {"flag": merged.get("flag"), **{name: reconciliation.get(name) for name in names}}
        return {"still_dirty": merged.get("dirty"), "flag": merged.get("flag")}


class RefreshJobOperator(LineageMixin, TableJobOperator):
    """Base of the operators that fetch records of a replica's org, and merge or compare them with the ``replica`` job.

    :param scope: records to fetch: ``"dirty"``, ``"computed"`` or ``"all"``.
    :param verify: with ``scope="all"``: compare the records with the tables, and merge no value.
    :param salesforce_conn_id: Airflow connection to the org that the replica is of. Its user should see all records and
        fields of the tables. (templated)
    :param tables: tables to refresh; ``None`` for all of the replica. (templated)
    :param computed_fields: fetch the values of fields that no event carries: ``"on_fetch"`` (default) of the records
        that are fetched anyway; ``"on_change"`` also of those that an event changed, from the first refresh with this
        value on; ``"never"``. A formula over other records changes without an event: ``scope="computed"`` compares
        all. Not with ``scope="computed"`` or ``verify``.
    :param deletes: ``"soft"`` or ``"hard"``, as for the job that applies events. ``None`` (default): the choice that
        the table records. Another choice fails before anything is fetched. Not with ``scope="computed"``.
    :param max_deleted_fraction: largest share of a table's rows (0 to 1, default 0.2) without a record in the org,
        including its recycle bin. A larger share is an error, and nothing changes, because the user of the connection
        may not see the records. Up to ten missing rows of a table are always accepted. Not with ``scope="computed"`` or
        ``verify``.
    :param keep_snapshots: as for the job that applies events.
    :param bulk_threshold: a table of at least this many records is fetched through the Bulk API.
    :param bulk_page_records: records of one page of the Bulk API, which is held in memory.
    :param allocation_reserve: before anything is fetched: fail (``AllocationReserveError``, without retry) if less
        than this of the org's API requests would remain. A number of requests (``int``), a share (``float`` from 0.0 to
        1.0), or a dict of these by the names of allocations. docs/sizing.md#allocations
    :param hash_conn_id: Airflow connection whose password is the key of hashes, where a table has some
        (``hash_fields``). Fetched values are hashed before they are written. (templated)
    :raises ConfigurationError: at construction, if an argument has an invalid value, or the scope does not support it.
    """

    own_template_fields = ("salesforce_conn_id", "tables", "hash_conn_id")
    job = "replica"

    def __init__(
        self,
        *,
        output_url: str,
        scope: Scope = "dirty",
        verify: bool = False,
        salesforce_conn_id: str = "salesforce_default",
        tables: Sequence[str] | None = None,
        computed_fields: Literal["on_fetch", "on_change", "never"] | None = None,
        deletes: Literal["soft", "hard"] | None = None,
        max_deleted_fraction: float | None = None,
        keep_snapshots: int = 10,
        bulk_threshold: int = 10_000,
        bulk_page_records: int = 10_000,
        allocation_reserve: float | Mapping[str, float] | None = None,
        hash_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        self._config = RefreshConfig(
            scope=scope,
            verify=verify,
            computed_fields=computed_fields,
            deletes=deletes,
            max_deleted_fraction=max_deleted_fraction,
            keep_snapshots=keep_snapshots,
            bulk_threshold=bulk_threshold,
            bulk_page_records=bulk_page_records,
        )
        super().__init__(output_url=output_url, **kwargs)
        self.salesforce_conn_id = salesforce_conn_id
        self.tables = tables
        self.hash_conn_id = hash_conn_id
        self._reserve = AllocationReserve(allocation_reserve)
        self._fetched: Mapping[str, Mapping[str, Any]] = {}

    def execute(self, context: Context) -> dict[str, Any]:
        """Fetch the records, and run the job; return the result by table."""
        from airflow_provider_sfstream.tables.refresh.fetch import RefreshFiles

        started = time.monotonic()
        with airflow_errors(self):
            check_output(self.output_url)
            snapshot = read_snapshot(self.output_url, self.output_conn_id)
            plans = self._config.plans(snapshot, _table_names(self.tables))
            if not plans:
                raise AirflowSkipException(self._config.nothing_to_do(snapshot))
            rules = {plan.name: self._rules_of(plan) for plan in plans}
            self._check_reserve(plans)
            refresh_id = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(8)}"
            files = RefreshFiles(self.output_url, partial(storage_path, conn_id=self.output_conn_id), refresh_id)
            try:
                self._fetched = self._fetch(plans, files, snapshot.number, rules)
                if not self._fetched:
                    raise AirflowSkipException("The connection's user may not read any of the values to fetch.")
                metrics = self.run_job(context, self._config.job_config(files.url)) or {}
            finally:
                with suppress(LandingError):  # the next refresh removes the rest
                    files.clean()
        report_tables(self.output_url, "refresh", context, metrics)
        merged = metrics.get("tables", {})
        tables = {
            name: {**counts, **self._config.table_result(merged.get(name, {}))}
            for name, counts in self._fetched.items()
        }
        return {
            "snapshot": metrics.get("snapshot"),
            "tables": tables,
            "seconds": round(time.monotonic() - started, 2),
        }

    def lineage(self, *, has_ended: bool) -> OperatorLineage:
        """Return the objects that were fetched as inputs, and the tables that they were merged into as outputs."""
        from airflow_provider_sfstream.actions.open_lineage import refresh_lineage

        fetched = self._fetched if has_ended else {}
        snapshot = snapshot_if_readable(self.output_url, self.output_conn_id) if fetched else None
        return refresh_lineage(self.salesforce_conn_id, self.output_url, fetched, self.metrics, snapshot)

    def _rules_of(self, plan: RefreshPlan) -> FieldRules:
        """Return the field rules of a table, with the key of its hashes."""
        rules = plan.table.rules.with_key(hash_key(self.hash_conn_id))
        rules.check_keep(plan.table.rules, f"The table {plan.name} of {self.output_url}")
        return rules

    def _check_reserve(self, plans: Sequence[RefreshPlan]) -> None:
        from airflow_provider_sfstream.hooks.salesforce_allocations import API_REQUESTS
        from airflow_provider_sfstream.tables.refresh.plan import least_requests

        tables, least = ", ".join(plan.name for plan in plans), least_requests(plans)
        what = f"{self.output_url}: {tables}: nothing is fetched"
        self._reserve.check(self.salesforce_conn_id, allocation=API_REQUESTS, least=least, what=what)

    def _fetch(
        self, plans: Sequence[RefreshPlan], files: RefreshFiles, snapshot: int, rules: Mapping[str, FieldRules]
    ) -> dict[str, dict[str, Any]]:
        """Write the records that the job merges; return the counts of fetched records by table."""
        from airflow_provider_sfstream.hooks.salesforce_records import SalesforceRecordHook
        from airflow_provider_sfstream.tables.refresh.fetch import TableFetch
        from airflow_provider_sfstream.tables.refresh.plan import check_org
        from airflow_provider_sfstream.tables.replica.refresh_document import RefreshDocument

        limits = self._config.bulk_threshold, self._config.bulk_page_records
        tables: dict[str, TableRefresh] = {}
        fetched: dict[str, dict[str, Any]] = {}
        with SalesforceRecordHook(self.salesforce_conn_id).get_conn() as client:
            check_org(plans, client.org_id, self.salesforce_conn_id)
            files.clean()
            for plan in plans:
                started = time.monotonic()
                fetch = TableFetch(client, files, plan, *limits, rules[plan.name])
                refresh = fetch.run()
                if refresh is None:
                    continue
                tables[plan.name] = refresh
                seconds = round(time.monotonic() - started, 2)
                counted = {"fetched": fetch.records, "deleted": fetch.deleted}
                fetched[plan.name] = {"mode": refresh.mode, **counted, "seconds": seconds}
                log.info("%s: fetched %s", plan.name, fetched[plan.name])
        files.publish(RefreshDocument(files.refresh_id, snapshot, tables))
        return fetched


def _table_names(tables: Any) -> Collection[str] | None:
    """Return the argument ``tables``, which may be templated, if it is a list of names."""
    if tables is None or (isinstance(tables, list | tuple) and all(isinstance(name, str) for name in tables)):
        return tables
    raise ConfigurationError(
        f"tables={tables!r} must be a list of table names. If it is a template, set "
        "render_template_as_native_obj=True in the DAG. Nothing was fetched."
    )
