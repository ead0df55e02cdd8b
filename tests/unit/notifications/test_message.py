"""Messages of notifiers about tasks, and the losses that a task result reports."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import TaskInstanceState

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.actions.failures import airflow_errors
from airflow_provider_sfstream.exceptions import AuthenticationError, ServiceUnavailableError
from airflow_provider_sfstream.notifications.message import LossSummary, StreamMessage
from airflow_provider_sfstream.redaction import remember_secrets

DRAIN: Any = SimpleNamespace(
    topic="/event/Order__e",
    api=None,
    subscription="airflow",
    salesforce_conn_id="sf",
    landing_url="",
    landing_conn_id=None,
)
GAP = {
    "after": "00",
    "resumed_at": None,
    "since": "2026-11-20T10:00:00+00:00",
    "detected_at": "2026-11-23T11:00:00+00:00",
    "reason": "replay ID invalid, on_invalid_replay='earliest'",
}


def context(**fields: Any) -> Any:
    """Return the context that Airflow passes to a callback. The state is a member of Airflow's enumeration."""
    fields["state"] = TaskInstanceState(fields.get("state", "failed"))
    task = {
        "dag_id": "orders",
        "task_id": "drain",
        "run_id": "run-1",
        "map_index": -1,
        "try_number": 2,
        "log_url": "http://airflow.example.com/log",
    }
    return {"ti": SimpleNamespace(**{**task, **fields}), "task": DRAIN, "dag": SimpleNamespace(dag_id="orders")}


def error_of_task(error: Exception) -> BaseException:
    with pytest.raises(Exception) as caught, airflow_errors(DRAIN):
        raise error
    return caught.value


def test_failure_message_has_the_text_of_the_log() -> None:
    error = error_of_task(
        AuthenticationError("/event/Order__e: the login was refused (invalid_client). Check the key.")
    )
    assert isinstance(error, AirflowFailException)
    message = StreamMessage.from_failure({**context(), "exception": error})
    assert message.title == "orders.drain failed (run-1)"
    assert list(message.parts) == ["Error", "Context", "Data loss", "Time left", "Action", "Docs"]
    assert message.parts["Error"] == "AuthenticationError: /event/Order__e: the login was refused (invalid_client)."
    assert message.parts["Action"] == "Check the key."
    assert message.parts["Context"] == "topic /event/Order__e, subscription airflow, connection sf"
    lines = message.text.splitlines()
    assert lines[0] == message.title
    assert lines[1] == f"Error: {message.parts['Error']}"
    assert lines[-1] == "Log: http://airflow.example.com/log"


def test_retried_failure_names_the_error_class_once() -> None:
    error = error_of_task(ServiceUnavailableError("/event/Order__e: the service is unavailable. Wait."))
    message = StreamMessage.from_failure({**context(state="up_for_retry"), "exception": error})
    assert message.title == "orders.drain failed and will be retried (run-1)"
    assert message.parts["Error"] == "ServiceUnavailableError: /event/Order__e: the service is unavailable."
    assert "Airflow retries the task" in message.parts["Action"]


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (ValueError("theirs"), "ValueError: theirs"),
        (AirflowFailException("somebody's"), "AirflowFailException: somebody's"),
        (KeyError(), "KeyError"),
    ],
)
def test_error_of_another_library_is_reported_with_its_text(error: Exception, what: str) -> None:
    message = StreamMessage.from_failure({**context(), "exception": error})
    assert message.parts == {"Error": what, "Context": "", "Data loss": "", "Time left": "", "Action": "", "Docs": ""}
    assert message.text.splitlines() == [message.title, f"Error: {what}", "Log: http://airflow.example.com/log"]


def test_task_with_a_killed_process_is_reported_without_an_error() -> None:
    callback_context = context()
    del callback_context["ti"].state
    message = StreamMessage.from_failure(callback_context)
    assert message.title == "orders.drain failed (run-1)"
    assert "its process was killed" in message.parts["Error"]
    assert message.parts["Context"].startswith("topic /event/Order__e")
    assert message.parts["Docs"].startswith("docs/on-call.md")


