"""Fetch records of the org and merge them into a replica with Spark, or compare them with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_sfstream.actions.tables.refresh import ReplicaRefresh, refresh_lineage
from airflow_provider_sfstream.actions.tables.replica import RefreshConfig, Scope
from airflow_provider_sfstream.actions.tables.spark_job import SparkJobOperator
from airflow_provider_sfstream.hooks.salesforce_allocations import AllocationReserve
from airflow_provider_sfstream.monitoring.lineage import LineageMixin

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context


class SparkSubmitRefreshReplicaOperator(LineageMixin, SparkJobOperator):
    """Fetch records of a replica's org, and merge them with the ``replica`` job, or compare them with the tables.

    ``scope="dirty"`` fetches data that events lack: dirty rows by id, through the REST API; all records of a flagged
    table (``new``, ``overflow``, ``gap``...), through the Bulk API if there are many; for the flag ``schema`` the
    columns that it names. Deleted records of the recycle bin are included; a row whose record the org no longer has is
    deleted. A row with an event during the fetch stays dirty for the next refresh (docs/replica-refresh.md). Fields
    that no event carries, such as formulas and roll-up summaries, are fetched with each record.

    ``scope="all"`` fetches all records of all tables in the same way, flagged or not.

    ``scope="computed"`` fetches, of all records, ``Id`` and the fields that no event carries, and merges the values
    that differ. Formula fields and roll-up summaries change without an event and without ``SystemModstamp``: when a
    parent record changes, a child, or the day. These fields are those of describe that the schema of the change events
    lacks; a table gets a column for each. Other columns of a row, and its dirty state, do not change. A column becomes
    null if its field was deleted or is hidden from the user. The replica's snapshot names the columns and the time of
    the comparison (``computed``: ``columns``, ``compared_at``).

    ``scope="all"`` with ``verify=True`` fetches all records with the columns that events carry, and compares them with
    the tables, value by value: it proves that table and object are equal, or reports the differences. It merges no
    value. Each record is ``equal``, or

    - ``different``: its row has another value, or only one of them is deleted;
    - ``missing``: it has no row; ``gone``: the org has no record for a row, not even in its recycle bin;
    - ``changed_since``: it was changed after the last change that the table has, or while records were fetched;
    - ``dirty``: the replica has marked the row to be fetched.

    Rows that are different, missing or gone become dirty (``differs``), so that the next refresh fetches them. The
    report, ``report`` below the output folder, has the counts for each range of ids. Reports are kept until records of
    the object are erased.

    One job at a time may write below one ``output_url``, the one that applies events included (``max_active_runs=1``,
    or a pool of one slot for all DAGs that share it). A retry fetches everything again.

    The XCom result: ``snapshot``, ``seconds`` and ``tables``; of each ``mode`` (``records``, ``columns``, ``full``,
    ``computed`` or ``compare``), the numbers of ``fetched`` records and of ``deleted`` ones, the ``seconds`` to fetch
    them, and by scope

    - ``"dirty"`` and ``"all"``: rows ``still_dirty`` and the remaining ``flag``;
    - ``"computed"``: the number of rows that ``differed``;
    - ``verify=True``: the ``flag``, ``records`` of each kind, ``as_of`` (the time of the last change that the table
      has), the number of ``ranges`` of ids, the first ten ``differing_ranges``, and ``report``.

    ``snapshot`` and these are ``None`` where the worker cannot read the metrics file. If there is nothing to fetch, the
    task is skipped.

    :param output_url: folder of the replica, as a URL that Spark can write to. (templated)
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
        the table records, ``"soft"`` where there is none. Another choice than the recorded one fails before anything
        is fetched. Not with ``scope="computed"``.
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
    :param output_conn_id: Airflow connection with which the worker reads the replica's state, writes fetched records
        and reads the metrics file, if it needs one. The job itself uses Spark's credentials. (templated)
    :param conn_id: Airflow connection that names the Spark master.
    :raises ConfigurationError: at construction, if an argument has an invalid value, or the scope does not support it.
    """

    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, "salesforce_conn_id", "tables", "hash_conn_id")
    _refresh: ReplicaRefresh | None = None

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
        name: str | None = None,
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
        super().__init__(script="replica.py", output_url=output_url, name=name or "sfstream-refresh", **kwargs)
        self.salesforce_conn_id = salesforce_conn_id
        self.tables = tables
        self.hash_conn_id = hash_conn_id
        self._reserve = AllocationReserve(allocation_reserve)

    def execute(self, context: Context) -> dict[str, Any]:
        """Fetch the records, submit the job and wait for it; return the result by table."""
        self._refresh = ReplicaRefresh(
            config=self._config,
            output_url=self.output_url,
            output_conn_id=self.output_conn_id,
            salesforce_conn_id=self.salesforce_conn_id,
            tables=self.tables,
            hash_conn_id=self.hash_conn_id,
            reserve=self._reserve,
        )
        return self._refresh.run(self, context, partial(self.submit, context))

    def lineage(self, *, has_ended: bool) -> OperatorLineage:
        """Return the objects that were fetched as inputs, and the tables that they were merged into as outputs."""
        return refresh_lineage(
            self.salesforce_conn_id, self.output_url, self._refresh if has_ended else None, self.metrics
        )
