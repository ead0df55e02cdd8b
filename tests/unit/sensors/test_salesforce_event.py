"""What the sensor takes, and what becomes of a wait that did not end well. Without a server."""

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
from airflow_provider_sfstream.streams.watch.conditions import WakeUp, WakeUpReason
from airflow_provider_sfstream.streams.watch.payload import error_payload, payload
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
def test_bad_arguments_are_refused_when_the_dag_is_parsed(arguments: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ConfigurationError, match=remedy):
        sensor(**arguments)


def test_airflows_own_arguments_keep_their_meaning() -> None:
    made = sensor(max_wait=30, poke_interval=5, exponential_backoff=True, timeout=60, mode="reschedule", soft_fail=True)
    assert (made.max_wait, made.timeout, made.mode) == (timedelta(seconds=30), 60, "reschedule")
    with pytest.raises(ValueError, match="mutually exclusive"):
        sensor(soft_fail=True, never_fail=True)


def test_templates_are_checked_once_they_are_rendered() -> None:
    made = sensor(topic="{{ params.topic }}", start_from="{{ params.start }}", replay_store=None, deferrable=False)
    made.topic, made.start_from = "Order__e", "earliest"
    with pytest.raises(AirflowFailException, match=InvalidTopicError.__name__):
        made.poke(context_for("wait"))
    made.topic, made.start_from = "/event/Order__e", "latest"
    with pytest.raises(AirflowFailException, match="Set deferrable=True"):
        made.poke(context_for("wait"))


@pytest.mark.parametrize("name", ["topic", "salesforce_conn_id", "subscription", "replay_id", "start_from"])
def test_what_names_a_stream_is_templated(name: str) -> None:
    assert name in SalesforceEventSensor.template_fields


def test_the_api_is_chosen_by_the_topic_unless_it_is_given() -> None:
    deferrable = {"replay_store": None, "replay_id": "00" * 8, "timeout": 60}
    for topic, api in (("/topic/Orders", None), ("/event/Order__e", "streaming"), ("/event/Order__e", None)):
        with pytest.raises(TaskDeferred) as caught:
            sensor(topic=topic, api=api, **deferrable).execute(context_for("wait"))
        assert caught.value.trigger.serialize()[1]["api"] == api
    with pytest.raises(InvalidTopicError, match="on the Streaming API only"):
        sensor(topic="/u/Orders", api="pubsub")


def test_what_the_trigger_would_refuse_fails_for_good_before_the_deferral() -> None:
    with pytest.raises(AirflowFailException, match="subscription=' '"):
        sensor(replay_id="00aa", subscription=" ").execute(context_for("wait"))


def test_without_a_position_to_read_it_defers_without_a_login() -> None:
    with pytest.raises(TaskDeferred) as caught:
        sensor(replay_store=None, start_from="latest", timeout=60).execute(context_for("wait"))
    arguments = caught.value.trigger.serialize()[1]
    assert (arguments["replay_id"], arguments["start_from"]) == (None, "latest")
    assert caught.value.timeout == timedelta(seconds=60)


def resume(made: SalesforceEventSensor, method: str, event: dict[str, Any]) -> Any:
    """Resume as Airflow's task runner does."""
    return made.resume_execution(method, event, context_for("wait"))


def test_the_result_is_what_woke_it() -> None:
    told = payload(STREAM, WakeUp(WakeUpReason.EVENTS, b"\x01", 2, b"\x02"))
    assert resume(sensor(), "execute_complete", {"event": told}) == told


def test_a_timeout_fails_as_a_sensors_does_and_is_not_retried() -> None:
    with pytest.raises(AirflowSensorTimeout):
        resume(sensor(), "__fail__", TIMED_OUT)


def test_a_trigger_that_failed_fails_the_task() -> None:
    with pytest.raises(TaskDeferralError):
        resume(sensor(), "__fail__", {"error": "Trigger failure", "traceback": ["boom"]})


def test_refused_credentials_fail_for_good() -> None:
    told = error_payload(AuthenticationError("the login was refused"))
    with pytest.raises(AirflowFailException, match="AuthenticationError: the login was refused"):
        resume(sensor(), "execute_complete", {"event": told})


def test_a_fault_that_may_pass_is_left_to_a_retry_even_with_soft_fail() -> None:
    told = error_payload(ServiceUnavailableError("down"))
    with pytest.raises(ServiceUnavailableError, match="down"):
        resume(sensor(soft_fail=True), "execute_complete", {"event": told})


@pytest.mark.parametrize("softly", [{"soft_fail": True}, {"never_fail": True}])
def test_soft_fail_skips_after_a_timeout_or_an_error(softly: dict[str, bool]) -> None:
    with pytest.raises(AirflowSkipException):
        resume(sensor(**softly), "__fail__", TIMED_OUT)
    refused = {"event": error_payload(AuthenticationError("the login was refused"))}
    with pytest.raises(AirflowSkipException):
        resume(sensor(**softly), "execute_complete", refused)
    with pytest.raises(AirflowSkipException, match="'zz' is not a replay ID"):
        sensor(replay_id="zz", **softly).execute(context_for("wait"))
