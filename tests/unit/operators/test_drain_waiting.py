"""Waiting of a drain: when, where and for which events it waits, by its arguments and the configuration."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_sfstream._airflow import AirflowFailException, TaskDeferralTimeout
from airflow_provider_sfstream.actions.drain.waiting import LONGEST_UNCONFIRMED, LONGEST_WAIT, is_to_be_confirmed
from airflow_provider_sfstream.exceptions import AccessDeniedError, ConfigurationError, ReplayStoreError
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.replay_stores.base import Position
from airflow_provider_sfstream.salesforce.topics import LONG_RETENTION, SHORT_RETENTION
from airflow_provider_sfstream.streams.watch.conditions import WakeUpConditions, error_payload
from tests.support.tasks import context_for


def drain(**arguments: Any) -> DrainReplayWindowOperator:
    return DrainReplayWindowOperator(
        **{"task_id": "drain", "topic": "/event/Order__e", "landing_url": "/lake", **arguments}
    )


@pytest.fixture(params=["True", "False"])
def configured(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Set the configuration's default for deferrable operators, and return it."""
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", request.param)
    return bool(request.param == "True")


@pytest.mark.parametrize(
    ("arguments", "min_events", "deferrable"),
    [
        ({}, 0, None),
        ({"deferrable": True}, 1, True),
        ({"deferrable": False}, 0, False),
        ({"min_events": 5}, 5, None),
        ({"min_events": 5, "deferrable": True}, 5, True),
        ({"min_events": 5, "deferrable": False}, 5, False),
        ({"min_events": 0, "deferrable": True}, 0, True),
    ],
)
def test_configuration_decides_where_a_drain_waits_not_whether_it_waits(
    configured: bool, arguments: dict[str, Any], min_events: int, deferrable: bool | None
) -> None:
    operator = drain(**arguments)
    assert operator.min_events == min_events
    assert operator.deferrable is (configured if deferrable is None else deferrable)
    waits_for = operator.conditions
    assert waits_for == (WakeUpConditions(min_events=min_events) if min_events else None)


@pytest.mark.parametrize("max_wait", [90, 90.0, timedelta(seconds=90)])
def test_max_wait_is_seconds_or_a_timedelta(max_wait: Any) -> None:
    operator = drain(min_events=7, max_wait=max_wait)
    assert operator.conditions == WakeUpConditions(min_events=7, max_wait=90.0)


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        ({"min_events": -1}, "min_events=-1"),
        ({"min_events": 1.5}, "min_events=1.5"),
        ({"min_events": "5"}, "min_events='5'"),
        ({"min_events": True}, "min_events=True"),
        ({"min_events": 2, "max_wait": 0}, "max_wait=0"),
        ({"min_events": 2, "max_wait": timedelta(seconds=-1)}, "max_wait=-1"),
        ({"min_events": 2, "max_wait": "60"}, "max_wait='60'"),
        ({"max_wait": 60}, "Set min_events"),
        ({"min_events": 0, "max_wait": 60, "deferrable": True}, "Set min_events"),
    ],
)
def test_bad_arguments_are_refused_when_the_dag_is_parsed(arguments: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ConfigurationError, match=remedy):
        drain(**arguments)


def test_permanent_error_of_a_wait_fails_the_task_without_retry() -> None:
    event = error_payload(AccessDeniedError("/event/Order__e: no permission"))
    with pytest.raises(AirflowFailException, match="AccessDeniedError: /event/Order__e: no permission"):
        drain(deferrable=True).execute_complete(context_for("drain"), event)


def test_transient_error_of_a_wait_is_retried() -> None:
    event = error_payload(ReplayStoreError("the database is down"))
    with pytest.raises(ReplayStoreError, match="the database is down"):
        drain(deferrable=True).execute_complete(context_for("drain"), event)


def test_a_wait_over_the_execution_timeout_fails_the_task() -> None:
    operator = drain(deferrable=True, execution_timeout=timedelta(seconds=5))
    with pytest.raises(TaskDeferralTimeout):
        operator.resume_execution("__fail__", {"error": "Trigger timeout"}, context_for("drain"))


