"""Apply landed change events to replica tables."""

from __future__ import annotations

from airflow_provider_sfstream.actions.tables.replica import ReplicaJobOperator
from airflow_provider_sfstream.actions.tables.spark_job import SparkJobOperator
from airflow_provider_sfstream.monitoring.links import ManifestLink, SparkUILink, StreamLink


class SparkSubmitReplicaOperator(ReplicaJobOperator, SparkJobOperator):
    """Run the ``replica`` job: apply change events of landed windows to one table for each Salesforce object.

    The job applies all live windows of the stream in order: it skips applied windows, and finds missing ones. So a
    retry, a clear, a run before the retry of an earlier one, and a backfill are harmless. Rows with incomplete data
    (after gap events, or of records older than the stream) are marked dirty, and
    :class:`SparkSubmitRefreshReplicaOperator` fetches them.

    One job at a time may write below one ``output_url``, refreshes included (``max_active_runs=1``, or a pool of one
    slot for all DAGs that share it).

    The XCom result is the job's metrics: ``windows`` applied, ``events`` in them, ``held`` events of an
    incomplete transaction, ``quarantined``, ``snapshot``, ``tables`` (of each: ``rows`` rewritten, ``deleted``,
    ``dirty`` rows in all, ``flag``), ``seconds`` and ``application_id`` (of Spark); ``None`` where the
    worker cannot read the metrics of this run at ``{output_url}/_sfstream/metrics/``. Without events, and with none
    held, the task is skipped.

    :param hash_conn_id: Airflow connection whose password is the key of hashes. A driver that Spark runs on a cluster
        reads the key from ``SFSTREAM_HASH_KEY``, which the cluster sets: omit it there. (templated)
    """

    template_fields = (*SparkJobOperator.template_fields, "windows", "hash_conn_id")
    operator_extra_links = (StreamLink(), ManifestLink(), SparkUILink())
    name_on_spark = "sfstream-replica"
