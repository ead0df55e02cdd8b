"""The notifier with a real HTTP listener: alone, through another notifier, and called by Airflow."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.http.notifications.http import HttpNotifier
from airflow.sdk import TaskInstanceState

from airflow_provider_sfstream.exceptions import ConfigurationError, NotificationError
from airflow_provider_sfstream.hooks.replay_store import open_status_store
from airflow_provider_sfstream.notifications.salesforce_stream import SalesforceStreamNotifier
from scripts.airflow_stack import free_port
from tests.support.http_serving import serving
from tests.support.localorg import LocalOrg, org
from tests.support.stream_statuses import HOUR, drain_statuses
from tests.support.tasks import set_connection

__all__ = ["org"]

REPOSITORY = Path(__file__).parents[3]
SECRET = "T0000-B0000-a-webhook-is-known-by-its-path"


class Listener:
    """Webhook. ``received`` has path, headers and JSON of each request; ``status`` is the status of its responses."""

    def __init__(self) -> None:
        self.received: list[tuple[str, dict[str, str], Any]] = []
        self.status = 200
        self.port = 0


@pytest.fixture
def listener() -> Iterator[Listener]:
    one = Listener()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            one.received.append((self.path, dict(self.headers), json.loads(body)))
            self.send_response(one.status)
            self.end_headers()
            self.wfile.write(f"no such hook: {self.path}".encode())

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    with serving(Handler) as port:
        one.port = port
        yield one


@pytest.fixture
def webhook(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> str:
    set_connection(monkeypatch, "webhook", conn_type="http", host="127.0.0.1", port=listener.port)
    return "webhook"


def context(state: str = "failed", result: Any = None, **fields: Any) -> Any:
    task = SimpleNamespace(
        dag_id="orders",
        task_id="drain",
        run_id="run-1",
        map_index=-1,
        try_number=1,
        state=TaskInstanceState(state),
        log_url="http://airflow.example.com/log",
        xcom_pull=lambda **_: result,
    )
    error = ValueError("broken") if state == "failed" else None
    return {"ti": task, "exception": error, **fields}


GAP = {"since": None, "detected_at": "2026-11-23T11:00:00+00:00", "reason": "the replay ID is too old"}


def test_a_failure_is_posted_as_json(listener: Listener, webhook: str) -> None:
    SalesforceStreamNotifier(http_conn_id=webhook, endpoint="hooks/{{ ti.task_id }}")(context())
    [(path, headers, document)] = listener.received
    assert path == "/hooks/drain"
    assert headers["Content-Type"] == "application/json"
    assert document["text"].splitlines()[:2] == ["orders.drain failed (run-1)", "Error: ValueError: broken"]
    assert (document["error"], document["task_id"], document["state"]) == ("ValueError: broken", "drain", "failed")


def test_login_and_headers_are_those_of_the_connection(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"login": "airflow", "password": "hunter2", "extra": json.dumps({"X-Team": "data", "timeout": 3})}
    address = f"http://127.0.0.1:{listener.port}/services/{SECRET}"
    set_connection(monkeypatch, "whole", conn_type="http", host=address, **fields)
    SalesforceStreamNotifier(http_conn_id="whole")(context())
    [(path, headers, document)] = listener.received
    assert path == f"/services/{SECRET}"
    assert headers["X-Team"] == "data"
    assert "timeout" not in headers
    assert headers["Authorization"] == "Basic " + base64.b64encode(b"airflow:hunter2").decode()
    assert "hunter2" not in json.dumps(document)


@pytest.mark.parametrize(
    ("drained", "sent"),
    [
        ({"ended": HOUR}, 0),
        ({"ended": 3 * HOUR}, 1),
        ({"ended": HOUR, "dag_id": "other"}, 1),
        (None, 1),  # the store cannot be opened
    ],
)
def test_missed_deadline_is_reported_unless_a_later_drain_succeeded(
    listener: Listener, webhook: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, drained: Any, sent: int
) -> None:
    now = datetime.now(UTC)
    monkeypatch.setenv("AIRFLOW__SFSTREAM__STATUS_CONN_ID", "status")
    if drained is not None:
        set_connection(monkeypatch, "status", conn_type="sqlite", host=str(tmp_path / "status.db"))
        with closing(open_status_store()) as store:
            for status in drain_statuses(now, "/event/Order__e", **drained):
                store.change(status.subject, status.section, lambda _, status=status: status.document)
    run = {"dag_id": "orders", "dag_run_id": "run-1", "state": "failed", "queued_at": (now - 2 * HOUR).isoformat()}
    missed: Any = {"dag_run": run, "deadline": {"deadline_time": now}}

    async def alert() -> None:
        await SalesforceStreamNotifier(http_conn_id=webhook, endpoint="late", context=missed)

    asyncio.run(alert())
    assert [document["title"] for _, _, document in listener.received] == ["orders missed its deadline (run-1)"] * sent
    if drained == {"ended": 3 * HOUR}:
        assert str(now - 3 * HOUR) in listener.received[0][2]["context"]


def test_missed_deadline_of_a_stream_without_a_status_is_reported_as_unknown(
    listener: Listener, webhook: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    monkeypatch.setenv("AIRFLOW__SFSTREAM__STATUS_CONN_ID", "status")
    set_connection(monkeypatch, "status", conn_type="sqlite", host=str(tmp_path / "status.db"))
    drained, *_ = drain_statuses(now, "/event/Order__e", ended=HOUR)
    with closing(open_status_store()) as store:
        store.change(drained.subject, drained.section, lambda _: drained.document)
    run = {"dag_id": "orders", "dag_run_id": "run-1", "state": "failed", "queued_at": (now - 2 * HOUR).isoformat()}
    never = drained.subject.replace("Order__e", "Never__e")
    for streams in ([drained.subject], [drained.subject, never]):
        notifier = SalesforceStreamNotifier(http_conn_id=webhook, endpoint="late", streams=streams)
        notifier({"dag_run": run, "deadline": {"deadline_time": now}})  # type: ignore[arg-type]
    (document,) = (document for _, _, document in listener.received)
    unknown = "last response of Salesforce: unknown, because no status of a drain could be read"
    assert document["context"] == f"{never} ({unknown})"


@pytest.mark.parametrize(
    ("result", "sent"), [({"gap": GAP}, 1), ({"quarantined": 2}, 1), ({"gap": None}, 0), (None, 0)]
)
def test_success_is_notified_only_on_loss(listener: Listener, webhook: str, result: Any, sent: int) -> None:
    SalesforceStreamNotifier(http_conn_id=webhook)(context("success", result))
    assert len(listener.received) == sent


def test_every_success_is_notified_without_only_on_loss(listener: Listener, webhook: str) -> None:
    notifier = SalesforceStreamNotifier(http_conn_id=webhook, only_on_loss=False)
    notifier(context("success", {"gap": None}))
    # The worker cannot read the metrics of a Spark job, or the task is of another package.
    notifier(context("success", None))
    notifier(context("skipped", None))
    notifier(context("success", {"gap": GAP}, reason="success"))
    documents = [document for _, _, document in listener.received]
    unknown = "No result was read: losses and quarantined rows are unknown."
    assert [document["error"] for document in documents] == [
        "The task succeeded. Its result has no gap, no missing span and no quarantined row.",
        f"The task succeeded. {unknown}",
        f"The task was skipped. {unknown}",
        f"The DAG run succeeded. {unknown}",
    ]
    assert [document["data_loss"] for document in documents] == ["None is recorded.", *["Unknown."] * 3]


def test_failed_dag_run_is_notified_and_successful_one_is_not(listener: Listener, webhook: str) -> None:
    notifier = SalesforceStreamNotifier(http_conn_id=webhook)
    notifier(context("success", {"gap": GAP}, reason="success"))
    assert listener.received == []
    notifier(context("success", reason="task_failure"))
    assert listener.received[0][2]["title"] == "orders failed (run-1)"


def test_one_notifier_serves_several_tasks(listener: Listener, webhook: str) -> None:
    """In one process, the rendered templates of the first task must not be used for the second."""
    notifier = SalesforceStreamNotifier(http_conn_id=webhook, endpoint="{{ ti.task_id }}")
    first, second = context(), context()
    second["ti"].task_id = "load"
    for each in (first, second):
        notifier(each)
    assert [path for path, *_ in listener.received] == ["/drain", "/load"]


def test_wrapped_notifier_renders_its_templates_for_each_notification(listener: Listener, webhook: str) -> None:
    wrapped = HttpNotifier(http_conn_id=webhook, endpoint="x", json={"said": "{{ sfstream.text }}"})
    notifier = SalesforceStreamNotifier(through=wrapped)
    notifier(context())
    notifier(context("success", {"quarantined": 2}))
    titles = [document["said"].splitlines()[0] for _, _, document in listener.received]
    assert titles == ["orders.drain failed (run-1)", "orders.drain succeeded (run-1)"]
    assert wrapped.json == {"said": "{{ sfstream.text }}"}


def test_error_of_a_failed_notification_does_not_contain_the_address(
    listener: Listener,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG, "airflow_provider_sfstream")
    listener.status = 404
    hosts = {"refused": listener.port, "gone": free_port()}
    for name, port in hosts.items():
        set_connection(monkeypatch, name, conn_type="http", host=f"http://127.0.0.1:{port}/{SECRET}")
        with pytest.raises(NotificationError, match=f"Airflow connection '{name}'") as caught:
            SalesforceStreamNotifier(http_conn_id=name)(context())
        assert SECRET not in "".join(traceback.format_exception(caught.value))
        assert not caught.value.retriable
    logged = caplog.text + "".join(capsys.readouterr())
    assert "HTTP 404" in logged
    assert SECRET not in logged


def test_http_connection_without_host_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    set_connection(monkeypatch, "empty", conn_type="http")
    with pytest.raises(ConfigurationError, match="no host"):
        SalesforceStreamNotifier(http_conn_id="empty")(context())


@pytest.mark.parametrize("given", [{}, {"http_conn_id": "webhook", "through": HttpNotifier(http_conn_id="webhook")}])
def test_no_way_or_two_ways_to_send_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="requires either"):
        SalesforceStreamNotifier(**given)


@pytest.mark.extended
def test_airflow_calls_the_notifier(org: LocalOrg, listener: Listener, tmp_path: Path) -> None:
    """Airflow runs the DAG with its own database: a failed task, a successful task, and a task that loses events."""
    topic = org.define("Order__e", Number__c="double")["name"]
    org.knobs(keepalive_seconds=0.3)
    org.publish(topic, [{"Number__c": 1.0}])
    dag_file = tmp_path / "dags" / "notifying_dag.py"
    dag_file.parent.mkdir()
    shutil.copy(REPOSITORY / "tests" / "support" / dag_file.name, dag_file)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")},
        "AIRFLOW_CONN_SALESFORCE_DEFAULT": json.dumps(org.airflow_connection()),
        "AIRFLOW_CONN_WEBHOOK": json.dumps({"conn_type": "http", "host": "127.0.0.1", "port": listener.port}),
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DEFAULT_TASK_RETRIES": "0",
        "PYTHONPATH": str(REPOSITORY),
        "TOPIC": topic,
        "LANDING": str(tmp_path / "landing"),
    }

    def run_python(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, timeout=300, check=False)
        return (done.stdout + done.stderr).decode()

    printed = run_python("-m", "airflow", "db", "migrate") + run_python(str(dag_file))
    posted = {path: document for path, _, document in listener.received if path.startswith("/hook/")}
    through = [document for path, _, document in listener.received if path == "/through"]
    assert "/hook/refused" in posted, printed
    assert "/hook/first" not in posted, f"a success without loss must not be notified: {printed}"
    failed = posted["/hook/refused"]
    assert failed["title"].startswith("notifying.refused failed (")
    assert "no_such_org" in failed["text"]
    assert (failed["action"], failed["dag_id"], failed["task_id"]) == ("", "notifying", "refused")
    assert failed["try_number"] == 1
    titles = sorted(each["said"].split(" (")[0] for each in through)
    assert titles == ["notifying.first succeeded", "notifying.refused failed"], printed

    listener.received.clear()
    org.fault("reset_stream", topic=topic)  # on a slow machine the position is no longer that of the event
    environment["ON_INVALID_REPLAY"] = "earliest"
    printed += run_python(str(dag_file))
    posted = {path: document for path, _, document in listener.received if path.startswith("/hook/")}
    assert "/hook/first" in posted, printed
    assert posted["/hook/first"]["title"].startswith("notifying.first succeeded (")
    assert posted["/hook/first"]["error"].startswith("Events were lost.")
    assert posted["/hook/first"]["docs"].startswith("docs/on-call.md#when-events-are-lost")
    assert org.client_secret not in printed + json.dumps(listener.received)
