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
    message = StreamMessage.of_failure({**context(), "exception": error})
    assert message.title == "orders.drain failed (run-1)"
    assert list(message.parts) == ["What", "Of", "Lost", "Left", "Do", "Guide"]
    assert message.parts["What"] == "AuthenticationError: /event/Order__e: the login was refused (invalid_client)."
    assert message.parts["Do"] == "Check the key."
    assert message.parts["Of"] == "topic /event/Order__e, subscription airflow, connection sf"
    lines = message.text.splitlines()
    assert lines[0] == message.title
    assert lines[1] == f"What: {message.parts['What']}"
    assert lines[-1] == "Log: http://airflow.example.com/log"


def test_retried_failure_names_the_error_class_once() -> None:
    error = error_of_task(ServiceUnavailableError("/event/Order__e: the service is unavailable. Wait."))
    message = StreamMessage.of_failure({**context(state="up_for_retry"), "exception": error})
    assert message.title == "orders.drain failed and will be tried again (run-1)"
    assert message.parts["What"] == "ServiceUnavailableError: /event/Order__e: the service is unavailable."
    assert "Airflow tries the task again by itself" in message.parts["Do"]


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (ValueError("theirs"), "ValueError: theirs"),
        (AirflowFailException("somebody's"), "AirflowFailException: somebody's"),
        (KeyError(), "KeyError"),
    ],
)
def test_error_of_another_library_is_reported_with_its_text(error: Exception, what: str) -> None:
    message = StreamMessage.of_failure({**context(), "exception": error})
    assert message.parts == {"What": what, "Of": "", "Lost": "", "Left": "", "Do": "", "Guide": ""}
    assert message.text.splitlines() == [message.title, f"What: {what}", "Log: http://airflow.example.com/log"]


def test_task_with_a_killed_process_is_reported_without_an_error() -> None:
    callback_context = context()
    del callback_context["ti"].state
    message = StreamMessage.of_failure(callback_context)
    assert message.title == "orders.drain failed (run-1)"
    assert "its process was killed" in message.parts["What"]
    assert message.parts["Of"].startswith("topic /event/Order__e")
    assert message.parts["Guide"].startswith("docs/on-call.md")


def test_dag_run_is_reported_by_its_dag_id() -> None:
    message = StreamMessage.of_failure({**context(state="success"), "reason": "task_failure"})
    assert message.title == "orders failed (run-1)"
    assert message.facts["task_id"] is None
    assert "task_failure" in message.parts["What"]
    bare: Any = {"dag": SimpleNamespace(dag_id="orders"), "run_id": "run-1", "reason": "timed_out"}
    assert StreamMessage.of_failure(bare).title == "orders failed (run-1)"


def test_mapped_task_is_reported_with_its_index() -> None:
    assert StreamMessage.of_failure(context(map_index=3)).title == "orders.drain[3] failed (run-1)"


def test_message_contains_no_secret_of_the_error() -> None:
    remember_secrets("hunter2-and-more-of-it")
    error = ValueError("refused https://user:hunter2-and-more-of-it@host/?token=abcdefgh")
    message = StreamMessage.of_failure({**context(), "exception": error})
    assert "hunter2" not in json.dumps(message.document)
    assert "abcdefgh" not in json.dumps(message.document)


def test_html_is_escaped() -> None:
    message = StreamMessage.of_failure({**context(), "exception": ValueError("<script>alert(1)</script>")})
    assert "<script>" not in message.html
    assert "&lt;script&gt;" in message.html


def test_the_document_is_json_and_has_text_facts_and_parts() -> None:
    message = StreamMessage.of_failure({**context(), "exception": ValueError("theirs")})
    document = json.loads(json.dumps(message.document))
    assert document["text"] == message.text
    assert (document["dag_id"], document["task_id"], document["state"]) == ("orders", "drain", "failed")
    assert document["what"] == "ValueError: theirs"


@pytest.mark.parametrize(
    "result", [None, "text", [], {}, {"gap": None, "missing": [], "quarantined": 0}, {"gap": "no"}]
)
def test_result_without_losses_reports_none(result: Any) -> None:
    assert not LossSummary.of(result)


def test_a_gap_missing_spans_and_quarantined_rows_are_losses() -> None:
    gap = LossSummary.of({"gap": GAP})
    assert gap.lost.startswith("Events from 2026-11-20T10:00:00+00:00 on, found out at 2026-11-23T11:00:00+00:00 (")
    assert "an unknown time" in LossSummary.of({"gap": {**GAP, "since": None}}).lost
    missing = LossSummary.of({"missing": [{"from": "a", "to": "b"}, {"from": "c", "to": "d"}]})
    assert missing.lost == "Events from a to b. Events from c to d."
    rows = LossSummary.of({"quarantined": 3})
    assert (rows.lost, rows.events) == ("3 rows wait in quarantine.", ())
    assert all((gap, missing, rows))
    assert gap.what.startswith("Events were lost.")
    possible = LossSummary.of({"gap": {**GAP, "uncertain": True}})
    assert possible.what.startswith("Possible loss; nothing is known to be lost.")
    assert LossSummary.of({"gap": {**GAP, "uncertain": True}, "missing": [{"from": 1, "to": 2}]}).what.startswith(
        "Events"
    )
    assert not LossSummary.of({"quarantined": True})


def test_loss_is_reported_with_a_remedy() -> None:
    message = StreamMessage.of_success(context(state="success"), LossSummary.of({"gap": GAP}))
    assert message.title == "orders.drain succeeded (run-1)"
    assert [word for word, text in message.parts.items() if text] == ["What", "Of", "Lost", "Do", "Guide"]
    assert message.parts["Guide"].startswith("docs/on-call.md#when-events-are-lost")
    plain = StreamMessage.of_success(context(state="success"), LossSummary())
    assert (plain.parts["What"], plain.parts["Lost"], plain.parts["Do"]) == ("All is well.", "Nothing.", "")
