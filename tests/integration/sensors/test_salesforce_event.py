"""Event sensor against a local org: polling, deferral and faults."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream._airflow import AirflowFailException, AirflowSkipException
from airflow_provider_sfstream.exceptions import SessionExpiredError
from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
from airflow_provider_sfstream.salesforce.network import proxies
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.sensors.salesforce_event import SalesforceEventSensor
from airflow_provider_sfstream.streams.watch.poll import poll
from tests.support.airflow_names import AirflowRescheduleException, AirflowSensorTimeout, TaskDeferred
from tests.support.behind_network import OrgBehindNetwork
from tests.support.localorg import wait_until
from tests.support.shared_org import SharedOrg, org, shared_org
from tests.support.tasks import context_for, deferral_of, error_text, run_trigger, set_connection

__all__ = ["org", "shared_org"]


@pytest.fixture(autouse=True)
def store(org: SharedOrg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableReplayStore]:
    org.knobs(keepalive_seconds=0.3)  # so that a poll that finds too few events does not wait for the idle timeout
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
    set_connection(monkeypatch, "sfstream_replay_store", conn_type="sqlite", host=str(tmp_path / "replay.db"))
    table = TableReplayStore(f"sqlite:///{tmp_path / 'replay.db'}")
    yield table
    table.close()


MakeSensor = Callable[..., SalesforceEventSensor]


@pytest.fixture
def sensor(org: SharedOrg) -> MakeSensor:
    def make(**arguments: Any) -> SalesforceEventSensor:
        defaults = {"topic": org.topic, "replay_store": "table", "poke_interval": 0.1, "deferrable": False}
        return SalesforceEventSensor(task_id="wait", **{**defaults, **arguments})

    return make


def context() -> Any:
    made = context_for("wait")
    made["ti"].get_first_reschedule_date = lambda _: None
    return made


def publish(org: SharedOrg, count: int, **fields: Any) -> list[bytes]:
    return org.publish(org.topic, [{"Number__c": float(n), **fields} for n in range(count)])


def stream(org: SharedOrg, subscription: str = "airflow") -> Stream:
    return Stream(org.org_id, "pubsub", org.topic, subscription)


def deferred(made: SalesforceEventSensor) -> TaskDeferred:
    return deferral_of(lambda: made.execute(context()))


def resume(made: SalesforceEventSensor, deferral: TaskDeferred, event: dict[str, Any]) -> Any:
    """Resume the task as Airflow's task runner does."""
    return made.resume_execution(deferral.method_name, {**(deferral.kwargs or {}), "event": event}, context())


def run(made: SalesforceEventSensor) -> Any:
    """Run the task to its end. If it defers, run its trigger and resume the task."""
    try:
        return made.execute(context())
    except TaskDeferred as deferral:
        return resume(made, deferral, run_trigger(deferral))


