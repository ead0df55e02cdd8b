"""Allocation sensor against a local org: polling, deferral and faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_provider_sfstream._airflow import AirflowFailException, AirflowSkipException
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.salesforce.events import StartFrom
from airflow_provider_sfstream.sensors.salesforce_allocation import SalesforceAllocationSensor
from airflow_provider_sfstream.streams.watch.conditions import WakeUpConditions
from airflow_provider_sfstream.streams.watch.poll import poll
from airflow_provider_sfstream.triggers.salesforce_allocation import SalesforceAllocationTrigger
from tests.support.airflow_names import AirflowSensorTimeout, TaskDeferred
from tests.support.clients import pubsub_client
from tests.support.rest_proxy import RestProxy
from tests.support.shared_org import SharedOrg, org, shared_org
from tests.support.tasks import context_for, deferral_of, error_text, run_trigger, set_connection

__all__ = ["org", "shared_org"]

EVENTS = "DailyDeliveredPlatformEvents"
Make = Callable[..., SalesforceAllocationSensor]


@pytest.fixture
def proxy(org: SharedOrg, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestProxy]:
    """Start a proxy before the REST API of the org that may respond in place of the org."""
    with RestProxy.running(org.instance_url) as one:
        fields = {"auth_flow": "access_token", "access_token": org.token(), "instance_url": one.url}
        connection = org.airflow_connection(**fields)
        set_connection(monkeypatch, "behind_proxy", **connection)
        yield one


@pytest.fixture
def sensor(org: SharedOrg, monkeypatch: pytest.MonkeyPatch) -> Make:
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())

    def make(**arguments: Any) -> SalesforceAllocationSensor:
        usual = {"reserve": 0.5, "poke_interval": 0.05, "deferrable": False}
        return SalesforceAllocationSensor(task_id="enough", **{**usual, **arguments})

    return make


def use_up(org: SharedOrg, quota: int = 5) -> None:
    """Set the allocation of delivered events to ``quota`` more than used, and use it up."""
    org.knobs(delivery_quota=org.admin("GET", "/org")["delivered"] + quota)
    org.publish(org.topic, [{"Number__c": 1.0}] * quota)
    with pubsub_client(org) as reader:
        poll(reader, org.topic, StartFrom.EARLIEST, WakeUpConditions(min_events=quota))


def test_sensor_polls_until_enough_remains_and_returns_the_allocation(
    org: SharedOrg, sensor: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_up(org)
    made, looks, logins = sensor(reserve=2), [], org.logins
    poke = made.poke

    def counted(context: Any) -> Any:
        looks.append(1)
        if len(looks) == 3:
            org.knobs(delivery_quota=1_000_000)
        return poke(context)

    monkeypatch.setattr(made, "poke", counted)
    result = made.execute(context_for("enough"))
    assert (result["allocation"], result["max"], result["reserve"]) == (EVENTS, 1_000_000, 2)
    assert 0 < result["remaining"] <= 1_000_000
    assert len(looks) == 3
    assert org.logins == logins + 1, "three polls of one process log in once"
    assert caplog.text.count(f"{EVENTS}: 0 of ") == 2
    assert caplog.text.count("the numbers of delivered events could not be read") == 1, (
        "the local org has no such metric"
    )


@pytest.mark.parametrize(("reserve", "enough"), [(0.5, False), (0.0, True), (1, False), (0, True)])
def test_sensor_is_done_when_the_reserve_remains(org: SharedOrg, sensor: Make, reserve: float, enough: bool) -> None:
    use_up(org)
    assert bool(sensor(reserve=reserve).poke(context_for("enough"))) is enough


def test_deferred_allocation_sensor_waits_on_the_triggerer(org: SharedOrg, sensor: Make) -> None:
    use_up(org)
    made = sensor(deferrable=True, reserve=3)
    deferral = deferral_of(lambda: made.execute(context_for("enough")))
    path, arguments = deferral.trigger.serialize()
    assert path.endswith("triggers.salesforce_allocation.SalesforceAllocationTrigger")
    assert "secret" not in str(arguments)
    assert arguments["salesforce_conn_id"] == "salesforce_default"

    async def waited() -> dict[str, Any]:
        async with asyncio.timeout(60):
            events = SalesforceAllocationTrigger(**arguments).run()
            first = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0.3)
            assert not first.done(), "the trigger fired before enough remained"
            await asyncio.to_thread(org.knobs, delivery_quota=500_000)
            return dict((await first).payload)

    event = asyncio.run(waited())
    assert event["reason"] == "enough"
    result = made.resume_execution(deferral.method_name, {"event": event}, context_for("enough"))
    assert (result["allocation"], result["max"], result["reserve"]) == (EVENTS, 500_000, 3)


def test_sensor_does_not_defer_when_enough_remains(org: SharedOrg, sensor: Make) -> None:
    result = sensor(deferrable=True, allocation="DailyApiRequests", reserve=1).execute(context_for("enough"))
    assert result["remaining"] > 0


@pytest.mark.parametrize("deferrable", [True, False])
@pytest.mark.parametrize(("soft_fail", "raised"), [(False, AirflowFailException), (True, AirflowSkipException)])
def test_unknown_allocation_fails_or_skips_the_task(
    sensor: Make, deferrable: bool, soft_fail: bool, raised: type[Exception]
) -> None:
    made = sensor(allocation="DailyOrders", deferrable=deferrable, soft_fail=soft_fail)
    with pytest.raises(raised) as caught:
        made.execute(context_for("enough"))
    assert "AllocationUnknownError" in error_text(caught.value)


def test_trigger_fires_an_error_for_an_unknown_allocation(sensor: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    trigger = SalesforceAllocationTrigger(allocation="DailyOrders", reserve=1, poke_interval=0.05)
    event = run_trigger(TaskDeferred(trigger=trigger, method_name="execute_complete"))
    assert (event["reason"], event["error"]) == ("error", "AllocationUnknownError")
    with pytest.raises(AirflowFailException, match="AllocationUnknownError"):
        sensor().execute_complete(context_for("enough"), event)


@pytest.mark.parametrize(
    ("status", "code"), [(503, "SERVER_UNAVAILABLE"), (403, "REQUEST_LIMIT_EXCEEDED"), (500, "UNKNOWN_EXCEPTION")]
)
def test_temporarily_failed_poll_is_repeated(
    proxy: RestProxy, sensor: Make, status: int, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Also when the API requests are used up: the sensor may wait for exactly this allocation."""
    proxy.error("GET", "/limits", status, code, times=2)
    made = sensor(allocation="DailyApiRequests", reserve=1, salesforce_conn_id="behind_proxy")
    assert made.execute(context_for("enough"))["remaining"] > 0
    assert caplog.text.count("the allocation could not be read") == 2


