"""Refresh operator that runs its job in the test's Spark session instead of by ``spark-submit``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from airflow_provider_sfstream.operators.spark_submit_refresh_replica import SparkSubmitRefreshReplicaOperator
from airflow_provider_sfstream.tables.replica.job import run
from airflow_provider_sfstream.tables.runner.on_spark import SparkEngine
from tests.support.tasks import context_for


class _InSession(SparkSubmitRefreshReplicaOperator):
    """Refresh operator that runs the job in a Spark session."""

    spark: Any
    before_job: Callable[[], object] | None

    def run_job(self, context: Any, config: Any) -> dict[str, Any]:
        if self.before_job is not None:
            self.before_job()
        return asdict(run(SparkEngine(self.spark), replace(config, output_url=self.output_url)))


def refresh(spark: Any, *, before_job: Callable[[], object] | None = None, **arguments: Any) -> dict[str, Any]:
    """Run the refresh task, and return its XCom result.

    :param before_job: function that is called after the fetch, before the job.
    :param arguments: arguments of the operator.
    """
    operator = _InSession(task_id="refresh", **arguments)
    operator.spark, operator.before_job = spark, before_job
    return operator.execute(context_for("refresh"))
