"""Fetch records of the org and merge them into a replica in the worker's own process, or compare them with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseOperator

from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.actions.tables.refresh import ReplicaRefresh, refresh_lineage
from airflow_provider_sfstream.actions.tables.replica import RefreshConfig, Scope
from airflow_provider_sfstream.actions.tables.table_job import config_of_run
from airflow_provider_sfstream.hooks.salesforce_allocations import AllocationReserve
from airflow_provider_sfstream.monitoring.lineage import LineageMixin

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from airflow_provider_sfstream.tables.replica.config import ReplicaConfig


class RefreshReplicaOperator(LineageMixin, BaseOperator):
    """Fetch records of a replica's org in the worker's process, and merge them into its tables, or compare them.

    The alternative on Spark is :class:`SparkSubmitRefreshReplicaOperator`. The same functions merge, one file group
    after another: scopes, results, reports and the effect of a retry are the same, and each operator can continue the
    other's tables. It needs neither Java nor pyspark.

    One job at a time may write below one ``output_url``, the one that applies events included (``max_active_runs=1``,
    or a pool of one slot for all DAGs that share it). A retry fetches everything again.

    The XCom result is that of the other operator. If there is nothing to fetch, the task is skipped.

    :param output_url: folder of the replica, as a URL of Airflow's object storage. (templated)
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
    :param output_conn_id: Airflow connection of its storage, if it needs one. (templated)
    :raises ConfigurationError: at construction, if an argument has an invalid value, or the scope does not support it.
    """

    template_fields: Sequence[str] = ("output_url", "output_conn_id", "salesforce_conn_id", "tables", "hash_conn_id")
    metrics: dict[str, Any] | None = None
    """Metrics of the job of this run, once it has ended."""
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
        output_conn_id: str | None = None,
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
        super().__init__(**kwargs)
        self.output_url = output_url
        self.output_conn_id = output_conn_id
        self.salesforce_conn_id = salesforce_conn_id
        self.tables = tables
        self.hash_conn_id = hash_conn_id
        self._reserve = AllocationReserve(allocation_reserve)

    def execute(self, context: Context) -> dict[str, Any]:
        """Fetch the records and run the job here; return the result by table."""
        self._refresh = ReplicaRefresh(
            config=self._config,
            output_url=self.output_url,
            output_conn_id=self.output_conn_id,
            salesforce_conn_id=self.salesforce_conn_id,
            tables=self.tables,
            hash_conn_id=self.hash_conn_id,
            reserve=self._reserve,
        )
        return self._refresh.run(self, context, partial(self._merge, context))

    def _merge(self, context: Context, config: ReplicaConfig) -> dict[str, Any]:
        from airflow_provider_sfstream.tables.replica.job import run
        from airflow_provider_sfstream.tables.runner.embedded import EmbeddedEngine

        files = ObjectStorageFiles(self.output_conn_id)
        with TemporaryDirectory(prefix="sfstream-") as folder:
            engine = EmbeddedEngine(files, files, folder)
            self.metrics = asdict(run(engine, config_of_run(config, self.output_url, context)))
        self.log.info("Job metrics: %s", self.metrics)
        return self.metrics

    def lineage(self, *, has_ended: bool) -> OperatorLineage:
        """Return the objects that were fetched as inputs, and the tables that they were merged into as outputs."""
        return refresh_lineage(
            self.salesforce_conn_id, self.output_url, self._refresh if has_ended else None, self.metrics
        )
