"""Scopes of a replica's refresh: the records that it fetches, and the arguments that it supports."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

<<<<<<< HEAD
from airflow_provider_sfstream._airflow import AirflowSkipException
from airflow_provider_sfstream.exceptions import ConfigurationError, LandingError
from airflow_provider_sfstream.tasks.allocations import AllocationReserve
from airflow_provider_sfstream.tasks.failures import airflow_errors
from airflow_provider_sfstream.tasks.field_rules import hash_key
from airflow_provider_sfstream.tasks.lineage import TellsLineage
from airflow_provider_sfstream.tasks.parts import check_positive
from airflow_provider_sfstream.tasks.replica import read_snapshot, snapshot_if_readable
from airflow_provider_sfstream.tasks.spark_job import SparkJobOperator
from airflow_provider_sfstream.tasks.status import tell_of_tables
from airflow_provider_sfstream.tasks.table_job import check_output

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from airflow_provider_sfstream.protocol.field_rules import FieldRules
    from airflow_provider_sfstream.refresh.files import RefreshFiles
    from airflow_provider_sfstream.refresh.plan import RefreshPlan
    from airflow_provider_sfstream.spark.replica.refresh_document import TableRefresh
    from airflow_provider_sfstream.spark.replica.snapshots import Snapshot
=======
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tasks.parts import check_choice

if TYPE_CHECKING:
    from airflow_provider_sfstream.refresh.plan import ComputedFields, RefreshPlan
    from airflow_provider_sfstream.spark.replica.snapshots import Snapshot
    from airflow_provider_sfstream.spark.rows.merging import Deletes

Scope = Literal["dirty", "computed", "all"]
>>>>>>> main


@dataclass(frozen=True)
class RefreshScope:
    """Scope of a refresh, with the arguments that only some scopes support. ``None``: the argument's default.

