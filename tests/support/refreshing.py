"""The refresh operator with the job in the test's own Spark session, in place of a ``spark-submit`` for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from airflow_provider_sfstream.operators.spark_submit_refresh_replica import SparkSubmitRefreshReplicaOperator
from airflow_provider_sfstream.tables.replica.job import run
from airflow_provider_sfstream.tables.runner.on_spark import SparkEngine
from tests.support.tasks import context_for


class _InSession(SparkSubmitRefreshReplicaOperator):
    """Does all that the operator does, but runs the job in a Spark session."""

    spark: Any
    before_job: Callable[[], object] | None

    def submit(self, context: Any, config: Any, hash_conn_id: str | None = None) -> dict[str, Any]:
        if self.before_job is not None:
            self.before_job()
        return asdict(run(SparkEngine(self.spark), replace(config, output_url=self.output_url)))


def refresh(spark: Any, *, before_job: Callable[[], object] | None = None, **arguments: Any) -> dict[str, Any]:
    """Run the task; return its XCom result.

    :param before_job: called when everything is fetched, before the job.
    :param arguments: of the operator.
    """
    operator = _InSession(task_id="refresh", **arguments)
    operator.spark, operator.before_job = spark, before_job
    return operator.execute(context_for("refresh"))