def test_delivered_events_are_logged_once(
    org: SharedOrg, proxy: RestProxy, sensor: Make, caplog: pytest.LogCaptureFixture
) -> None:
    use_up(org)
    for value in (1_154, 15):
        proxy.answer("GET", "/query", 200, {"totalSize": 1, "done": True, "records": [{"Value": value}]})
    made = sensor(salesforce_conn_id="behind_proxy")
    assert not made.poke(context_for("enough"))
    assert not made.poke(context_for("enough"))
    assert caplog.text.count("last full hour: 1,154 platform events, 15 change events.") == 1


def test_missing_permission_to_read_allocations_fails_the_task(proxy: RestProxy, sensor: Make) -> None:
    proxy.error("GET", "/limits", 403, "INSUFFICIENT_ACCESS")
    with pytest.raises(AirflowFailException) as caught:
        sensor(salesforce_conn_id="behind_proxy").execute(context_for("enough"))
    assert "View Setup and Configuration" in error_text(caught.value)


def test_allocation_sensor_fails_after_its_timeout(org: SharedOrg, sensor: Make) -> None:
    use_up(org)
    with pytest.raises(AirflowSensorTimeout):
        sensor(timeout=0.1).execute(context_for("enough"))


def test_reserve_above_the_maximum_fails_the_task(org: SharedOrg, sensor: Make) -> None:
    use_up(org)
    with pytest.raises(AirflowFailException, match="reserve of 1,000,000,000 is higher than the maximum") as caught:
        sensor(reserve=1_000_000_000).execute(context_for("enough"))
    assert "Lower the reserve" in error_text(caught.value)


@pytest.mark.parametrize("wrong", [{"reserve": 1.5}, {"reserve": -1}, {"reserve": "0.5"}, {"allocation": ""}])
def test_wrong_arguments_are_refused_when_the_dag_is_parsed(sensor: Make, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        sensor(**wrong)
