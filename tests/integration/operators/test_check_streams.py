"""Health check operator of streams, after real drains."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.operators.check_streams import CheckSalesforceStreamsOperator
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from tests.support.localorg import LocalOrg, org
from tests.support.tasks import context_for, set_connection

__all__ = ["org"]
TOPIC = "/event/Order__e"
URI = "sfstream://salesforce_default/event/Order__e?subscription=airflow"


@pytest.fixture
def drain(org: LocalOrg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DrainReplayWindowOperator:
    org.define("Order__e", Number__c="double")
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
    set_connection(monkeypatch, "sfstream_replay_store", conn_type="sqlite", host=str(tmp_path / "replay.db"))
    monkeypatch.setenv("AIRFLOW__SFSTREAM__STATUS_CONN_ID", "sfstream_replay_store")
    arguments: Any = {"landing_url": str(tmp_path / "landing"), "idle_timeout": 2.0, "replay_store": "table"}
    return DrainReplayWindowOperator(task_id="drain", topic=TOPIC, **arguments)


def check(**arguments: Any) -> int:
    return CheckSalesforceStreamsOperator(task_id="check", **arguments).execute(context_for("check"))


def test_the_check_passes_after_a_drain_and_fails_on_too_little_headroom(org: LocalOrg, drain: Any) -> None:
    with pytest.raises(AirflowFailException, match="No task has stored a status of any stream"):
        check()
    org.publish(TOPIC, [{"Number__c": 1.0}])
    drain.execute(context_for("drain"))
    assert check() == check(streams=[URI]) == 1
    with pytest.raises(AirflowFailException, match=r"Order__e\?subscription=airflow: 7[12]\.\d hours remain"):
        check(min_headroom=timedelta(hours=73))
    # The recorded contact time is an upper bound, so it may be a second in the future.
    deadline = time.monotonic() + 30
    late = ""
    while not late and time.monotonic() < deadline:
        try:
            check(max_contact_age=timedelta(0))
        except AirflowFailException as error:
            late = str(error)
    assert "Salesforce last answered a drain" in late
    with pytest.raises(AirflowFailException, match="status of sfstream://elsewhere"):
        check(streams=[URI, "sfstream://elsewhere/event/Order__e"])


def test_streams_of_a_deleted_dag_are_checked_only_by_name(
    org: LocalOrg, drain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Mock()
    monkeypatch.setattr(CheckSalesforceStreamsOperator, "log", log)
    drain.execute(context_for("drain"))
    old = {"min_headroom": timedelta(hours=73)}

    def check_after(error: Exception | None, **arguments: Any) -> int:
        def get_dag(dag_id: str) -> None:
            assert dag_id == "orders"
            if error is not None:
                raise error

        context = context_for("check")
        context["ti"].get_dag = get_dag
        return CheckSalesforceStreamsOperator(task_id="check", **old, **arguments).execute(context)

    def refused(status: int) -> AirflowRuntimeError:
        return AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": status}))

    assert check_after(refused(404)) == 0
    text, *values = log.warning.call_args.args
    assert text % tuple(values) == (
        f"{URI} is not checked: its DAG orders no longer exists. To remove its status, run: sfstream forget '{URI}'"
    )
    for error in (None, refused(500), OSError("no answer")):
        with pytest.raises(AirflowFailException, match="hours remain"):
            check_after(error)
    with pytest.raises(AirflowFailException, match="hours remain"):
        check_after(refused(404), streams=[URI])


def test_an_accepted_loss_fails_the_check(org: LocalOrg, drain: Any) -> None:
    org.publish(TOPIC, [{"Number__c": 1.0}])
    drain.execute(context_for("drain"))
    org.fault("reset_stream", topic=TOPIC)
    org.publish(TOPIC, [{"Number__c": 2.0}])
    drain.on_invalid_replay = "earliest"
    drain.execute(context_for("drain", run_id="run-2"))
    with pytest.raises(AirflowFailException, match=r"events were lost after .*on_invalid_replay='earliest'"):
        check()
    assert check(max_gap_age=timedelta(0)) == 1
