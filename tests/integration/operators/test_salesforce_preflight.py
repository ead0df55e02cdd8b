"""Preflight operator against a local org, landing, database and Spark master: it names each failing requirement."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.exceptions import ConfigurationError, InvalidTopicError
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.operators.salesforce_preflight import SalesforcePreflightOperator
from tests.support.localorg import LocalOrg, org
from tests.support.spark import spark_environment
from tests.support.tasks import context_for, error_text, set_connection

__all__ = ["org"]
TOPIC = "/event/Order__e"


@pytest.fixture
def spark_master(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Open a port that accepts connections, as the preflight checks only the port of the Spark master."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        set_connection(monkeypatch, "spark_default", conn_type="spark", host="spark://127.0.0.1", port=port)
        yield port


@pytest.fixture(autouse=True)
def connections(org: LocalOrg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    org.define("Order__e", Number__c="double")
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
    set_connection(monkeypatch, "sfstream_replay_store", conn_type="sqlite", host=str(tmp_path / "replay.db"))


@pytest.fixture(autouse=True)
def spark_submit_is_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", spark_environment()["PATH"])


def preflight(tmp_path: Path, *topics: str, **arguments: Any) -> SalesforcePreflightOperator:
    given = {"landing_url": str(tmp_path / "landing"), "replay_store": "table", **arguments}
    return SalesforcePreflightOperator(task_id="preflight", topics=topics or [TOPIC], **given)


def test_working_requirements_are_reported_and_no_position_moves(
    org: LocalOrg, spark_master: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection(version="40.0"))
    org.publish(TOPIC, [{"Number__c": 1.0}] * 3)
    operator = preflight(tmp_path, TOPIC, "/data/AccountChangeEvent", "/topic/OrderUpdates")
    org.push_topic("OrderUpdates", "SELECT Id, Name FROM Account")
    for recorded in (0, 1):
        found = operator.execute(context_for("preflight"))
        assert [each["check"] for each in found] == [
            *(TOPIC, "/data/AccountChangeEvent", "/topic/OrderUpdates"),
            *("clock", "allocations", "landing", "replay store", "Spark connection spark_default"),
        ]
        assert all(each["works"] for each in found)
        results = {each["check"]: each["result"] for each in found}
        assert f"Logged in to org {org.org_id}" in results[TOPIC]
        assert "Salesforce supports 31.0 to 40.0 until Summer '27" in results[TOPIC]
        for name in ("DailyDeliveredPlatformEvents", "DailyDurableStreamingApiEvents", "DailyApiRequests"):
            assert f"{name}: " in results["allocations"]
        assert f"positions of {recorded} of 3 streams" in results["replay store"]
        assert str(spark_master) in results["Spark connection spark_default"]
        drain = DrainReplayWindowOperator(
            task_id="drain",
            topic=TOPIC,
            landing_url=str(tmp_path / "landing"),
            replay_store="table",
            start_from="earliest",
            idle_timeout=2.0,
        )
        if not recorded:
            assert drain.execute(context_for("drain"))["event_count"] == 3
    assert org.streams() == []


def test_each_failing_requirement_is_reported_and_the_others_are_checked(
    org: LocalOrg, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "landing").write_text("a file in the place of the folder")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed = taken.getsockname()[1]
    set_connection(monkeypatch, "spark_default", conn_type="spark", host="spark://127.0.0.1", port=closed)
    set_connection(monkeypatch, "sfstream_replay_store", conn_type="http", host="nothing")
    with pytest.raises(AirflowFailException) as caught:
        preflight(tmp_path, "/event/Missing__e", TOPIC).execute(context_for("preflight"))
    assert "/event/Missing__e failed: Topic permission" in error_text(caught.value)
    assert "3 more failed checks are in the log." in error_text(caught.value)
    assert re.findall("(?:works|FAILS)  [^:]+", capsys.readouterr().out) == [
        *("FAILS  /event/Missing__e", f"works  {TOPIC}", "works  clock", "works  allocations"),
        *("FAILS  landing", "FAILS  replay store", "FAILS  Spark connection spark_default"),
    ]


def test_a_refused_login_is_reported_for_each_topic(org: LocalOrg, tmp_path: Path, monkeypatch: Any) -> None:
    wrong: dict[str, Any] = org.airflow_connection()
    wrong["extra"] = {**wrong["extra"], "consumer_secret": "not-the-secret-at-all"}
    set_connection(monkeypatch, "salesforce_default", **wrong)
    with pytest.raises(AirflowFailException) as caught:
        preflight(tmp_path, spark_conn_id=None).execute(context_for("preflight"))
    assert f"{TOPIC} failed: Login: " in error_text(caught.value)
    assert "not-the-secret-at-all" not in error_text(caught.value)


def test_a_login_that_spends_its_refresh_token_is_reported(org: LocalOrg, tmp_path: Path, monkeypatch: Any) -> None:
    org.admin("POST", "/oauth", {"rotate_refresh_tokens": True})
    token = org.admin("POST", "/oauth/refresh_tokens", {})["refresh_token"]
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection(refresh_token=token))
    with pytest.raises(AirflowFailException) as caught:
        preflight(tmp_path, spark_conn_id=None).execute(context_for("preflight"))
    assert f"{TOPIC} failed: Login: The login has spent the refresh token of the connection" in error_text(caught.value)
    assert token not in error_text(caught.value)


def test_missing_connections_are_reported_and_the_others_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = dict.fromkeys(("salesforce_conn_id", "replay_store_conn_id", "spark_conn_id"), "missing")
    with pytest.raises(AirflowFailException) as caught:
        preflight(tmp_path, **names).execute(context_for("preflight"))
    assert "missing" in error_text(caught.value)
    failed = [f"FAILS  {name}" for name in (TOPIC, "clock", "allocations")]
    lines = re.findall("(?:works|FAILS)  [^:]+", capsys.readouterr().out)
    assert lines == [*failed, "works  landing", "FAILS  replay store", "works  Spark connection missing"]


def test_invalid_preflight_arguments_are_refused_when_the_dag_is_parsed(tmp_path: Path) -> None:
    with pytest.raises(InvalidTopicError):
        preflight(tmp_path, "Order__e")
    with pytest.raises(ConfigurationError, match="must be a list"):
        SalesforcePreflightOperator(task_id="preflight", topics=TOPIC, landing_url=str(tmp_path))
    with pytest.raises(ConfigurationError, match="replay_store="):
        preflight(tmp_path, replay_store="redis")
