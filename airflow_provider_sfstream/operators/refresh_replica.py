"""Fetch records of the org and merge them into a replica in the worker's own process, or compare them with it."""

from __future__ import annotations

from airflow_provider_sfstream.actions.tables.embedded_job import EmbeddedJobOperator
from airflow_provider_sfstream.actions.tables.refresh import RefreshJobOperator


class RefreshReplicaOperator(RefreshJobOperator, EmbeddedJobOperator):
    """Fetch records of a replica's org in the worker's process, and merge them into its tables, or compare them.

    The alternative on Spark is :class:`SparkSubmitRefreshReplicaOperator`. The same functions merge, one file group
    after another: scopes, results, reports and the effect of a retry are the same, and each operator can continue the
    other's tables. It needs the extras ``salesforce`` and ``tables``, and neither Java nor
    pyspark.

    One job at a time may write below one ``output_url``, the one that applies events included (``max_active_runs=1``,
    or a pool of one slot for all DAGs that share it). A retry fetches everything again.

    The XCom result is that of the other operator. If there is nothing to fetch, the task is skipped.
    """

    template_fields = (*EmbeddedJobOperator.template_fields, *RefreshJobOperator.own_template_fields)
