"""The ``celery`` profile of the compose file: the scheduler sends tasks to a worker through Redis."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts.airflow_stack import PATIENT, wait_for
from tests.support.compose import generated_variables
from tests.support.compose_airflow import DeployedAirflow
from tests.support.compose_deployment import NativeDeployment
from tests.support.packages import POSTGRES, REDIS, WEB_CLIENTS, need

pytestmark = pytest.mark.extended
ROOT = Path(__file__).resolve().parents[3]
DAG_ID = "sfstream_micro_batch"
# No event is published, so neither Spark workers nor the triggerer have work.
LEFT_OUT = {"spark-worker-1", "spark-worker-2", "airflow-triggerer"}


@pytest.mark.timeout(1800)
def test_a_worker_runs_the_tasks() -> None:
    for package in (POSTGRES, REDIS, WEB_CLIENTS):
        need(package)
    variables = generated_variables(ROOT / ".env.example", AIRFLOW_PARALLELISM="2")
    environment = {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        **PATIENT,
    }
    services = NativeDeployment(ROOT / "docker-compose.yaml", variables, "celery", environment=environment)
    with services.watched():
        for name in services:
            if name not in LEFT_OUT:
                services.start(name)
        services.wait_until_healthy()
        airflow = DeployedAirflow(services.port("airflow-api-server", 8080), variables["AIRFLOW_ADMIN_PASSWORD"])
        airflow.wait_for_dag(DAG_ID)
        airflow.unpause(DAG_ID)
        run_id = wait_for(lambda: airflow.run_ids(DAG_ID), 180, "a run")[0]
        assert airflow.wait_for_run(DAG_ID, run_id, 300) == "success", services.logs()
        assert airflow.task_states(DAG_ID, run_id) == {"drain": "skipped", "event_log": "skipped"}
        # On a busy machine the scheduler may have queued the task a second time.
        drain = airflow.api("GET", f"/dags/{DAG_ID}/dagRuns/{run_id}/taskInstances/drain")
        assert "0 events" in airflow.task_log(DAG_ID, run_id, "drain", drain["try_number"])
        # The image contains an empty airflow.cfg.
        assert services.files_outside_of_volumes() <= {"airflow.cfg"}
        assert os.listdir(services.root / "volumes" / "redis-data"), "the queue is not stored in its volume"  # noqa: PTH208
