"""Compare replica tables with the org."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_sfstream.tasks.parts import check_choice
from airflow_provider_sfstream.tasks.refresh import RefreshOperator, names_of

if TYPE_CHECKING:
    from airflow_provider_sfstream.refresh.plan import RefreshPlan
    from airflow_provider_sfstream.spark.replica.snapshots import Snapshot


class ReconcileReplicaOperator(RefreshOperator):
    """Compare the tables of a replica with all records of the org, value by value; count, and keep a report.

    It is proof that table and object are equal, or says where they are not. All records are fetched as for a refresh,
    with the columns that events carry, and compared by the ``replica`` job. Each record is ``equal``, or

    - ``different``: its row has another value, or another word on whether it is deleted;
    - ``missing``: it has no row; ``gone``: the org has no record for a row, not even in its recycle bin;
    - ``changed_since``: it was changed after the last change that the table has, or while records were fetched;
    - ``dirty``: the replica says itself that the row is to be fetched.

    Rows that are different, missing or gone become dirty (``differs``), so that the next
    ``RefreshDirtyRecordsOperator`` fetches them. The report, ``report`` below the output folder, has the counts and a
    checksum of either side for each range of ids; they are of the records that were compared, and the same where
    nothing is wrong. Reports are kept.

    One job at a time may write below one ``output_url``, the one that applies events included (``max_active_runs=1``,
    or a pool of one slot for all DAGs that share it). A retry begins anew.

    The XCom result: ``snapshot``, ``seconds`` and ``tables``; of each ``mode`` (``compare``), ``fetched`` records,
    ``seconds`` to fetch them, the ``flag`` of the table, ``records`` of each kind, ``as_of`` (the time of the last
    change that the table has), how many ``ranges`` of ids there are, the first ten ``differing_ranges``, and
    ``report``. What the job finds is ``None`` where the worker cannot read the metrics file. With no table, the task
    is skipped.

    :param output_url: folder of the replica, as a URL that Spark can write to. (templated)
    :param salesforce_conn_id: Airflow connection to the org that the replica is of. Its user should see all records and
        fields of the tables: what it does not see is ``gone``, or not compared. (templated)
    :param tables: tables to compare; ``None`` for all of the replica. (templated)
    :param deletes: ``"soft"`` or ``"hard"``, as for the job that applies events.
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

    def __init__(self, *, deletes: Literal["soft", "hard"] = "soft", name: str | None = None, **kwargs: Any) -> None:
        check_choice("deletes", deletes, ("soft", "hard"))
        super().__init__(name=name or "sfstream-reconcile", **kwargs)
        self.deletes = deletes

    def plans(self, snapshot: Snapshot) -> list[RefreshPlan]:
        """Return a plan for each table."""
        from airflow_provider_sfstream.refresh.plan import plan_all

        return plan_all(snapshot, names_of("tables", self.tables), "compare")

    def job_arguments(self) -> list[str]:
        """Return what the job is told of deleted records."""
        return ["--deletes", self.deletes]

    def table_result(self, merged: dict[str, Any]) -> dict[str, Any]:
        """Return what the comparison of a table gave."""
        found = merged.get("reconciliation") or {}
        names = ("records", "as_of", "ranges", "differing_ranges", "report")
        return {"flag": merged.get("flag"), **{name: found.get(name) for name in names}}
