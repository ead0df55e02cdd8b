"""The replica job, submitted by its operators to a standalone Spark cluster that loses a worker during a run."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

from airflow_provider_sfstream._airflow import AirflowSkipException
from airflow_provider_sfstream.operators.spark_submit_refresh_replica import SparkSubmitRefreshReplicaOperator
from airflow_provider_sfstream.operators.spark_submit_replica import SparkSubmitReplicaOperator
from airflow_provider_sfstream.tables.replica.reader import read_replica
from airflow_provider_sfstream.tables.rows.merging import Deletes
from tests.support.localorg import LocalOrg
from tests.support.replica_seeds import connection_to
from tests.support.spark import SETTINGS, SHORT_LIVED, short_lived_environment
from tests.support.standalone_cluster import Cluster, DriverPage
from tests.support.tasks import context_for

_SPARK = "seed_cluster"
_CONF = {
    **SETTINGS,
    **SHORT_LIVED,
    "spark.executor.extraJavaOptions": SHORT_LIVED["spark.driver.extraJavaOptions"],
    "spark.executor.cores": "1",
    "spark.executor.memory": "600m",
    "spark.log.level": "WARN",
}


class ClusterJob:
    """The replica job, run by the operators with ``spark-submit`` in client mode.

    :param reader: Spark session that reads the tables.
    :param lose_worker_in: number of the call of :meth:`apply`, from 0, during which a worker is killed.
    :param settings: additional Spark settings.
    """

    def __init__(
        self,
        cluster: Cluster,
        output: Path,
        reader: Any,
        *,
        lose_worker_in: int,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.output = output.as_uri()
        self.deletes: Deletes = "soft"
        self.lost: list[int] = []
        self._cluster, self._reader = cluster, reader
        self._conf = {**_CONF, **(settings or {})}
        self._until_loss = lose_worker_in

    def apply(self, manifests: Sequence[str]) -> dict[str, Any]:
        page = DriverPage()
        operator = SparkSubmitReplicaOperator(windows=list(manifests), **self._arguments("replica", page.settings))
        with self._loss(page), self._connection():
            metrics = operator.execute(context_for("replica"))
        assert metrics is not None
        return metrics

    def refresh(self, org: LocalOrg, **scope: Any) -> dict[str, Any]:
        # The operator raises it if no row is dirty.
        with connection_to(org) as connection_id, self._connection(), suppress(AirflowSkipException):
            arguments = {**self._arguments("refresh", {}), **scope}
            operator = SparkSubmitRefreshReplicaOperator(salesforce_conn_id=connection_id, **arguments)
            return dict(operator.execute(context_for("refresh"))["tables"])
        return {}

    def read(self, table: str) -> Any:
        return read_replica(self._reader, self.output, table)

    def _arguments(self, task_id: str, settings: Mapping[str, str]) -> dict[str, Any]:
        return {"task_id": task_id, "output_url": self.output, "conn_id": _SPARK, "conf": {**self._conf, **settings}}

    @contextmanager
    def _connection(self) -> Iterator[None]:
        master = urlsplit(self._cluster.master)
        fields = {"conn_type": "spark", "host": f"spark://{master.hostname}", "port": master.port}
        environment = short_lived_environment() | {f"AIRFLOW_CONN_{_SPARK.upper()}": json.dumps(fields)}
        with mock.patch.dict(os.environ, environment):
            yield

    @contextmanager
    def _loss(self, page: DriverPage) -> Iterator[None]:
        """In the selected run, kill a worker that runs a task and has completed others."""
        self._until_loss -= 1
        if self._until_loss != -1:
            yield
            return
        ended = threading.Event()
        killer = threading.Thread(target=self._lose_worker, args=(page, ended))
        killer.start()
        try:
            yield
        finally:
            ended.set()
            killer.join()

    def _lose_worker(self, page: DriverPage, ended: threading.Event) -> None:
        while not ended.wait(0.02):
            # Its shuffle files are lost too, so that Spark has to repeat its completed tasks.
            busy = [one["id"] for one in page.executors() if one["activeTasks"] and one["totalShuffleWrite"]]
            workers = self._cluster.executors()
            for worker in {workers[one] for one in busy if one in workers}:
                self._cluster.kill_worker(worker)
                self.lost.append(worker)
                return
