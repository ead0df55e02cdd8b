"""Drain, sensor and trigger on a managed event subscription, against a local org."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.salesforce.streams import Stream
from airflow_provider_sfstream.sensors.salesforce_event import SalesforceEventSensor
from airflow_provider_sfstream.triggers.salesforce_event import SalesforceEventTrigger
from tests.support.landed import landed_replay_ids
from tests.support.localorg import LocalOrg
from tests.support.tasks import context_for, set_connection

_numbers = count(1)


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as local_org:
        local_org.knobs(keepalive_seconds=0.1)
        yield local_org


class Subscription:
    """A managed subscription with its own topic."""

    def __init__(self, org: LocalOrg, landing: Path) -> None:
        number = next(_numbers)
        self.org, self.landing = org, landing
        self.topic, self.name = f"/event/Kept{number}__e", f"Kept_{number}"
        org.define(f"Kept{number}__e", Number__c="double")
        org.managed_subscription(self.name, self.topic, error_recovery_replay="EARLIEST")

    def publish(self, number: int) -> list[bytes]:
        return self.org.publish(self.topic, [{"Number__c": float(n)} for n in range(number)])

    def drain(self, **arguments: Any) -> DrainReplayWindowOperator:
        return DrainReplayWindowOperator(
            task_id="drain",
            **{
                "topic": self.topic,
                "managed_subscription": self.name,
                "landing_url": str(self.landing),
                "idle_timeout": 1.0,
                **arguments,
            },
        )

    def record(self) -> list[bytes]:
        return [event["replay_id"] for event in self.org.record(self.topic)]

    def landed(self) -> list[bytes]:
        return landed_replay_ids(self.landing, Stream(self.org.org_id, "pubsub", self.topic, self.name))

    def committed(self) -> bytes | None:
        committed: bytes | None = self.org.managed_subscriptions()[self.name]["committed"]
        return committed


@pytest.fixture
def subscription(org: LocalOrg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Subscription:
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
    return Subscription(org, tmp_path / "landing")


def test_the_position_is_stored_only_in_the_landing_and_in_salesforce(subscription: Subscription) -> None:
    subscription.publish(30)
    first = subscription.drain(max_events=20).execute(context_for("drain"))
    assert (first["event_count"], first["committed"]) == (20, True)
    assert first["stream"]["subscription"] == subscription.name
    assert subscription.committed() == subscription.record()[19]
    rest = subscription.drain().execute(context_for("drain", run_id="run-2", hour=2))
    assert (rest["event_count"], rest["after"]) == (10, first["through"])
    again = subscription.drain(max_events=20).execute(context_for("drain"))
    assert again == {**first, "drained": False}
    assert subscription.landed() == subscription.record()
    assert subscription.committed() == subscription.record()[-1]
    assert [path.name for path in (subscription.landing / "positions").iterdir()]


def test_an_unreadable_position_is_a_gap_and_error_recovery_replay_applies(subscription: Subscription) -> None:
    ids = subscription.publish(10)
    subscription.drain(max_events=3).execute(context_for("drain"))
    subscription.org.fault("expire_before", topic=subscription.topic, replay_id=ids[6].hex())
    result = subscription.drain().execute(context_for("drain", run_id="run-2", hour=2))
    assert result["event_count"] == 4
    assert result["gap"] is not None
    assert subscription.landed() == ids[:3] + ids[6:]


@pytest.mark.parametrize(("policy", "landed"), [("earliest", [6, 7, 8, 9]), ("latest", [6, 7, 8, 9])])
def test_on_invalid_replay_takes_precedence_over_error_recovery_replay(
    subscription: Subscription, policy: str, landed: list[int]
) -> None:
    """With "latest", Salesforce continues at the subscription's errorRecoveryReplay, which is EARLIEST here."""
    ids = subscription.publish(10)
    subscription.drain(max_events=3, on_invalid_replay="fail").execute(context_for("drain"))
    subscription.org.fault("expire_before", topic=subscription.topic, replay_id=ids[6].hex())
    with pytest.raises(AirflowFailException, match="cannot be read"):
        subscription.drain(on_invalid_replay="fail").execute(context_for("drain", run_id="run-2", hour=2))
    assert subscription.landed() == ids[:3]
    result = subscription.drain(on_invalid_replay=policy).execute(context_for("drain", run_id="run-2", hour=2))
    assert result["gap"]["reason"].endswith(f"on_invalid_replay='{policy}'")
    assert subscription.landed() == ids[:3] + [ids[n] for n in landed]


def test_a_subscription_of_another_topic_is_refused_before_anything_is_read(subscription: Subscription) -> None:
    subscription.org.define("Elsewhere__e", Number__c="double")
    calls = len(subscription.org.requests("grpc"))
    with pytest.raises(AirflowFailException, match=f"{subscription.name} belongs to {subscription.topic}"):
        subscription.drain(topic="/event/Elsewhere__e").execute(context_for("drain"))
    assert len(subscription.org.requests("grpc")) == calls


def test_an_unknown_managed_subscription_fails_without_retry(subscription: Subscription) -> None:
    with pytest.raises(AirflowFailException, match="Nobody"):
        subscription.drain(managed_subscription="Nobody").execute(context_for("drain"))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"start_from": "latest"},
            "start_from='latest' cannot be combined with managed_subscription: the subscription's default",
        ),
        ({"mode": "interval"}, "Backfills of this DAG still drain intervals"),
        ({"advance": "manual"}, "the task that drained a window commits it"),
        ({"subscription": "mine"}, "subscription or managed_subscription, not both"),
        ({"api": "streaming"}, "only on the Pub/Sub API"),
        ({"managed_subscription": "not a name"}, "does not name a managed event subscription"),
    ],
)
def test_incompatible_arguments_are_refused_when_the_dag_is_parsed(
    subscription: Subscription, arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigurationError, match=text):
        subscription.drain(**arguments)


def test_a_waiting_drain_does_not_occupy_the_only_consumer_slot(subscription: Subscription) -> None:
    subscription.publish(2)
    subscription.drain().execute(context_for("drain"))
    subscription.publish(3)
    result = subscription.drain(min_events=3, deferrable=False).execute(context_for("drain", run_id="run-2", hour=2))
    assert result["event_count"] == 3
    assert subscription.landed() == subscription.record()


def test_sensor_and_trigger_see_uncommitted_events_and_commit_nothing(subscription: Subscription) -> None:
    ids = subscription.publish(5)
    subscription.drain(max_events=3).execute(context_for("drain"))
    common: dict[str, Any] = {"topic": subscription.topic, "managed_subscription": subscription.name}
    sensor = SalesforceEventSensor(task_id="wait", min_events=2, replay_store=None, **common)
    seen = sensor.poke(context_for("wait"))
    assert seen
    assert (seen.xcom_value["event_count"], seen.xcom_value["first_replay_id"]) == (2, ids[3].hex())

    async def fired() -> list[Any]:
        async with asyncio.timeout(60):
            return [event.payload async for event in SalesforceEventTrigger(min_events=2, **common).run()]

    (event,) = asyncio.run(fired())
    assert (event["event_count"], event["first_replay_id"], event["through"]) == (2, ids[3].hex(), ids[4].hex())
    assert event["stream"]["subscription"] == subscription.name
    patient = SalesforceEventSensor(task_id="wait", min_events=3, replay_store=None, **common)
    assert not patient.poke(context_for("wait"))
    assert subscription.committed() == ids[2]
    subscription.drain().execute(context_for("drain", run_id="run-2", hour=2))
    assert subscription.landed() == ids
