"""The refresh operators with the job in the test's own Spark session, in place of a ``spark-submit`` for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from airflow_provider_sfstream.operators.reconcile_replica import ReconcileReplicaOperator
from airflow_provider_sfstream.operators.refresh_computed_fields import RefreshComputedFieldsOperator
from airflow_provider_sfstream.operators.refresh_dirty_records import RefreshDirtyRecordsOperator
from airflow_provider_sfstream.spark.apps.replica import parse_arguments
from airflow_provider_sfstream.spark.engines.on_spark import SparkEngine
from airflow_provider_sfstream.spark.replica.job import run
from airflow_provider_sfstream.tasks.refresh import RefreshOperator
from tests.support.tasks import context_for


class _InSession(RefreshOperator):
    """Does all that the operator does, but runs the job in a Spark session."""

    spark: Any
    before_job: Callable[[], object] | None

    def submit(self, context: Any, arguments: Sequence[str]) -> dict[str, Any]:
        if self.before_job is not None:
            self.before_job()
        return asdict(run(SparkEngine(self.spark), parse_arguments([*arguments, "--output", self.output_url])))


class RefreshInSession(_InSession, RefreshDirtyRecordsOperator):
    """Made by :func:`refresh`."""


class ReconcileInSession(_InSession, ReconcileReplicaOperator):
    """Made by :func:`reconcile`."""


class ComputedInSession(_InSession, RefreshComputedFieldsOperator):
    """Made by :func:`refresh_computed`."""


def refresh(spark: Any, *, before_job: Callable[[], object] | None = None, **arguments: Any) -> dict[str, Any]:
    """Run the task; return its XCom result.

    :param before_job: called when everything is fetched, before the job.
    :param arguments: of the operator.
    """
    return _run(RefreshInSession(task_id="refresh", **arguments), spark, before_job)


def refresh_computed(spark: Any, **arguments: Any) -> dict[str, Any]:
    """Run the task that compares computed fields; return its XCom result."""
    return _run(ComputedInSession(task_id="refresh", **arguments), spark, None)


def reconcile(spark: Any, **arguments: Any) -> dict[str, Any]:
    """Run the task that compares a replica with the org; return its XCom result."""
    return _run(ReconcileInSession(task_id="reconcile", **arguments), spark, None)


def _run(operator: _InSession, spark: Any, before_job: Callable[[], object] | None) -> dict[str, Any]:
    operator.spark, operator.before_job = spark, before_job
    return operator.execute(context_for("refresh"))
