"""Tasks that drain intervals from a local org with events of past hours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from airflow.sdk import Context

from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
from airflow_provider_sfstream.salesforce.streams import Stream
from tests.support.hours import hours_ago
from tests.support.landed import replay_ids_of
from tests.support.localorg import LocalOrg
from tests.support.tasks import context_for, set_connection

TOPIC = "/event/Order__e"
MINUTES = (0, 20, 40, 59)


@contextmanager
def org_with_hours(folder: Path) -> Iterator[LocalOrg]:
    """Run an org with four events in each of the hours from six to two hours ago, with ascending numbers."""
    with LocalOrg.running(folder) as local_org:
        local_org.define("Order__e", Number__c="double")
        times = [hours_ago(hours) + timedelta(minutes=minute) for hours in range(6, 1, -1) for minute in MINUTES]
        events = [{"Number__c": float(n), "CreatedDate": time.isoformat()} for n, time in enumerate(times)]
        local_org.publish(TOPIC, events)
        local_org.knobs(keepalive_seconds=0.5)  # so that the server soon confirms the end of the stream
        yield local_org


@pytest.fixture
def store(org: LocalOrg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableReplayStore]:
    database = tmp_path / "replay.db"
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection(organization_id=org.org_id[:15]))
    set_connection(monkeypatch, "sfstream_replay_store", conn_type="sqlite", host=str(database))
    table = TableReplayStore(f"sqlite:///{database}")
    yield table
    table.close()


Run = Callable[..., dict[str, Any]]


Make = Callable[..., tuple[DrainReplayWindowOperator, Context]]


@pytest.fixture
def make(store: TableReplayStore, tmp_path: Path) -> Make:
    """Return a function that creates a drain operator and the context of its run for a span of past hours."""

    def create(run_type: str, begin: float, end: float, *, run_id: str | None = None, **arguments: Any) -> Any:
        operator = DrainReplayWindowOperator(
            task_id="drain",
            **{
                "topic": TOPIC,
                "landing_url": str(tmp_path / "landing"),
                "replay_store": "table",
                "idle_timeout": 1.0,
                **arguments,
            },
        )
        context = context_for(
            "drain",
            run_id=run_id or f"{run_type}__{begin}",
            run_type=run_type,
            data_interval_start=hours_ago(begin),
            data_interval_end=hours_ago(end),
        )
        return operator, context

    return create


@pytest.fixture
def run(make: Make) -> Run:
    """Return a function that runs a drain for a span of past hours and returns its result.

    ``run("scheduled", 3, 2)`` drains the hour that began 3 hours ago.
    """

    def execute(*span: Any, **arguments: Any) -> dict[str, Any]:
        operator, context = make(*span, **arguments)
        result = operator.execute(context)
        emitted = dict(context["outlet_events"][operator.outlets[0]].extra)
        assert emitted.pop("task_url").endswith(f"/runs/{quote(context['ti'].run_id)}/tasks/drain")
        assert {key: result[key] for key in emitted} == emitted
        assert "event_count" in emitted
        return result

    return execute


def stream(org: LocalOrg) -> Stream:
    return Stream(org.org_id, "pubsub", TOPIC)


def published_ids(org: LocalOrg, begin: float, end: float) -> list[bytes]:
    """Return the replay IDs of the org's recorded events with an event time from ``begin`` to ``end`` hours ago."""
    bounds = hours_ago(begin).timestamp() * 1000, hours_ago(end).timestamp() * 1000
    return [e["replay_id"] for e in org.record(TOPIC) if bounds[0] <= e["fields"]["CreatedDate"] < bounds[1]]


def result_ids(org: LocalOrg, result: dict[str, Any]) -> list[bytes]:
    """Return the replay IDs of a drain's result: events of its windows within its event time bounds."""
    begin, end = (
        datetime.fromisoformat(result[name]).timestamp() * 1000 for name in ("event_time_from", "event_time_to")
    )
    inside = {e["replay_id"] for e in org.record(TOPIC) if begin <= e["fields"]["CreatedDate"] < end}
    windows = [replay_id for window in result["windows"] for replay_id in replay_ids_of(window["manifest_url"])]
    return [replay_id for replay_id in windows if replay_id in inside]


def origins(result: dict[str, Any]) -> list[tuple[str, str]]:
    return [(window["kind"], window["origin"]) for window in result["windows"]]


def delivered(org: LocalOrg) -> int:
    """Return the number of events that the org has delivered to all clients, by its own count."""
    return int(org.admin("GET", "/org")["delivered"])
