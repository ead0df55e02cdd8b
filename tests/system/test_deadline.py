"""A deadline alert on a real Airflow: its scheduler notices the late run, and its triggerer sends the message."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any

import airflow.sdk
import pytest

from scripts.airflow_stack import AirflowStack, wait_for
from tests.support.http_serving import serving

pytestmark = pytest.mark.extended


@pytest.mark.skipif(not hasattr(airflow.sdk, "DeadlineAlert"), reason="needs Airflow 3.2")
def test_the_example_alerts_if_no_drain_succeeds_in_time(airflow: AirflowStack) -> None:
    received: list[Any] = []

    class Webhook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    dag_id = "deadline.missed"
    with serving(Webhook) as port:
        airflow.add_connection("webhook", conn_type="http", host="127.0.0.1", port=port)
        airflow.wait_for_dag(dag_id)
        airflow.unpause(dag_id)
        run_id = airflow.trigger(dag_id)
        assert airflow.wait_for_run(dag_id, run_id) == "failed"  # a failed run keeps its deadline
        wait_for(lambda: received, 120, "the alert")
    (message,) = received
    assert message["title"] == f"{dag_id} missed its deadline ({run_id})"
    assert (message["dag_id"], message["run_id"]) == (dag_id, run_id)
