"""Arguments of the sensor, and the outcome of failed waits. Without a server."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_sfstream._airflow import AirflowFailException, AirflowSkipException
from airflow_provider_sfstream.exceptions import (
    AuthenticationError,
    ConfigurationError,
    InvalidTopicError,
    ServiceUnavailableError,
)
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.sensors.salesforce_event import SalesforceEventSensor
from airflow_provider_sfstream.streams.watch.conditions import WakeUp, WakeUpReason, error_payload, payload
from tests.support.airflow_names import AirflowSensorTimeout, TaskDeferralError, TaskDeferred
from tests.support.tasks import context_for

STREAM = Stream("00D000000000001EAA", "pubsub", "/event/Order__e")
TIMED_OUT = {"error": "Trigger timeout"}


def sensor(**arguments: Any) -> SalesforceEventSensor:
    return SalesforceEventSensor(task_id="wait", **{"topic": "/event/Order__e", "deferrable": True, **arguments})


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        ({"topic": "Order__e"}, "/event/"),
        ({"replay_store": "redis"}, "replay_store='redis'"),
        ({"start_from": "00aa"}, "start_from='00aa'"),
        ({"start_from": "latest", "deferrable": False}, "Set deferrable=True"),
        ({"min_events": 0}, "min_events=0"),
        ({"min_events": "3"}, "min_events='3'"),
        ({"max_event_age": 0}, "max_event_age=0"),
        ({"max_event_age": timedelta(seconds=-5)}, "max_event_age=-5"),
    ],
)
def test_invalid_sensor_arguments_are_refused_when_the_dag_is_parsed(arguments: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ConfigurationError, match=remedy):
        sensor(**arguments)


def test_airflows_own_arguments_keep_their_meaning() -> None:
    task = sensor(max_wait=30, poke_interval=5, exponential_backoff=True, timeout=60, mode="reschedule", soft_fail=True)
    assert (task.max_wait, task.timeout, task.mode) == (timedelta(seconds=30), 60, "reschedule")
    with pytest.raises(ValueError, match="mutually exclusive"):
        sensor(soft_fail=True, never_fail=True)


def test_templated_arguments_are_validated_after_rendering() -> None:
    task = sensor(topic="{{ params.topic }}", start_from="{{ params.start }}", replay_store=None, deferrable=False)
    task.topic, task.start_from = "Order__e", "earliest"
    with pytest.raises(AirflowFailException, match=InvalidTopicError.__name__):
        task.poke(context_for("wait"))
    task.topic, task.start_from = "/event/Order__e", "latest"
    with pytest.raises(AirflowFailException, match="Set deferrable=True"):
        task.poke(context_for("wait"))


@pytest.mark.parametrize("name", ["topic", "salesforce_conn_id", "subscription", "after", "start_from"])
def test_arguments_that_name_a_stream_are_templated(name: str) -> None:
    assert name in SalesforceEventSensor.template_fields


def test_api_follows_from_the_topic_unless_it_is_set() -> None:
    deferrable = {"replay_store": None, "after": "00" * 8, "timeout": 60}
    for topic, api in (("/topic/Orders", None), ("/event/Order__e", "streaming"), ("/event/Order__e", None)):
        with pytest.raises(TaskDeferred) as caught:
            sensor(topic=topic, api=api, **deferrable).execute(context_for("wait"))
        assert caught.value.trigger.serialize()[1]["api"] == api
    with pytest.raises(InvalidTopicError, match="on the Streaming API only"):
        sensor(topic="/u/Orders", api="pubsub")


def test_arguments_that_the_trigger_refuses_fail_the_task_before_deferral() -> None:
    with pytest.raises(AirflowFailException, match="subscription=' '"):
        sensor(after="00aa", subscription=" ").execute(context_for("wait"))


def test_sensor_without_a_stored_position_defers_without_a_login() -> None:
    with pytest.raises(TaskDeferred) as caught:
        sensor(replay_store=None, start_from="latest", timeout=60).execute(context_for("wait"))
    arguments = caught.value.trigger.serialize()[1]
    assert (arguments["after"], arguments["start_from"]) == (None, "latest")
    assert caught.value.timeout == timedelta(seconds=60)


def resume(task: SalesforceEventSensor, method: str, event: dict[str, Any]) -> Any:
    """Resume the deferred sensor as Airflow's task runner does."""
    return task.resume_execution(method, event, context_for("wait"))


def test_result_is_the_payload_of_the_wake_up() -> None:
    event = payload(STREAM, WakeUp(WakeUpReason.EVENTS, b"\x01", 2, b"\x02"))
    assert resume(sensor(), "execute_complete", {"event": event}) == event


def test_timeout_raises_airflows_sensor_timeout() -> None:
    with pytest.raises(AirflowSensorTimeout):
        resume(sensor(), "__fail__", TIMED_OUT)


def test_failed_trigger_fails_the_task() -> None:
    with pytest.raises(TaskDeferralError):
        resume(sensor(), "__fail__", {"error": "Trigger failure", "traceback": ["boom"]})


def test_refused_credentials_fail_the_task_without_a_retry() -> None:
    event = error_payload(AuthenticationError("the login was refused"))
    with pytest.raises(AirflowFailException, match="AuthenticationError: the login was refused"):
        resume(sensor(), "execute_complete", {"event": event})


def test_retriable_fault_is_raised_for_a_retry_even_with_soft_fail() -> None:
    event = error_payload(ServiceUnavailableError("down"))
    with pytest.raises(ServiceUnavailableError, match="down"):
        resume(sensor(soft_fail=True), "execute_complete", {"event": event})


@pytest.mark.parametrize("softly", [{"soft_fail": True}, {"never_fail": True}])
def test_soft_fail_skips_after_a_timeout_or_an_error(softly: dict[str, bool]) -> None:
    with pytest.raises(AirflowSkipException):
        resume(sensor(**softly), "__fail__", TIMED_OUT)
    refused = {"event": error_payload(AuthenticationError("the login was refused"))}
    with pytest.raises(AirflowSkipException):
        resume(sensor(**softly), "execute_complete", refused)
    with pytest.raises(AirflowSkipException, match="'zz' is not a replay ID"):
        sensor(after="zz", **softly).execute(context_for("wait"))
