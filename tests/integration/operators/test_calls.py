"""API calls of a run, counted in the org's log. docs/sizing.md lists these numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from tests.support.localorg import LocalOrg, org, wait_until
from tests.support.tasks import context_for, set_connection

__all__ = ["org"]

TOPIC = "/event/Order__e"
IDLE = 2.0


def calls(org: LocalOrg, last: str) -> dict[str, int]:
    """Wait for the call ``last`` in the org's log; return the number of calls by method since the previous count."""
    wait_until(lambda: org.requests(method=last), what=last)
    made: Counter[str] = Counter()
    for method in (str(request["method"]) for request in org.requests()):
        if "/oauth2/token" in method:
            made["login"] += 1
        elif "/eventSchema/" in method:
            made["schema"] += 1
        elif " " not in method:  # a gRPC or CometD call; the other entries are HTTP requests, which carry CometD calls
            made[method] += 1
    org.admin("DELETE", "/requests")
    return dict(made)


Run = Callable[..., dict[str, int]]


@pytest.fixture
def run(org: LocalOrg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a drain and returns its calls; the first run drains 250 events, later runs none."""
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
    set_connection(monkeypatch, "sfstream_replay_store", conn_type="sqlite", host=str(tmp_path / "replay.db"))
    org.define("Order__e", Number__c="double")
    org.managed_subscription("Orders", TOPIC)
    org.publish(TOPIC, [{"Number__c": float(n)} for n in range(250)])
    org.admin("DELETE", "/requests")

    def execute(number: int, last: str, **arguments: Any) -> dict[str, int]:
        operator = DrainReplayWindowOperator(
            task_id="drain",
            topic=TOPIC,
            landing_url=str(tmp_path / "landing"),
            replay_store="table",
            idle_timeout=IDLE,
            **arguments,
        )
        result = operator.execute(context_for("drain", run_id=f"run-{number}", hour=number))
        assert (result["event_count"], result["stop_reason"]) == (250 if number == 1 else 0, "idle")
        return calls(org, last)

    return execute


def test_calls_of_a_run_with_events_and_of_a_run_without(run: Run) -> None:
    assert [run(1, "Subscribe"), run(2, "Subscribe")] == [
        {"login": 1, "Subscribe": 1, "GetTopic": 1, "GetSchema": 1},
        {"login": 1, "Subscribe": 1, "GetTopic": 1},
    ]


def test_calls_of_streaming_api_runs(run: Run) -> None:
    made = [run(number, "/meta/disconnect", api="streaming") for number in (1, 2)]
    # The org answers one poll immediately, one or two with the events, and holds one or two beyond idle_timeout.
    assert all(2 <= each.pop("/meta/connect") <= 5 for each in made)
    always = {"login": 1, "/meta/handshake": 1, "/meta/subscribe": 1, "/meta/disconnect": 1}
    assert made == [{**always, "schema": 1}, always]


def test_calls_of_runs_on_a_managed_subscription(run: Run) -> None:
    made = [run(number, "ManagedSubscribe", managed_subscription="Orders") for number in (1, 2)]
    always = {"login": 2, "ManagedSubscribe": 1, "GetTopic": 1}  # one login reads the subscription's settings
    assert made == [{**always, "GetSchema": 1}, {**always, "Subscribe": 1}]
