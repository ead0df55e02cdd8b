"""Apply landed change events to replica tables in the worker's own process."""

from __future__ import annotations

from airflow_provider_sfstream.actions.tables.embedded_job import EmbeddedWindowsOperator
from airflow_provider_sfstream.actions.tables.replica import ReplicaJobOperator


class ReplicaOperator(ReplicaJobOperator, EmbeddedWindowsOperator):
    """Apply landed change events to replica tables in the worker's process, for small windows, or without Spark.

    The alternative on Spark is :class:`SparkSubmitReplicaOperator`.

    The same functions write the same Delta tables, one large file group after another: columns, quarantine, dirty
    lists, history, metrics and the effect of a retry are the same, and each operator can continue the other's tables.
    It needs the extra ``tables``, and neither Java nor pyspark. The process needed 307 to 379 MiB for up to 1,000,000
    changed records of 80 columns, including 210 MiB before the job; all changes of one record are in memory together.
    Landed files are copied to the worker's temporary folder. :class:`RefreshReplicaOperator` fetches data that events
    lack; maintenance runs on Spark.

    One job at a time may write below one ``output_url``, refreshes and Spark's jobs included (``max_active_runs=1``, or
    a pool of one slot).

    The XCom result is the job's metrics, as of that operator; ``application_id`` is empty. Without events, and without
    held events, the task is skipped.

    :param max_events: most events of all windows to apply, including missing windows between and held events; with
        more, the task fails before it writes anything.
    :raises ConfigurationError: at construction, if an argument is unusable.
    """

    template_fields = (*EmbeddedWindowsOperator.template_fields, "windows", "landing_conn_id", "hash_conn_id")
    spark_operator = "SparkSubmitReplicaOperator"
