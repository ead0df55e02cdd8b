"""Drains that wait for events, against a local org: deferred to the real trigger, or in the worker."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream._airflow import AirflowFailException, AirflowTaskTimeout
from airflow_provider_sfstream.actions.drain.waiting import LONGEST_WAIT, wait_in_worker
from airflow_provider_sfstream.hooks.salesforce_pubsub import SalesforcePubSubHook
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
from airflow_provider_sfstream.salesforce.events import StartFrom
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.streams.watch.conditions import WakeUp, WakeUpConditions, WakeUpReason
from tests.support.airflow_names import TaskDeferred
from tests.support.localorg import wait_until
from tests.support.shared_org import OWN_ORG, SharedOrg, org, shared_org
from tests.support.tasks import context_for, deferral_of, run_trigger, set_connection

__all__ = ["org", "shared_org"]

MakeDrain = Callable[..., DrainReplayWindowOperator]


@pytest.fixture
def store(org: SharedOrg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableReplayStore]:
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
    set_connection(monkeypatch, "sfstream_replay_store", conn_type="sqlite", host=str(tmp_path / "replay.db"))
    table = TableReplayStore(f"sqlite:///{tmp_path / 'replay.db'}")
    yield table
    table.close()


@pytest.fixture
def drain(org: SharedOrg, store: TableReplayStore, tmp_path: Path) -> MakeDrain:
    def make(**arguments: Any) -> DrainReplayWindowOperator:
        return DrainReplayWindowOperator(
            task_id="drain",
            topic=org.topic,
            landing_url=str(tmp_path / "landing"),
            replay_store="table",
            idle_timeout=2.0,
            **arguments,
        )

    return make


def publish(org: SharedOrg, count: int, **fields: Any) -> list[bytes]:
    return org.publish(org.topic, [{"Number__c": float(n), **fields} for n in range(count)])


def stream(org: SharedOrg) -> Stream:
    return Stream(org.org_id, "pubsub", org.topic)


def deferred(operator: DrainReplayWindowOperator, run: int = 1) -> TaskDeferred:
    return deferral_of(lambda: operator.execute(context_for("drain", run_id=f"run-{run}", hour=run)))


def trigger_arguments(deferral: TaskDeferred) -> dict[str, Any]:
    classpath, arguments = deferral.trigger.serialize()
    assert classpath == "airflow_provider_sfstream.triggers.salesforce_event.SalesforceEventTrigger"
    return dict(arguments)


def resume(operator: DrainReplayWindowOperator, deferral: TaskDeferred, event: dict[str, Any], run: int = 1) -> Any:
    """Resume the task as Airflow's task runner does."""
    context = context_for("drain", run_id=f"run-{run}", hour=run)
    return operator.resume_execution(deferral.method_name, {**(deferral.kwargs or {}), "event": event}, context)


