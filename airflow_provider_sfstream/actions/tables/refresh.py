"""Refresh of a replica: records are fetched on the worker, and a job merges them or compares them."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream._airflow import AirflowSkipException
from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.actions.status import report_tables
from airflow_provider_sfstream.actions.tables.replica import (
    RefreshConfig,
    read_snapshot,
    snapshot_if_readable,
    table_names,
)
from airflow_provider_sfstream.actions.tables.table_job import check_output, hash_key
from airflow_provider_sfstream.exceptions import LandingError

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import BaseOperator, Context

    from airflow_provider_sfstream.hooks.salesforce_allocations import AllocationReserve
    from airflow_provider_sfstream.privacy.field_rules import FieldRules
    from airflow_provider_sfstream.tables.refresh.fetch import RefreshFiles
    from airflow_provider_sfstream.tables.refresh.plan import RefreshPlan
    from airflow_provider_sfstream.tables.replica.config import ReplicaConfig
    from airflow_provider_sfstream.tables.replica.refresh_document import TableRefresh

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class ReplicaRefresh:
    """One refresh. The arguments are those of the operator, once they are rendered."""

    config: RefreshConfig
    output_url: str
    output_conn_id: str | None
    salesforce_conn_id: str
    tables: Sequence[str] | None
    hash_conn_id: str | None
    reserve: AllocationReserve
    fetched: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, init=False)
    """Counts of fetched records, by table."""

    def run(
        self, task: BaseOperator, context: Context, job: Callable[[ReplicaConfig], dict[str, Any] | None]
    ) -> dict[str, Any]:
        """Fetch the records, and run the job; return the result by table.

        :param task: which fails, or is skipped if there is nothing to fetch.
        :param job: runs the ``replica`` job; returns its metrics, ``None`` where they cannot be read.
        """
        from airflow_provider_sfstream.actions.storage import storage_path
        from airflow_provider_sfstream.tables.refresh.fetch import RefreshFiles

        started = time.monotonic()
        with airflow_errors(task):
            check_output(self.output_url)
            snapshot = read_snapshot(self.output_url, self.output_conn_id)
            plans = self.config.plans(snapshot, table_names(self.tables))
        if not plans:
            raise AirflowSkipException(self.config.nothing_to_do)
        with airflow_errors(task):
            rules = {plan.name: self._rules_of(plan) for plan in plans}
            self._check_reserve(plans)
        files = RefreshFiles(self.output_url, partial(storage_path, conn_id=self.output_conn_id), _refresh_id())
        try:
            with airflow_errors(task):
                self.fetched = self._fetch(plans, files, snapshot.number, rules)
            if not self.fetched:
                raise AirflowSkipException("The connection's user may not read any of the values to fetch.")
            with airflow_errors(task):
                metrics = job(self.config.job_config(files.url)) or {}
        finally:
            with suppress(LandingError):  # the next refresh removes the rest
                files.clean()
        report_tables(self.output_url, "refresh", context, metrics)
        merged = metrics.get("tables", {})
        tables = {name: {**one, **self.config.table_result(merged.get(name, {}))} for name, one in self.fetched.items()}
        seconds = round(time.monotonic() - started, 2)
        return {"snapshot": metrics.get("snapshot"), "tables": tables, "seconds": seconds}

    def _rules_of(self, plan: RefreshPlan) -> FieldRules:
        """Return the field rules of a table, with the key of its hashes."""
        rules = plan.table.rules.with_key(hash_key(self.hash_conn_id))
        rules.check_keep(plan.table.rules, f"The table {plan.name} of {self.output_url}")
        return rules

    def _check_reserve(self, plans: Sequence[RefreshPlan]) -> None:
        from airflow_provider_sfstream.salesforce.allocations import API_REQUESTS
        from airflow_provider_sfstream.tables.refresh.plan import least_requests

        tables, least = ", ".join(plan.name for plan in plans), least_requests(plans)
        what = f"{self.output_url}: {tables}: nothing is fetched"
        self.reserve.check(self.salesforce_conn_id, allocation=API_REQUESTS, least=least, what=what)

    def _fetch(
        self, plans: Sequence[RefreshPlan], files: RefreshFiles, snapshot: int, rules: Mapping[str, FieldRules]
    ) -> dict[str, dict[str, Any]]:
        """Write the records that the job merges; return the counts of fetched records by table."""
        from airflow_provider_sfstream.hooks.salesforce_records import SalesforceRecordHook
        from airflow_provider_sfstream.tables.refresh.fetch import Limits, TableFetch
        from airflow_provider_sfstream.tables.refresh.plan import check_org
        from airflow_provider_sfstream.tables.replica.refresh_document import RefreshDocument

        limits = Limits(self.config.bulk_threshold, self.config.bulk_page_records)
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
                    continue
                tables[plan.name] = refresh
                seconds = round(time.monotonic() - started, 2)
                counted = {"fetched": fetch.fetched.records, "deleted": fetch.fetched.deleted}
                fetched[plan.name] = {"mode": refresh.mode, **counted, "seconds": seconds}
                log.info("%s: fetched %s", plan.name, fetched[plan.name])
        files.publish(RefreshDocument(files.refresh_id, snapshot, tables))
        return fetched


def refresh_lineage(
    salesforce_conn_id: str, output_url: str, refresh: ReplicaRefresh | None, metrics: dict[str, Any] | None
) -> OperatorLineage:
    """Return the objects that were fetched as inputs, and the tables that they were merged into as outputs.

    :param refresh: ``None`` before it has ended.
    :param metrics: of the job.
    """
    from airflow_provider_sfstream.actions import open_lineage

    fetched = refresh.fetched if refresh else {}
    snapshot = snapshot_if_readable(output_url, refresh.output_conn_id) if refresh and fetched else None
    return open_lineage.refresh_lineage(salesforce_conn_id, output_url, fetched, metrics, snapshot)


def _refresh_id() -> str:
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(8)}"
