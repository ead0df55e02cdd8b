"""Fetch what replica tables cannot know from events alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tasks.parts import check_choice
from airflow_provider_sfstream.tasks.refresh import RefreshOperator, names_of

if TYPE_CHECKING:
    from airflow_provider_sfstream.refresh.plan import RefreshPlan
    from airflow_provider_sfstream.spark.replica.snapshots import Snapshot


class RefreshDirtyRecordsOperator(RefreshOperator):
    """Fetch dirty rows and flagged tables of a replica from the org, and merge them with the ``replica`` job.

    Dirty rows are fetched by id through the REST API. A flagged table (``new``, ``overflow``, ``gap``...) is fetched in
    full, through the Bulk API where it is large; for the flag ``schema`` the columns that it names. Deleted records of
    the recycle bin come along; a row whose record the org no longer has is deleted. A row that saw an event while
    records were fetched stays dirty for the next refresh (docs/replica-refresh.md). Fields that no event carries,
    formulas and roll-up summaries among them, come with each record that is fetched.

    One job at a time may write below one ``output_url``, the one that applies events included (``max_active_runs=1``,
    or a pool of one slot for all DAGs that share it). A retry begins anew.

    The XCom result: ``snapshot``, ``seconds`` and ``tables``; of each ``mode`` (``records``, ``columns``, ``full`` or
    ``computed``),
    ``fetched`` records, how many of them are ``deleted`` in the org, ``seconds`` to fetch them, rows ``still_dirty``
    and the ``flag`` that is left. ``snapshot`` and the last two are ``None`` where the worker cannot read the metrics
    file. With nothing dirty and no flag, the task is skipped.

    :param output_url: folder of the replica, as a URL that Spark can write to. (templated)
    :param salesforce_conn_id: Airflow connection to the org that the replica is of. Its user should see all records and
        fields of the tables. (templated)
    :param tables: tables to look at; ``None`` for all of the replica. (templated)
    :param full: tables to fetch in full although they are not flagged; ``True`` for all of ``tables``. (templated)
    :param computed_fields: which records' values of the fields that no event carries are fetched: ``"on_fetch"`` with
        those that are fetched anyway; ``"on_change"`` of those, too, that an event changed since, from the first
        refresh on that asks for it; ``"never"`` none. A formula over other records changes without an event:
        ``RefreshComputedFieldsOperator`` compares them all.
    :param deletes: ``"soft"`` or ``"hard"``, as for the job that applies events.
    :param max_deleted_fraction: the share of a table's rows (0 to 1) for which the org may give no record, not even in
        its recycle bin. More are an error, and nothing is changed: the user of the connection may
        not see them. Up to ten rows of a table always may be gone.
    :param keep_snapshots: as for the job that applies events.
    :param bulk_threshold: a table of at least this many records is fetched through the Bulk API.
    :param bulk_page_records: records of one page of the Bulk API, which is held in memory.
    :param allocation_reserve: before anything is fetched: fail (``AllocationReserveError``, not tried again) if less
        than this of the org's API requests would remain. A number of requests (``int``), a share (``float`` from 0.0 to
        1.0), or a dict of these by the names of allocations. docs/sizing.md#allocations
    :param hash_conn_id: Airflow connection whose password is the key of hashes, where a table has some
        (``hash_fields``). What is fetched is hashed before it is written. (templated)
    :param output_conn_id: Airflow connection with which the worker reads the replica's state, writes what it fetches
        and reads the metrics file, where it needs one. The job itself uses Spark's credentials. (templated)
    :param conn_id: Airflow connection that names the Spark master.
    :param small_window_options: for jobs on some 10,000 events at most: settings with which Spark starts and plans
        sooner, and would take longer for many. Where the driver runs on the worker, Java's archive of Spark's classes
        is kept below ``AIRFLOW_HOME``. Settings in ``conf`` go before.
    """

    template_fields: Sequence[str] = (*RefreshOperator.template_fields, "full")
    nothing_to_do = "No row of the replica is dirty, and no table is flagged."

    def __init__(
        self,
        *,
        full: bool | Sequence[str] = False,
        computed_fields: Literal["on_fetch", "on_change", "never"] = "on_fetch",
        deletes: Literal["soft", "hard"] = "soft",
        max_deleted_fraction: float = 0.2,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        check_choice("deletes", deletes, ("soft", "hard"))
        check_choice("computed_fields", computed_fields, ("on_fetch", "on_change", "never"))
        if not 0 <= max_deleted_fraction <= 1:
            raise ConfigurationError(
                f"max_deleted_fraction={max_deleted_fraction!r} must be a share from 0 to 1: of the rows of a table, "
                "those that a refresh may delete because the org gives no record for them."
            )
        super().__init__(name=name or "sfstream-refresh", **kwargs)
        self.full = full
        self.computed_fields = computed_fields
        self.deletes = deletes
        self.max_deleted_fraction = max_deleted_fraction

    def plans(self, snapshot: Snapshot) -> list[RefreshPlan]:
        """Return what has to be fetched of dirty rows and flagged tables."""
        from airflow_provider_sfstream.refresh.plan import plan

        return plan(snapshot, names_of("tables", self.tables), _full(self.full), self.computed_fields)

    def job_arguments(self) -> list[str]:
        """Return what the job is told of records that are gone."""
        return ["--deletes", self.deletes, "--max-deleted-fraction", str(self.max_deleted_fraction)]

    def table_result(self, merged: dict[str, Any]) -> dict[str, Any]:
        """Return what is left to fetch of a table."""
        return {"still_dirty": merged.get("dirty"), "flag": merged.get("flag")}


def _full(value: Any) -> bool | Collection[str]:
    return value if isinstance(value, bool) else names_of("full", value) or False