def test_each_poll_counts_events_again_until_enough_are_stored(
    org: SharedOrg, store: TableReplayStore, sensor: MakeSensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sensor(min_events=3)
    org.knobs(keepalive_seconds=120)
    with monkeypatch.context() as patched:
        patched.setitem(poll.__kwdefaults__, "idle_timeout", 1.0)
        assert not made.poke(context()), "the idle timeout ends a poll too"
    wait_until(
        lambda: not org.open_streams(), what="the end of the first poll, which would count the events published next"
    )
    org.knobs(keepalive_seconds=0.3)
    first = publish(org, 2)
    assert not made.poke(context())
    wait_until(lambda: not org.open_streams(), what="the end of the second poll, which would receive the next event")
    last = publish(org, 2)
    outcome = made.poke(context())
    assert outcome.xcom_value == {
        "reason": "events",
        "stream": {"org_id": org.org_id, "api": "pubsub", "topic": org.topic, "subscription": "airflow"},
        "first_replay_id": first[0].hex(),
        "through": last[0].hex(),
        "event_count": 3,
    }
    assert org.delivered == 2 + 3, "a poll requests no more events than it needs"
    assert org.logins == 1, "three polls of one process log in once"
    wait_until(lambda: not org.open_streams(), what="the end of the polls")
    assert store.read(stream(org)).fence == 0, "a sensor moves no position"


def test_execute_polls_and_returns_the_result(org: SharedOrg, sensor: MakeSensor) -> None:
    ids = publish(org, 1)
    assert sensor().execute(context())["first_replay_id"] == ids[0].hex()


def test_poll_starts_after_the_stored_position_or_the_replay_id_argument(
    org: SharedOrg,
    store: TableReplayStore,
    sensor: MakeSensor,
) -> None:
    ids = publish(org, 3)
    store.reset(stream(org, "loads"), ids[1], reason="test", updated_by="test")
    assert sensor(subscription="loads").poke(context()).xcom_value["first_replay_id"] == ids[2].hex()
    given = sensor(subscription="loads", after=ids[0].hex())
    assert given.poke(context()).xcom_value["first_replay_id"] == ids[1].hex()
    assert sensor(subscription="other").poke(context()).xcom_value["first_replay_id"] == ids[0].hex()
    assert sensor(subscription="loads", replay_store=None).poke(context()).xcom_value["event_count"] == 1
    store.reset(stream(org, "loads"), ids[2], reason="test", updated_by="test")
    assert not sensor(subscription="loads").poke(context())


@pytest.mark.parametrize(("minutes_old", "enough"), [(31, True), (1, False)])
def test_old_event_ends_the_wait_with_fewer_events(
    org: SharedOrg, minutes_old: int, enough: bool, sensor: MakeSensor
) -> None:
    publish(org, 1, CreatedDate=(datetime.now(UTC) - timedelta(minutes=minutes_old)).isoformat())
    publish(org, 1)
    assert bool(sensor(min_events=100, max_event_age=timedelta(minutes=30)).poke(context())) is enough


def test_expired_replay_id_ends_the_wait(org: SharedOrg, caplog: pytest.LogCaptureFixture, sensor: MakeSensor) -> None:
    ids = publish(org, 2)
    org.fault("expire", topic=org.topic, replay_id=ids[0].hex())
    outcome = sensor(after=ids[0].hex()).poke(context())
    assert (outcome.is_done, outcome.xcom_value["reason"]) == (True, "replay_lost")
    assert ids[0].hex() in caplog.text


def test_temporary_fault_is_logged_and_the_next_poll_succeeds(
    org: SharedOrg, capsys: pytest.CaptureFixture[str], sensor: MakeSensor
) -> None:
    publish(org, 1)
    made = sensor()
    org.fault("fail_calls", rpc="Subscribe")
    assert not made.poke(context())
    assert "this poke failed" in capsys.readouterr().out
    assert made.poke(context())
    org.fault("fail_calls", rpc="Subscribe")
    assert made.execute(context())["event_count"] == 1


def test_poll_of_an_unreachable_org_logs_the_last_reached_point(
    org: SharedOrg, sensor: MakeSensor, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log must not claim 0 events, because the server has not responded."""
    monkeypatch.setattr(proxies, "STEP_TIMEOUT", 0.3)
    publish(org, 1)
    with OrgBehindNetwork.of(org) as behind:  # type: ignore[arg-type]
        behind.grpc_tls.unreachable()
        timers = {"connect_timeout_seconds": 1, "call_timeout_seconds": 1}
        set_connection(monkeypatch, "salesforce_default", **behind.airflow_connection(**timers))
        assert not sensor().poke(context())
    output = capsys.readouterr().out
    assert "this poke failed" in output
    assert f"localhost was resolved, but TCP port {behind.grpc_tls_port} was not reached" in output
    assert "events were received" not in output


def test_expired_session_is_renewed_within_the_poll(org: SharedOrg, sensor: MakeSensor) -> None:
    made = sensor()
    assert not made.poke(context())
    publish(org, 1)
    org.revoke()
    assert made.poke(context())
    assert org.logins == 2


def test_session_refused_twice_ends_the_wait(org: SharedOrg, sensor: MakeSensor) -> None:
    code = "sfdc.platform.eventbus.grpc.service.auth.error"
    org.fault("fail_calls", rpc="Subscribe", times=2, code=code, status="UNAUTHENTICATED")
    with pytest.raises(SessionExpiredError):
        sensor().poke(context())


@pytest.mark.parametrize(
    ("arguments", "extra", "remedy"),
    [
        ({"topic": "/event/Missing__e"}, {}, "/event/Missing__e"),
        ({}, {"consumer_secret": "wrong-secret-value"}, "consumer_secret"),
        ({"after": "12345z"}, {}, "hex"),
        ({"subscription": " "}, {}, "subscription"),
    ],
)
@pytest.mark.parametrize("deferrable", [True, False])
@pytest.mark.parametrize("soft_fail", [True, False])
def test_permanent_error_fails_or_skips_the_task(
    org: SharedOrg,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: dict[str, Any],
    extra: dict[str, Any],
    remedy: str,
    deferrable: bool,
    soft_fail: bool,
    sensor: MakeSensor,
) -> None:
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection(**extra))
    made = sensor(deferrable=deferrable, soft_fail=soft_fail, **arguments)
    with pytest.raises((AirflowFailException, AirflowSkipException)) as caught:
        run(made)
    assert isinstance(caught.value, AirflowSkipException if soft_fail else AirflowFailException)
    assert remedy in error_text(caught.value)
    assert "wrong-secret-value" not in f"{error_text(caught.value)}{capsys.readouterr()}"


def test_missing_permission_fails_the_task_without_retries(org: SharedOrg, sensor: MakeSensor) -> None:
    code = "sfdc.platform.eventbus.grpc.subscription.topic.cannot.subscribe"
    org.fault("fail_calls", rpc="Subscribe", times=2, code=code, status="PERMISSION_DENIED")
    with pytest.raises(AirflowFailException, match="AccessDeniedError"):
        sensor().poke(context())
    with pytest.raises(AirflowFailException, match="AccessDeniedError"):
        run(sensor(deferrable=True))


def test_timeouts_fail_or_skip_as_with_any_sensor(sensor: MakeSensor) -> None:
    with pytest.raises(AirflowSensorTimeout):
        sensor(timeout=0).execute(context())
    with pytest.raises(AirflowSkipException):
        sensor(timeout=0, soft_fail=True).execute(context())
    with pytest.raises(AirflowRescheduleException):
        sensor(mode="reschedule").execute(context())
    made = sensor(deferrable=True, timeout=300)
    assert deferred(made).timeout == timedelta(seconds=300)


def test_deferral_starts_at_the_stored_position_and_has_no_secret(
    org: SharedOrg, store: TableReplayStore, sensor: MakeSensor
) -> None:
    ids = publish(org, 3)
    store.reset(stream(org), ids[0], reason="test", updated_by="test")
    made = sensor(deferrable=True, min_events=2, max_event_age=90)
    deferral = deferred(made)
    assert org.open_streams() == 0
    classpath, arguments = deferral.trigger.serialize()
    assert classpath == "airflow_provider_sfstream.triggers.salesforce_event.SalesforceEventTrigger"
    expected = {"topic": org.topic, "after": ids[0].hex(), "replay_store": None, "min_events": 2, "max_wait": 90}
    assert {key: arguments[key] for key in expected} == expected
    assert org.client_secret not in json.dumps(arguments)
    result = resume(made, deferral, run_trigger(deferral))
    assert (result["event_count"], result["first_replay_id"], result["through"]) == (2, ids[1].hex(), ids[2].hex())
    assert store.read(stream(org)).replay_id == ids[0], "a sensor moves no position"


def test_deferred_sensor_from_latest_counts_only_new_events(org: SharedOrg, sensor: MakeSensor) -> None:
    publish(org, 2)
    deferral = deferred(sensor(deferrable=True, start_from="latest"))
    new: list[bytes] = []

    async def publish_once_it_waits() -> dict[str, Any]:
        waiting = asyncio.create_task(asyncio.to_thread(run_trigger, deferral))
        await asyncio.to_thread(wait_until, org.open_streams, what="the subscription")
        new.extend(await asyncio.to_thread(publish, org, 1))
        return await waiting

    assert asyncio.run(publish_once_it_waits())["first_replay_id"] == new[0].hex()
