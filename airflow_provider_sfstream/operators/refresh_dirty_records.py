"""Fetch what replica tables cannot know from events alone."""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider_sfstream.exceptions import ConfigurationError, LandingError
from airflow_provider_sfstream.operators._parts import airflow_errors, check_choice, check_positive
from airflow_provider_sfstream.operators._replica import read_snapshot
from airflow_provider_sfstream.operators._spark_job import SparkJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_sfstream.operators._refresh_files import RefreshFiles
    from airflow_provider_sfstream.operators._refresh_plan import TablePlan
    from airflow_provider_sfstream.spark.refresh_document import TableRefresh


class RefreshDirtyRecordsOperator(SparkJobOperator):
    """Fetch dirty rows and flagged tables of a replica from the org, and merge them with the ``replica`` job.

    Dirty rows are fetched by id through the REST API. A flagged table (``new``, ``overflow``, ``gap``...) is fetched in
    full, through the Bulk API where it is large. Deleted records of the recycle bin come along; a row whose record the
    org no longer has is deleted. A row that saw an event while records were fetched stays dirty for the next refresh
    (docs/replica-refresh.md).

    One job at a time may write below one ``output_url``, the one that applies events included (``max_active_runs=1``,
    or a pool of one slot for all DAGs that share it). A retry begins anew.

    The XCom result: ``snapshot``, ``seconds`` and ``tables``; of each ``mode`` (``records`` or ``full``), ``fetched``
    records, how many of them are ``deleted`` in the org, ``seconds`` to fetch them, rows ``still_dirty`` and the
    ``flag`` that is left. ``snapshot`` and the last two are ``None`` where the worker cannot read the metrics file.
    With nothing dirty and no flag, the task is skipped.

    :param output_url: folder of the replica, as a URL that Spark can write to. (templated)
    :param salesforce_conn_id: Airflow connection to the org that the replica is of. Its user should see all records and
        fields of the tables. (templated)
    :param tables: tables to look at; ``None`` for all of the replica. (templated)
    :param full: tables to fetch in full although they are not flagged; ``True`` for all of ``tables``. (templated)
    :param deletes: ``"soft"`` or ``"hard"``, as for the job that applies events.
    :param keep_snapshots: as for the job that applies events.
    :param bulk_threshold: a table of at least this many records is fetched through the Bulk API.
    :param bulk_page_records: records of one page of the Bulk API, which is held in memory.
    :param output_conn_id: Airflow connection with which the worker reads the replica's state, writes what it fetches
        and reads the metrics file, where it needs one. The job itself uses Spark's credentials. (templated)
    :param conn_id: Airflow connection that names the Spark master.
    """

    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, "salesforce_conn_id", "tables", "full")

    def __init__(
        self,
        *,
        output_url: str,
        salesforce_conn_id: str = "salesforce_default",
        tables: Sequence[str] | None = None,
        full: bool | Sequence[str] = False,
        deletes: Literal["soft", "hard"] = "soft",
        keep_snapshots: int = 10,
        bulk_threshold: int = 10_000,
        bulk_page_records: int = 10_000,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        check_choice("deletes", deletes, ("soft", "hard"))
        check_positive(
            bulk_threshold=bulk_threshold, bulk_page_records=bulk_page_records, keep_snapshots=keep_snapshots
        )
        super().__init__(script="replica.py", output_url=output_url, name=name or "sfstream-refresh", **kwargs)
        self.salesforce_conn_id = salesforce_conn_id
        self.tables = tables
        self.full = full
        self.deletes = deletes
        self.keep_snapshots = keep_snapshots
        self.bulk_threshold = bulk_threshold
        self.bulk_page_records = bulk_page_records

    def execute(self, context: Context) -> dict[str, Any]:
        """Fetch, submit the job and wait for it; return what was fetched and what is left to fetch."""
        from airflow_provider_sfstream.operators._refresh_files import RefreshFiles
        from airflow_provider_sfstream.operators._refresh_plan import plan

        started = time.monotonic()
        with airflow_errors():
            self.check_output()
            snapshot = read_snapshot(self.output_url, self.output_conn_id)
            plans = plan(snapshot, _names("tables", self.tables), _full(self.full))
        if not plans:
            raise AirflowSkipException("No row of the replica is dirty, and no table is flagged.")
        files = RefreshFiles(self.output_url, self.output_conn_id, _refresh_id())
        try:
            with airflow_errors():
                fetched = self._fetch(plans, files, snapshot.number)
            arguments = ["--refresh", files.url, "--deletes", self.deletes]
            metrics = self.submit(context, [*arguments, "--keep-snapshots", str(self.keep_snapshots)])
        finally:
            with suppress(LandingError):  # what is left is removed by the next refresh
                files.clean()
        return self._result(fetched, metrics, started)

    def _fetch(self, plans: Sequence[TablePlan], files: RefreshFiles, snapshot: int) -> dict[str, dict[str, Any]]:
        """Write what the job is to merge; return what was fetched by table."""
        from airflow_provider_sfstream.hooks.salesforce_records import SalesforceRecordHook
        from airflow_provider_sfstream.operators._refresh_fetch import Limits, TableFetch
        from airflow_provider_sfstream.operators._refresh_plan import check_org
        from airflow_provider_sfstream.spark.refresh_document import RefreshDocument

        limits = Limits(self.bulk_threshold, self.bulk_page_records)
        tables: dict[str, TableRefresh] = {}
        fetched: dict[str, dict[str, Any]] = {}
        with SalesforceRecordHook(self.salesforce_conn_id).get_conn() as client:
            check_org(plans, client.org_id, self.salesforce_conn_id)
            files.clean()
            for plan in plans:
                started = time.monotonic()
                fetch = TableFetch(client, files, plan, limits)
                tables[plan.name] = fetch.run()
                seconds = round(time.monotonic() - started, 2)
                counted = {"fetched": fetch.fetched.records, "deleted": fetch.fetched.deleted}
                fetched[plan.name] = {"mode": plan.mode, **counted, "seconds": seconds}
                self.log.info("%s: fetched %s", plan.name, fetched[plan.name])
        files.publish(RefreshDocument(files.refresh_id, snapshot, tables))
        return fetched

    def _result(
        self, fetched: dict[str, dict[str, Any]], metrics: dict[str, Any] | None, started: float
    ) -> dict[str, Any]:
        after = (metrics or {}).get("tables", {})
        tables = {
            name: {
                **table,
                "still_dirty": after.get(name, {}).get("dirty"),
                "flag": after.get(name, {}).get("flag"),
            }
            for name, table in fetched.items()
        }
        return {
            "snapshot": (metrics or {}).get("snapshot"),
            "tables": tables,
            "seconds": round(time.monotonic() - started, 2),
        }


def _refresh_id() -> str:
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(8)}"


def _full(value: Any) -> bool | Collection[str]:
    return value if isinstance(value, bool) else _names("full", value) or False


def _names(argument: str, value: Any) -> Collection[str] | None:
    """Return a list of names that may be templated.

    :raises ConfigurationError: if it is something else.
    """
    if value is None or (isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)):
        return value
    raise ConfigurationError(
        f"{argument}={value!r} must be a list of the names of tables. Where it is templated, the DAG needs "
        "render_template_as_native_obj=True. Nothing was fetched."
    )