<<<<<<< HEAD
    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, "salesforce_conn_id", "tables", "hash_conn_id")
    nothing_to_do: ClassVar[str]
    """Why the task is skipped, if there is nothing to fetch."""
    _fetched: Mapping[str, Mapping[str, Any]] = {}

    def __init__(
        self,
        *,
        output_url: str,
        salesforce_conn_id: str = "salesforce_default",
        tables: Sequence[str] | None = None,
        keep_snapshots: int = 10,
        bulk_threshold: int = 10_000,
        bulk_page_records: int = 10_000,
        allocation_reserve: float | Mapping[str, float] | None = None,
        hash_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        check_positive(
            bulk_threshold=bulk_threshold, bulk_page_records=bulk_page_records, keep_snapshots=keep_snapshots
        )
        super().__init__(script="replica.py", output_url=output_url, **kwargs)
        self.salesforce_conn_id = salesforce_conn_id
        self.tables = tables
        self.keep_snapshots = keep_snapshots
        self.bulk_threshold = bulk_threshold
        self.bulk_page_records = bulk_page_records
        self.allocation_reserve = allocation_reserve
        self.hash_conn_id = hash_conn_id
        self._reserve = AllocationReserve(allocation_reserve)

    @abstractmethod
    def plans(self, snapshot: Snapshot) -> list[RefreshPlan]:
        """Return what is to be fetched."""

    @abstractmethod
    def job_arguments(self) -> list[str]:
        """Return what the job is told beside the refresh."""

    @abstractmethod
    def table_result(self, merged: dict[str, Any]) -> dict[str, Any]:
        """Return what the result says of a table beside what was fetched, by the job's metrics of it."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Fetch, submit the job and wait for it; return what was fetched and what is left to fetch."""
        from airflow_provider_sfstream.refresh.files import RefreshFiles
        from airflow_provider_sfstream.tasks.storage import storage_path

        started = time.monotonic()
        with airflow_errors(self):
            check_output(self.output_url)
            snapshot = read_snapshot(self.output_url, self.output_conn_id)
            plans = self.plans(snapshot)
        if not plans:
            raise AirflowSkipException(self.nothing_to_do)
        with airflow_errors(self):
            rules = {plan.name: self._rules_of(plan) for plan in plans}
            self._check_reserve(plans)
        files = RefreshFiles(self.output_url, partial(storage_path, conn_id=self.output_conn_id), _refresh_id())
        try:
            with airflow_errors(self):
                fetched = self._fetch(plans, files, snapshot.number, rules)
            self._fetched = fetched
            if not fetched:
                raise AirflowSkipException("All that is to be fetched is hidden from the user of the connection.")
            arguments = ["--refresh", files.url, "--keep-snapshots", str(self.keep_snapshots)]
            metrics = self.submit(context, [*arguments, *self.job_arguments()]) or {}
        finally:
            with suppress(LandingError):  # what is left is removed by the next refresh
                files.clean()
        tell_of_tables(self.output_url, "refresh", context, metrics)
        merged = metrics.get("tables", {})
        return {
            "snapshot": metrics.get("snapshot"),
            "tables": {name: {**table, **self.table_result(merged.get(name, {}))} for name, table in fetched.items()},
            "seconds": round(time.monotonic() - started, 2),
        }

    def _check_reserve(self, plans: Sequence[RefreshPlan]) -> None:
        from airflow_provider_sfstream.protocol.allocations import API_REQUESTS
        from airflow_provider_sfstream.refresh.cost import least_requests

        tables, least = ", ".join(plan.name for plan in plans), least_requests(plans)
        what = f"{self.output_url}: {tables}: nothing is fetched"
        self._reserve.check(self.salesforce_conn_id, allocation=API_REQUESTS, least=least, what=what)

    def lineage(self, *, has_ended: bool) -> OperatorLineage:
        """Return the objects that were fetched as inputs, and the tables that they were merged into as outputs."""
        from airflow_provider_sfstream.tasks.open_lineage import refresh_lineage

        fetched = self._fetched if has_ended else {}
        snapshot = snapshot_if_readable(self.output_url, self.output_conn_id) if fetched else None
        return refresh_lineage(self.salesforce_conn_id, self.output_url, fetched, self.metrics, snapshot)

    def _rules_of(self, plan: RefreshPlan) -> FieldRules:
        """Return the rules for fields that a table is kept by, with the key of its hashes."""
        rules = plan.table.rules.with_key(hash_key(self.hash_conn_id))
        rules.check_keep(plan.table.rules, f"The table {plan.name} of {self.output_url}")
        return rules

    def _fetch(
        self, plans: Sequence[RefreshPlan], files: RefreshFiles, snapshot: int, rules: Mapping[str, FieldRules]
    ) -> dict[str, dict[str, Any]]:
        """Write what the job is to merge; return what was fetched by table."""
        from airflow_provider_sfstream.hooks.salesforce_records import SalesforceRecordHook
        from airflow_provider_sfstream.refresh.fetch import Limits, TableFetch
        from airflow_provider_sfstream.refresh.plan import check_org
        from airflow_provider_sfstream.spark.replica.refresh_document import RefreshDocument

        limits = Limits(self.bulk_threshold, self.bulk_page_records)
        tables: dict[str, TableRefresh] = {}
        fetched: dict[str, dict[str, Any]] = {}
        with SalesforceRecordHook(self.salesforce_conn_id).get_conn() as client:
            check_org(plans, client.org_id, self.salesforce_conn_id)
            files.clean()
            for plan in plans:
                started = time.monotonic()
                fetch = TableFetch(client, files, plan, limits, rules[plan.name])
                refresh = fetch.run()
                if refresh is None:
                    self.log.warning("%s stays flagged: show these fields to the user of the connection.", plan.name)
                    continue
                tables[plan.name] = refresh
                seconds = round(time.monotonic() - started, 2)
                counted = {"fetched": fetch.fetched.records, "deleted": fetch.fetched.deleted}
                fetched[plan.name] = {"mode": plan.mode, **counted, "seconds": seconds}
                self.log.info("%s: fetched %s", plan.name, fetched[plan.name])
        files.publish(RefreshDocument(files.refresh_id, snapshot, tables))
        return fetched


def names_of(argument: str, value: Any) -> Collection[str] | None:
    """Return a list of names that may be templated.

    :raises ConfigurationError: if it is something else.
=======
    :raises ConfigurationError: if an argument has an invalid value, or the scope does not support it.
>>>>>>> main
    """

    scope: Scope = "dirty"
    verify: bool = False
    computed_fields: ComputedFields | None = None
    deletes: Deletes | None = None
    max_deleted_fraction: float | None = None

    def __post_init__(self) -> None:
        check_choice("scope", self.scope, ("dirty", "computed", "all"))
        if self.verify and self.scope != "all":
            raise ConfigurationError(
                f"verify=True compares all records, so scope={self.scope!r} does not support it. Set scope='all'."
            )
        if self.computed_fields is not None:
            check_choice("computed_fields", self.computed_fields, ("on_fetch", "on_change", "never"))
        if self.deletes is not None:
            check_choice("deletes", self.deletes, ("soft", "hard"))
        if self.max_deleted_fraction is not None and not 0 <= self.max_deleted_fraction <= 1:
            raise ConfigurationError(
                f"max_deleted_fraction={self.max_deleted_fraction!r} must be a share from 0 to 1: of the rows of a "
                "table, those that a refresh may delete because the org has no record for them."
            )
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
        """
        from airflow_provider_sfstream.refresh.plan import plan_all, plan_dirty

        computed_fields = self.computed_fields or "on_fetch"
        if self.scope == "dirty":
            return plan_dirty(snapshot, tables, computed_fields)
        if self.scope == "computed":
            return plan_all(snapshot, tables, "computed")
        return plan_all(snapshot, tables, "compare" if self.verify else "full", computed_fields)

    def job_arguments(self) -> list[str]:
        """Return the arguments of the ``replica`` job that were set."""
        arguments = []
        if self.deletes is not None:
            arguments += ["--deletes", self.deletes]
        if self.max_deleted_fraction is not None:
            arguments += ["--max-deleted-fraction", str(self.max_deleted_fraction)]
        return arguments

    def table_result(self, merged: dict[str, Any]) -> dict[str, Any]:
        """Return the job's part of a table's result.

        :param merged: the job's metrics of the table.
        """
        if self.scope == "computed":
            return {"differed": merged.get("differed")}
        if self.verify:
            found = merged.get("reconciliation") or {}
            names = ("records", "as_of", "ranges", "differing_ranges", "report")
            return {"flag": merged.get("flag"), **{name: found.get(name) for name in names}}
        return {"still_dirty": merged.get("dirty"), "flag": merged.get("flag")}


def table_names(tables: Any) -> Collection[str] | None:
    """Return the argument ``tables``, which may be templated.

    :raises ConfigurationError: if it is no list of names.
    """
    if tables is None or (isinstance(tables, list | tuple) and all(isinstance(name, str) for name in tables)):
        return tables
    raise ConfigurationError(
        f"tables={tables!r} must be a list of the names of tables. Where it is templated, the DAG needs "
        "render_template_as_native_obj=True. Nothing was fetched."
    )