def test_dag_run_is_reported_by_its_dag_id() -> None:
    message = StreamMessage.from_failure({**context(state="success"), "reason": "task_failure"})
    assert message.title == "orders failed (run-1)"
    assert message.facts["task_id"] is None
    assert "task_failure" in message.parts["Error"]
    bare: Any = {"dag": SimpleNamespace(dag_id="orders"), "run_id": "run-1", "reason": "timed_out"}
    assert StreamMessage.from_failure(bare).title == "orders failed (run-1)"


def test_mapped_task_is_reported_with_its_index() -> None:
    assert StreamMessage.from_failure(context(map_index=3)).title == "orders.drain[3] failed (run-1)"


def test_message_contains_no_secret_of_the_error() -> None:
    remember_secrets("hunter2-and-more-of-it")
    error = ValueError("refused https://user:hunter2-and-more-of-it@host/?token=abcdefgh")
    message = StreamMessage.from_failure({**context(), "exception": error})
    assert "hunter2" not in json.dumps(message.document)
    assert "abcdefgh" not in json.dumps(message.document)


def test_html_is_escaped() -> None:
    message = StreamMessage.from_failure({**context(), "exception": ValueError("<script>alert(1)</script>")})
    assert "<script>" not in message.html
    assert "&lt;script&gt;" in message.html


def test_the_document_is_json_and_has_text_facts_and_parts() -> None:
    message = StreamMessage.from_failure({**context(), "exception": ValueError("theirs")})
    document = json.loads(json.dumps(message.document))
    assert document["text"] == message.text
    assert (document["dag_id"], document["task_id"], document["state"]) == ("orders", "drain", "failed")
    assert document["error"] == "ValueError: theirs"


@pytest.mark.parametrize(
    "result", [None, "text", [], {}, {"gap": None, "missing": [], "quarantined": 0}, {"gap": "no"}]
)
def test_result_without_losses_reports_none(result: Any) -> None:
    assert not LossSummary.from_result(result)


def test_a_gap_missing_spans_and_quarantined_rows_are_losses() -> None:
    gap = LossSummary.from_result({"gap": GAP})
    assert gap.data_loss.startswith("Events from 2026-11-20T10:00:00+00:00 on, detected at 2026-11-23T11:00:00+00:00 (")
    assert "an unknown time" in LossSummary.from_result({"gap": {**GAP, "since": None}}).data_loss
    missing = LossSummary.from_result({"missing": [{"from": "a", "to": "b"}, {"from": "c", "to": "d"}]})
    assert missing.data_loss == "Events from a to b. Events from c to d."
    rows = LossSummary.from_result({"quarantined": 3})
    assert (rows.data_loss, rows.events) == ("3 rows are in quarantine.", ())
    jobs = {"event_log": {"quarantined": 2, "tables": {"Order__e": 5}}, "replica": {"quarantined": 1}}
    assert LossSummary.from_result({"gap": None, "tables": jobs}) == rows, "of a drain with table jobs"
    assert not LossSummary.from_result({"gap": None, "tables": {"event_log": None}})
    assert not LossSummary.from_result({"quarantined": 0, "tables": {"Account": {"rows": 1}, "Order__e": 5}})
    assert all((gap, missing, rows))
    assert gap.summary.startswith("Events were lost.")
    possible = LossSummary.from_result({"gap": {**GAP, "uncertain": True}})
    assert possible.summary.startswith("Possible loss; no event is known to be lost.")
    assert LossSummary.from_result(
        {"gap": {**GAP, "uncertain": True}, "missing": [{"from": 1, "to": 2}]}
    ).summary.startswith("Events")
    assert not LossSummary.from_result({"quarantined": True})


def test_loss_is_reported_with_a_remedy() -> None:
    message = StreamMessage.from_success(context(state="success"), LossSummary.from_result({"gap": GAP}))
    assert message.title == "orders.drain succeeded (run-1)"
    assert [word for word, text in message.parts.items() if text] == ["Error", "Context", "Data loss", "Action", "Docs"]
    assert message.parts["Docs"].startswith("docs/on-call.md#when-events-are-lost")
    plain = StreamMessage.from_success(context(state="success"), LossSummary())
    # A result without a gap does not prove that no event was lost: the Streaming API reports no loss.
    summary = "The task succeeded. Its result has no gap, no missing span and no quarantined row."
    assert (plain.parts["Error"], plain.parts["Data loss"]) == (summary, "None is recorded.")
    assert plain.parts["Action"] == ""
