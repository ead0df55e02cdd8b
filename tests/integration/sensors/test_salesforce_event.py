"""The sensor against a local org: looking, deferring, and what it does about faults."""

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
from airflow_provider_sfstream.streams.watch.look import look
from tests.support.airflow_names import AirflowRescheduleException, AirflowSensorTimeout, TaskDeferred
from tests.support.behind_network import OrgBehindNetwork
from tests.support.localorg import wait_until
from tests.support.shared_org import SharedOrg, org, shared_org
from tests.support.tasks import context_for, fired, set_connection, told
from tests.support.tasks import deferred as deferral_of

__all__ = ["org", "shared_org"]


@pytest.fixture(autouse=True)
def store(org: SharedOrg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableReplayStore]:
    org.knobs(keepalive_seconds=0.3)  # so that a look that finds too little need not wait for silence
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
    """Resume as Airflow's task runner does."""
    return made.resume_execution(deferral.method_name, {**(deferral.kwargs or {}), "event": event}, context())


def run(made: SalesforceEventSensor) -> Any:
    """Run the task to its end, on the triggerer in between if it defers."""
    try:
        return made.execute(context())
    except TaskDeferred as deferral:
        return resume(made, deferral, fired(deferral))


def test_looks_count_anew_until_enough_is_there(
    org: SharedOrg, store: TableReplayStore, sensor: MakeSensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sensor(min_events=3)
    org.knobs(keepalive_seconds=120)
    with monkeypatch.context() as patched:
        patched.setitem(look.__kwdefaults__, "idle_timeout", 1.0)
        assert not made.poke(context()), "silence ends a look as well"
    wait_until(lambda: not org.open_streams(), what="the end of the first look, which would count what is published")
    org.knobs(keepalive_seconds=0.3)
    first = publish(org, 2)
    assert not made.poke(context())
    wait_until(lambda: not org.open_streams(), what="the end of the second look, which would receive the next event")
    last = publish(org, 2)
    told = made.poke(context())
    assert told.xcom_value == {
        "reason": "events",
        "stream": {"org_id": org.org_id, "api": "pubsub", "topic": org.topic, "subscription": "airflow"},
        "first_replay_id": first[0].hex(),
        "through": last[0].hex(),
        "event_count": 3,
    }
    assert org.delivered == 2 + 3, "a look takes no more than it needs"
    assert org.logins == 1, "three looks of one process log in once"
    wait_until(lambda: not org.open_streams(), what="the end of the looks")
    assert store.read(stream(org)).fence == 0, "a sensor moves no position"


def test_execute_looks_until_it_is_there_and_returns_it(org: SharedOrg, sensor: MakeSensor) -> None:
    ids = publish(org, 1)
    assert sensor().execute(context())["first_replay_id"] == ids[0].hex()


def test_it_looks_after_the_position_of_its_subscription_or_a_given_replay_id(
    org: SharedOrg,
    store: TableReplayStore,
    sensor: MakeSensor,
) -> None:
    ids = publish(org, 3)
    store.reset(stream(org, "loads"), ids[1], reason="test", updated_by="test")
    assert sensor(subscription="loads").poke(context()).xcom_value["first_replay_id"] == ids[2].hex()
    given = sensor(subscription="loads", replay_id=ids[0].hex())
    assert given.poke(context()).xcom_value["first_replay_id"] == ids[1].hex()
    assert sensor(subscription="other").poke(context()).xcom_value["first_replay_id"] == ids[0].hex()
    assert sensor(subscription="loads", replay_store=None).poke(context()).xcom_value["event_count"] == 1
    store.reset(stream(org, "loads"), ids[2], reason="test", updated_by="test")
    assert not sensor(subscription="loads").poke(context())


@pytest.mark.parametrize(("minutes_old", "enough"), [(31, True), (1, False)])
def test_fewer_are_enough_once_one_is_old(org: SharedOrg, minutes_old: int, enough: bool, sensor: MakeSensor) -> None:
    publish(org, 1, CreatedDate=(datetime.now(UTC) - timedelta(minutes=minutes_old)).isoformat())
    publish(org, 1)
    assert bool(sensor(min_events=100, max_event_age=timedelta(minutes=30)).poke(context())) is enough


def test_a_lost_replay_id_ends_the_wait(org: SharedOrg, caplog: pytest.LogCaptureFixture, sensor: MakeSensor) -> None:
    ids = publish(org, 2)
    org.fault("expire", topic=org.topic, replay_id=ids[0].hex())
    told = sensor(replay_id=ids[0].hex()).poke(context())
    assert (told.is_done, told.xcom_value["reason"]) == (True, "replay_lost")
    assert ids[0].hex() in caplog.text


def test_a_fault_that_passes_is_left_to_the_next_look(
    org: SharedOrg, capsys: pytest.CaptureFixture[str], sensor: MakeSensor
) -> None:
    publish(org, 1)
    made = sensor()
    org.fault("fail_calls", rpc="Subscribe")
    assert not made.poke(context())
    assert "this look failed" in capsys.readouterr().out
    assert made.poke(context())
    org.fault("fail_calls", rpc="Subscribe")
    assert made.execute(context())["event_count"] == 1


def test_a_look_at_what_cannot_be_reached_says_where_the_way_ends(
    org: SharedOrg, sensor: MakeSensor, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It never says that 0 events are there, which the server has not said."""
    monkeypatch.setattr(proxies, "STEP_TIMEOUT", 0.3)
    publish(org, 1)
    with OrgBehindNetwork.of(org) as behind:  # type: ignore[arg-type]
        behind.grpc_tls.unreachable()
        timers = {"connect_timeout_seconds": 1, "call_timeout_seconds": 1}
        set_connection(monkeypatch, "salesforce_default", **behind.airflow_connection(**timers))
        assert not sensor().poke(context())
    said = capsys.readouterr().out
    assert "this look failed" in said
    assert f"localhost was resolved, but TCP port {behind.grpc_tls_port} was not reached" in said
    assert "events are there" not in said


def test_an_expired_session_costs_a_login_not_a_look(org: SharedOrg, sensor: MakeSensor) -> None:
    made = sensor()
    assert not made.poke(context())
    publish(org, 1)
    org.revoke()
    assert made.poke(context())
    assert org.logins == 2


def test_a_session_refused_twice_is_no_reason_to_wait_on(org: SharedOrg, sensor: MakeSensor) -> None:
    code = "sfdc.platform.eventbus.grpc.service.auth.error"
    org.fault("fail_calls", rpc="Subscribe", times=2, code=code, status="UNAUTHENTICATED")
    with pytest.raises(SessionExpiredError):
        sensor().poke(context())


@pytest.mark.parametrize(
    ("arguments", "extra", "remedy"),
    [
        ({"topic": "/event/Missing__e"}, {}, "/event/Missing__e"),
        ({}, {"consumer_secret": "wrong-secret-value"}, "consumer_secret"),
        ({"replay_id": "12345z"}, {}, "hex"),
        ({"subscription": " "}, {}, "subscription"),
    ],
)
@pytest.mark.parametrize("deferrable", [True, False])
@pytest.mark.parametrize("soft_fail", [True, False])
def test_what_waiting_cannot_mend_fails_for_good_or_is_skipped(
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
    assert remedy in told(caught.value)
    assert "wrong-secret-value" not in f"{told(caught.value)}{capsys.readouterr()}"


def test_a_missing_permission_fails_for_good(org: SharedOrg, sensor: MakeSensor) -> None:
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


def test_it_defers_from_where_it_would_look_and_tells_no_secret(
    org: SharedOrg, store: TableReplayStore, sensor: MakeSensor
) -> None:
    ids = publish(org, 3)
    store.reset(stream(org), ids[0], reason="test", updated_by="test")
    made = sensor(deferrable=True, min_events=2, max_event_age=90)
    deferral = deferred(made)
    assert org.open_streams() == 0
    classpath, arguments = deferral.trigger.serialize()
    assert classpath == "airflow_provider_sfstream.triggers.salesforce_event.SalesforceEventTrigger"
    expected = {"topic": org.topic, "replay_id": ids[0].hex(), "replay_store": None, "min_events": 2, "max_wait": 90}
    assert {key: arguments[key] for key in expected} == expected
    assert org.client_secret not in json.dumps(arguments)
    told = resume(made, deferral, fired(deferral))
    assert (told["event_count"], told["first_replay_id"], told["through"]) == (2, ids[1].hex(), ids[2].hex())
    assert store.read(stream(org)).replay_id == ids[0], "a sensor moves no position"


def test_from_latest_only_what_comes_while_it_waits_counts(org: SharedOrg, sensor: MakeSensor) -> None:
    publish(org, 2)
    deferral = deferred(sensor(deferrable=True, start_from="latest"))
    new: list[bytes] = []

    async def publish_once_it_waits() -> dict[str, Any]:
        waiting = asyncio.create_task(asyncio.to_thread(fired, deferral))
        await asyncio.to_thread(wait_until, org.open_streams, what="the subscription")
        new.extend(await asyncio.to_thread(publish, org, 1))
        return await waiting

    assert asyncio.run(publish_once_it_waits())["first_replay_id"] == new[0].hex()
