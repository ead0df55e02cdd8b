"""Compare the fields that no event carries with the org."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.tasks.refresh import RefreshOperator, names_of

if TYPE_CHECKING:
    from airflow_provider_sfstream.refresh.plan import RefreshPlan
    from airflow_provider_sfstream.spark.replica.snapshots import Snapshot


class RefreshComputedFieldsOperator(RefreshOperator):
    """Fetch the fields of all records that no change event carries, and merge those values that are others.

    Formula fields and roll-up summaries change without an event and without ``SystemModstamp``: when a parent record
    changes, a child, or the day. What such fields there are, describe says: those that the schema of the change events
    lacks. A table gets a column for each. Only ``Id`` and these fields are queried, through the Bulk API where a table
    is large; rows whose values are the same are not written, and nothing else of a row changes: neither its other
    columns nor whether it is dirty. A column whose field is gone, or hidden from the user, becomes null.

    Their values are then those that the org had while they were fetched. The replica's snapshot names the columns and
    that moment (``computed``: ``columns``, ``compared_at``).

    One job at a time may write below one ``output_url``, the one that applies events included (``max_active_runs=1``,
    or a pool of one slot for all DAGs that share it). A retry begins anew.

    The XCom result: ``snapshot``, ``seconds`` and ``tables``; of each ``mode`` (``computed``), ``fetched`` records,
    ``seconds`` to fetch them, and how many rows ``differed``. ``snapshot`` and ``differed`` are ``None`` where the
    worker cannot read the metrics file. With no table, the task is skipped.

    :param output_url: folder of the replica, as a URL that Spark can write to. (templated)
    :param salesforce_conn_id: Airflow connection to the org that the replica is of. (templated)
    :param tables: tables to compare; ``None`` for all of the replica. (templated)
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

    nothing_to_do = "The replica has no table yet."

    def __init__(self, *, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(name=name or "sfstream-refresh-computed-fields", **kwargs)

    def plans(self, snapshot: Snapshot) -> list[RefreshPlan]:
        """Return a plan for each table."""
        from airflow_provider_sfstream.refresh.plan import plan_all

        return plan_all(snapshot, names_of("tables", self.tables), "computed")

    def job_arguments(self) -> list[str]:
        """Return nothing: no row is added or deleted."""
        return []

    def table_result(self, merged: dict[str, Any]) -> dict[str, Any]:
        """Return how many rows of a table had other values."""
        return {"differed": merged.get("differed")}