def test_the_trigger_starts_at_the_stored_position_and_contains_no_secret(
    org: SharedOrg, store: TableReplayStore, drain: MakeDrain, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    deferral = deferred(drain(deferrable=True, min_events=2, max_wait=timedelta(minutes=1)))
    assert trigger_arguments(deferral) == {
        "topic": org.topic,
        "salesforce_conn_id": "salesforce_default",
        "api": None,
        "subscription": "airflow",
        "managed_subscription": None,
        "after": None,
        "replay_store": None,
        "replay_store_conn_id": "sfstream_replay_store",
        "start_from": "earliest",
        "min_events": 2,
        "max_wait": 60.0,
        "min_interval": 5.0,
        "until_confirmed": False,
    }
    assert (deferral.method_name, deferral.timeout) == ("execute_complete", LONGEST_WAIT)
    assert "waiting for 2 events, or one that is 60 s old, from the earliest on" in caplog.text

    ids = publish(org, 3)
    store.reset(stream(org), ids[1], reason="test", updated_by="test")
    deferral = deferred(drain(deferrable=True, execution_timeout=timedelta(hours=1)))
    arguments = trigger_arguments(deferral)
    assert (arguments["after"], arguments["min_events"], arguments["max_wait"]) == (ids[1].hex(), 1, None)
    assert deferral.timeout == timedelta(hours=1)
    assert f"waiting for an event, from replay ID {ids[1].hex()} on" in caplog.text
    assert org.client_secret not in json.dumps(arguments) + caplog.text


def test_a_drain_without_a_position_waits_from_the_replay_id_in_start_from(org: SharedOrg, drain: MakeDrain) -> None:
    given = publish(org, 2)[0].hex()
    operator = drain(deferrable=True, start_from=given)
    deferral = deferred(operator)
    assert trigger_arguments(deferral)["after"] == given
    assert resume(operator, deferral, run_trigger(deferral))["after"] == given


def test_events_published_while_the_drain_is_deferred_are_drained_once(
    org: SharedOrg, store: TableReplayStore, drain: MakeDrain, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    operator = drain(deferrable=True)
    deferral = deferred(operator)
    assert org.open_streams() == 0, "a task that is deferred has no open subscription"
    ids = publish(org, 2)
    result = resume(operator, deferral, run_trigger(deferral))
    assert (result["event_count"], result["through"], result["drained"]) == (2, ids[-1].hex(), True)
    assert "Woken by 'events'" in caplog.text
    assert ids[0].hex() in caplog.text

    deferral = deferred(operator, run=2)
    assert trigger_arguments(deferral)["after"] == ids[-1].hex()
    more = publish(org, 1)
    result = resume(operator, deferral, run_trigger(deferral), run=2)
    assert (result["after"], result["through"], result["event_count"]) == (ids[-1].hex(), more[0].hex(), 1)
    assert store.read(stream(org)).replay_id == more[0]


def test_a_rerun_returns_its_window_without_waiting(org: SharedOrg, drain: MakeDrain) -> None:
    publish(org, 2)
    operator = drain(deferrable=True)
    deferral = deferred(operator)
    first = resume(operator, deferral, run_trigger(deferral))
    again = operator.execute(context_for("drain", try_number=2))
    assert (again["window_id"], again["drained"]) == (first["window_id"], False)


def test_a_retry_commits_the_landed_window_of_a_failed_try_without_waiting(
    org: SharedOrg, store: TableReplayStore, drain: MakeDrain
) -> None:
    ids = publish(org, 2)
    first = drain(advance="manual").execute(context_for("drain"))
    assert store.read(stream(org)).replay_id is None
    org.fault("silence", topic=org.topic)
    again = drain(deferrable=True, min_events=100).execute(context_for("drain", try_number=2))
    assert (again["window_id"], again["drained"], again["committed"]) == (first["window_id"], False, True)
    assert store.read(stream(org)).replay_id == ids[-1]


def test_the_first_drain_from_latest_does_not_wait_but_the_next_one_does(
    org: SharedOrg, store: TableReplayStore, drain: MakeDrain
) -> None:
    org.knobs(keepalive_seconds=0.5)
    publish(org, 2)
    operator = drain(deferrable=True, start_from="latest")
    first = operator.execute(context_for("drain"))
    assert (first["event_count"], first["committed"]) == (0, True)
    assert trigger_arguments(deferred(operator, run=2))["after"] == first["through"]


@pytest.mark.parametrize("published", [1, 0])
def test_after_the_longest_wait_the_drain_reads_the_available_events(
    org: SharedOrg, store: TableReplayStore, drain: MakeDrain, published: int
) -> None:
    operator = drain(deferrable=True, min_events=5, execution_timeout=LONGEST_WAIT * 2)
    assert deferred(operator).timeout == LONGEST_WAIT
    publish(org, published)
    result = operator.resume_execution("__fail__", {"error": "Trigger timeout"}, context_for("drain"))
    assert (result["event_count"], result["committed"]) == (published, True)


@OWN_ORG
def test_a_position_that_could_expire_during_the_wait_is_confirmed_without_a_wait(
    org: SharedOrg, store: TableReplayStore, drain: MakeDrain, tmp_path: Path
) -> None:
    last = publish(org, 2)[-1]
    operator = drain(deferrable=True)
    resume(operator, deferral := deferred(operator), run_trigger(deferral))
    org.knobs(clock_offset_seconds=31 * 3600, keepalive_seconds=2)  # keepalives arrive after the drain's idle_timeout
    with closing(sqlite3.connect(tmp_path / "replay.db")) as database, database:
        database.execute("UPDATE sfstream_position SET updated_at = datetime('now', '-31 hours')")
    quiet = operator.execute(context_for("drain", run_id="run-2", hour=2))
    assert (quiet["event_count"], quiet["after"]) == (0, last.hex())
    assert quiet["through"] != last.hex(), "the drain waits until Salesforce sends a newer replay ID"
    assert store.read(stream(org)).replay_id == bytes.fromhex(quiet["through"])

    deferral = deferred(operator, run=3)
    assert trigger_arguments(deferral)["after"] == quiet["through"]
    org.knobs(clock_offset_seconds=(31 + 71) * 3600)  # the events of the first drain have expired
    new = publish(org, 1)
    result = resume(operator, deferral, run_trigger(deferral), run=3)
    assert (result["event_count"], result["through"], result["gap"]) == (1, new[0].hex(), None)


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_lost_position_ends_the_wait_and_the_drain_applies_on_invalid_replay(
    org: SharedOrg, store: TableReplayStore, drain: MakeDrain, deferrable: bool
) -> None:
    ids = publish(org, 3)
    store.reset(stream(org), ids[0], reason="test", updated_by="test")
    org.fault("expire_before", topic=org.topic, replay_id=ids[2].hex())

    def run(**arguments: Any) -> Any:
        operator = drain(deferrable=deferrable, min_events=5, **arguments)
        if not deferrable:
            return operator.execute(context_for("drain"))
        deferral = deferred(operator)
        return resume(operator, deferral, run_trigger(deferral))

    with pytest.raises(AirflowFailException, match="on_invalid_replay"):
        run()
    assert store.read(stream(org)).replay_id == ids[0]
    result = run(on_invalid_replay="earliest")
    assert (result["event_count"], result["gap"]["after"]) == (1, ids[0].hex())


def test_a_permanent_error_of_the_trigger_fails_the_task_without_retry(org: SharedOrg, drain: MakeDrain) -> None:
    operator = drain(deferrable=True)
    deferral = deferred(operator)
    org.fault("fail_calls", rpc="Subscribe", code="sfdc.platform.eventbus.grpc.topic.not.found", status="NOT_FOUND")
    with pytest.raises(AirflowFailException, match=org.topic):
        resume(operator, deferral, run_trigger(deferral))


@pytest.mark.parametrize(
    ("arguments", "extra", "remedy"),
    [
        ({}, {"consumer_secret": "wrong-secret-value"}, "consumer_secret"),
        ({"start_from": "12345z"}, {}, "hex"),
        ({"until": "yesterday"}, {}, "ISO 8601"),
    ],
)
def test_invalid_input_fails_before_the_task_is_deferred(
    org: SharedOrg,
    drain: MakeDrain,
    monkeypatch: pytest.MonkeyPatch,
    arguments: dict[str, Any],
    extra: dict[str, Any],
    remedy: str,
) -> None:
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection(**extra))
    operator = drain(deferrable=True, **dict.fromkeys(arguments, "{{ params.given }}"))
    vars(operator).update(arguments)  # as if the templates had rendered to these values
    with pytest.raises(AirflowFailException, match=remedy):
        operator.execute(context_for("drain"))


def test_a_wait_in_the_worker_ends_after_min_events(org: SharedOrg, drain: MakeDrain) -> None:
    first = publish(org, 1)
    with ThreadPoolExecutor(1) as worker:
        waiting = worker.submit(drain(deferrable=False, min_events=3).execute, context_for("drain"))
        wait_until(org.open_streams, what="the subscription of the wait")
        org.fault("drop_now", topic=org.topic)  # a transient fault
        wait_until(lambda: len(org.requests("grpc", "Subscribe")) == 2, what="the subscription after the fault")
        assert not waiting.done()
        last = publish(org, 2)
        result = waiting.result(60)
    assert (result["event_count"], result["through"]) == (3, last[-1].hex())
    assert org.logins == 1, "the wait and the drain share one login"
    assert org.delivered in (1 + 2 + 3, 1 + 1 + 2 + 3), "the wait requests no more events than it needs"
    assert [event["replay_id"] for event in org.record(org.topic)] == first + last


def test_a_wait_in_the_worker_reads_no_connection_on_the_event_loop(
    org: SharedOrg, store: TableReplayStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: Any) -> None:
        raise AssertionError("the worker must not read a connection on an event loop")

    monkeypatch.setattr(SalesforcePubSubHook, "aget_connection", never)
    ids = publish(org, 1)
    wake_up = wait_in_worker(
        SalesforcePubSubHook(), org.topic, StartFrom.EARLIEST, WakeUpConditions(), timedelta(minutes=1)
    )
    assert wake_up == WakeUp(WakeUpReason.EVENTS, ids[0], 1, ids[0])


def test_a_wait_in_the_worker_ends_when_an_event_is_older_than_max_wait(org: SharedOrg, drain: MakeDrain) -> None:
    an_hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    publish(org, 1, CreatedDate=an_hour_ago)
    operator = drain(deferrable=False, min_events=1_000, max_wait=timedelta(minutes=30))
    assert operator.execute(context_for("drain"))["event_count"] == 1


def test_the_execution_timeout_ends_a_wait_in_the_worker(
    org: SharedOrg, store: TableReplayStore, drain: MakeDrain
) -> None:
    operator = drain(deferrable=False, min_events=1, execution_timeout=timedelta(seconds=2))
    with pytest.raises(AirflowTaskTimeout, match=org.topic):
        operator.execute(context_for("drain"))
    wait_until(lambda: not org.open_streams(), what="the end of the subscription")
    assert store.read(stream(org)).fence == 0