@pytest.mark.parametrize(
    ("retention", "replay_id", "hours", "due"),
    [
        (LONG_RETENTION, b"\x01", 31, True),
        (LONG_RETENTION, b"\x01", 29, False),
        (LONG_RETENTION, b"\x01", None, False),
        (LONG_RETENTION, None, 31, False),
        (SHORT_RETENTION, b"\x01", 9, True),
        (SHORT_RETENTION, b"\x01", 7, False),
    ],
)
def test_a_position_is_recorded_anew_before_it_can_age_out(
    retention: timedelta, replay_id: bytes | None, hours: int | None, due: bool
) -> None:
    now = datetime(2026, 11, 20, tzinfo=UTC)
    recorded = None if hours is None else now - timedelta(hours=hours)
    assert is_to_be_confirmed(Position(replay_id, fence=1, updated_at=recorded), retention, now) is due


def test_no_wait_outlasts_the_retention_of_its_start_position() -> None:
    unconfirmed_by_drains_of_one_day, margin = timedelta(hours=24), timedelta(hours=1)
    longest = LONGEST_UNCONFIRMED[LONG_RETENTION] + LONGEST_WAIT
    assert unconfirmed_by_drains_of_one_day + longest < LONG_RETENTION - margin
    assert LONGEST_UNCONFIRMED[SHORT_RETENTION] + LONGEST_WAIT < SHORT_RETENTION - margin


def test_dag_with_a_waiting_drain_can_be_serialized() -> None:
    from tests.support.airflow_names import DagSerialization

    with DAG("waiting", schedule=None) as dag:
        drain(deferrable=True, min_events=3, max_wait=timedelta(minutes=1))
    DagSerialization.to_dict(dag)


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        ({"until": "yesterday"}, "ISO 8601"),
        ({"until": "2020-01-01"}, "time zone"),
        ({"grace": timedelta(minutes=1)}, "Set until too"),
        ({"max_events": 0}, "max_events=0"),
        ({"idle_timeout": 0}, "idle_timeout=0"),
        ({"reuse": "no"}, "reuse='no'"),
        ({"replay_store": "redis"}, "'variable', 'table', 'landing'"),
        ({"subscription": "mine", "managed_subscription": "Orders"}, "not both"),
        ({"accept_quiet_aging": True}, "accept_quiet_aging=True applies to the Streaming API"),
        ({"accept_quiet_aging": "yes", "api": "streaming"}, "accept_quiet_aging='yes'"),
        ({"accept_quiet_aging": True, "managed_subscription": "Orders"}, "Streaming API"),
        ({"wait_for_confirmation": True, "api": "streaming"}, "remove api='streaming' to drain over the Pub/Sub"),
        ({"wait_for_confirmation": True, "topic": "/topic/Orders"}, "never confirms the end of a stream: remove it"),
        ({"wait_for_confirmation": True, "topic": "/u/Notes", "mode": "interval"}, "cannot be fulfilled for /u/Notes"),
    ],
)
def test_unusable_drain_arguments_are_refused_when_the_dag_is_parsed(arguments: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ConfigurationError, match=remedy):
        drain(**arguments)
    drain(until="{{ data_interval_end }}", reuse="{{ params.reuse }}", grace=timedelta(minutes=1))


def test_templated_topic_is_refused_when_the_task_runs() -> None:
    operator = drain(topic="{{ params.topic }}", wait_for_confirmation=True)
    operator.topic = "/topic/Orders"
    with pytest.raises(ConfigurationError, match="wait_for_confirmation=True cannot be fulfilled"):
        operator.check_arguments()


@pytest.mark.parametrize("topic", ["/topic/Orders", "/u/Notes", "/event/Order__e", "/data/AccountChangeEvent"])
def test_quiet_aging_can_be_accepted_on_each_topic_of_the_streaming_api(topic: str) -> None:
    assert drain(topic=topic, api="streaming", accept_quiet_aging=True).accept_quiet_aging
