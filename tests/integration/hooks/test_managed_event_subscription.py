"""The hook of managed event subscriptions against a local org: what may be repeated, what is refused, what is seen."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from airflow_provider_sfstream.clients.pubsub import visibility as managed_visibility
from airflow_provider_sfstream.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    ServiceUnavailableError,
    SubscriptionBusyError,
    TopicNotFoundError,
)
from airflow_provider_sfstream.hooks.managed_event_subscription import ManagedEventSubscriptionHook
from airflow_provider_sfstream.protocol.managed import ManagedSubscription
from scripts.airflow_stack import free_port
from tests.support.clients import pubsub_client
from tests.support.localorg import LocalOrg, wait_until
from tests.support.rest_proxy import RestProxy
from tests.support.tasks import set_connection

TOPIC = "/event/Order__e"
_numbers = itertools.count()


@pytest.fixture
def hook(org: LocalOrg, monkeypatch: pytest.MonkeyPatch) -> ManagedEventSubscriptionHook:
    set_connection(monkeypatch, "sf", **org.airflow_connection())
    return ManagedEventSubscriptionHook("sf")


@pytest.fixture
def name() -> str:
    return f"Orders_{next(_numbers)}"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask the Pub/Sub API more often than one asks Salesforce."""
    defaults = managed_visibility.wait_until_seen.__kwdefaults__
    monkeypatch.setitem(defaults, "interval", 0.05)
    monkeypatch.setitem(defaults, "silence", 2.0)


def writes(org: LocalOrg) -> list[str]:
    """What changed a record: each request that did, by method and path."""
    return [each["method"] for each in org.requests("http") if "/tooling/sobjects/" in each["method"]]


def logins(org: LocalOrg) -> int:
    return len([each for each in org.requests("http") if each["method"] == "POST /services/oauth2/token"])


def warnings(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was warned of since the last look."""
    out, err = capsys.readouterr()
    return [line for line in (out + err).splitlines() if "warning" in line]


def test_creating_what_exists_changes_nothing(org: LocalOrg, hook: ManagedEventSubscriptionHook, name: str) -> None:
    created = hook.create(name, TOPIC)
    assert created.changed
    assert created.record.label == name.replace("_", " ")
    assert (created.record.default_replay, created.record.error_recovery_replay) == ("EARLIEST", "EARLIEST")
    before = writes(org)
    again = hook.create(name, TOPIC)
    assert (again.changed, again.record) == (False, created.record)
    assert hook.get(name) == hook.get(created.record.id) == created.record
    assert created.record in hook.list()
    assert writes(org) == before


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"topic": "/event/Invoice__e"}, "topic_name is '/event/Order__e', not '/event/Invoice__e'"),
        ({"label": "Others"}, "label is '.*', not 'Others'"),
        ({"default_replay": "LATEST"}, "default_replay is 'EARLIEST', not 'LATEST'"),
        ({"error_recovery_replay": "LATEST"}, "error_recovery_replay is 'EARLIEST', not 'LATEST'"),
        ({"state": "STOP"}, "state is 'RUN', not 'STOP'"),
    ],
)
def test_creating_what_exists_with_other_settings(
    hook: ManagedEventSubscriptionHook, name: str, changes: dict[str, Any], difference: str
) -> None:
    record = hook.create(name, TOPIC).record
    with pytest.raises(ConfigurationError, match=f"{name}.*{difference}.*Nothing was changed"):
        hook.create(name, **{"topic": TOPIC, **changes})
    assert hook.get(name) == record


def test_a_name_in_other_letter_case_is_another_name(hook: ManagedEventSubscriptionHook, name: str) -> None:
    hook.create(name, TOPIC)
    with pytest.raises(ConfigurationError, match=name):
        hook.create(name.upper(), TOPIC)


def test_losing_the_race_to_create(org: LocalOrg, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Somebody creates it between the look and the request: equal settings will do, others will not."""
    with RestProxy.running(org.instance_url) as proxy:
        set_connection(monkeypatch, "sf", conn_type="salesforce", extra=token_extra(org, proxy))
        hook = ManagedEventSubscriptionHook("sf")
        record = hook.create(name, TOPIC).record
        nothing = {"size": 0, "totalSize": 0, "done": True, "records": []}
        proxy.answer("GET", "/tooling/query", 200, nothing)
        won = hook.create(name, TOPIC)
        assert (won.changed, won.record) == (False, record)
        proxy.answer("GET", "/tooling/query", 200, nothing)
        with pytest.raises(ConfigurationError, match="default_replay"):
            hook.create(name, TOPIC, default_replay="LATEST")
        proxy.answer("GET", "/tooling/query", 200, nothing, times=2)
        with pytest.raises(ConfigurationError, match="DUPLICATE_DEVELOPER_NAME"):
            hook.create(name, TOPIC)


def test_missing_permissions_are_named(org: LocalOrg, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with RestProxy.running(org.instance_url) as proxy:
        set_connection(monkeypatch, "sf", conn_type="salesforce", extra=token_extra(org, proxy))
        hook = ManagedEventSubscriptionHook("sf")
        proxy.error("POST", "/tooling/", 403, "INSUFFICIENT_ACCESS", "insufficient access rights")
        with pytest.raises(AccessDeniedError, match=f"{name}.*Customize Application"):
            hook.create(name, TOPIC)
        proxy.error("GET", "/tooling/query", 400, "INVALID_TYPE", "sObject type is not supported")
        ok, message = hook.test_connection()
        assert not ok
        assert message.startswith("Tooling API: ")
        assert "View Setup" in message


def token_extra(org: LocalOrg, proxy: RestProxy) -> dict[str, str]:
    return {"access_token": org.token(), "instance_url": proxy.url, "pubsub_endpoint": f"http://{org.grpc_target}"}


def test_updating(org: LocalOrg, hook: ManagedEventSubscriptionHook, name: str) -> None:
    record = hook.create(name, TOPIC).record
    changed = hook.update(name, label="Sales", error_recovery_replay="LATEST")
    assert changed.changed
    assert changed.record.as_dict() == {**record.as_dict(), "label": "Sales", "error_recovery_replay": "LATEST"}
    before = writes(org)
    again = hook.update(record.id, label="Sales", default_replay="EARLIEST")
    assert (again.changed, again.record) == (False, changed.record)
    assert writes(org) == before
    with pytest.raises(TopicNotFoundError, match="Nothing_like_it"):
        hook.update("Nothing_like_it", label="x")


def test_stopping_and_starting(
    org: LocalOrg, hook: ManagedEventSubscriptionHook, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hook.create(name, TOPIC)
    with pytest.raises(ConfigurationError, match="confirm_position_loss"):
        hook.stop(name)
    assert hook.get(name).state == "RUN"
    stopped = hook.stop(name, confirm_position_loss=True)
    assert (stopped.changed, stopped.record.state) == (True, "STOP")
    [warning] = warnings(capsys)
    assert name in warning
    assert "discarded its committed replay ID" in warning
    before = writes(org)
    assert not hook.stop(name, confirm_position_loss=True).changed
    assert writes(org) == before
    started = hook.start(name)
    assert (started.changed, started.record.state) == (True, "RUN")
    assert not hook.start(name).changed
    assert len(writes(org)) == len(before) + 1
    with pytest.raises(TopicNotFoundError):
        hook.start("Nothing_like_it")
    assert not warnings(capsys)


def test_deleting(
    org: LocalOrg, hook: ManagedEventSubscriptionHook, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    record = hook.create(name, TOPIC).record
    with pytest.raises(ConfigurationError, match="confirm_position_loss"):
        hook.delete(name)
    assert name in org.managed_subscriptions()
    assert hook.delete(name, confirm_position_loss=True) == record
    [warning] = warnings(capsys)
    assert name in warning
    assert "discarded its committed replay ID" in warning
    assert name not in org.managed_subscriptions()
    assert hook.delete(name, confirm_position_loss=True) is None
    assert hook.delete(record.id, confirm_position_loss=True) is None


def test_the_connection_can_be_tested(org: LocalOrg, hook: ManagedEventSubscriptionHook) -> None:
    ok, message = hook.test_connection()
    assert ok, message
    assert org.org_id in message
    assert "62.0" in message


def read(org: LocalOrg, name: str, count: int) -> list[bytes] | None:
    """Return the replay IDs of the next events of a subscription; ``None`` while another stream holds its place."""
    subscription = ManagedSubscription.parse(name)
    try:
        with (
            pubsub_client(org) as client,
            client.managed_subscribe(subscription, limit=count, idle_timeout=10.0) as stream,
        ):
            return [replay_id for batch in stream if batch for replay_id in batch.replay_ids]
    except SubscriptionBusyError:
        return None


@pytest.mark.usefixtures("quick")
class TestVisibility:
    def test_a_new_one_is_seen_after_a_while(
        self, org: LocalOrg, hook: ManagedEventSubscriptionHook, name: str
    ) -> None:
        org.knobs(managed_visibility_seconds=600)
        record = hook.create(name, TOPIC).record
        assert not org.managed_subscriptions()[name]["visible"]
        org.knobs(managed_visibility_seconds=0.5)
        before = logins(org)
        hook.wait_until_visible(record.id, timeout=60)
        assert logins(org) == before, "one login serves both APIs"
        shown = org.managed_subscriptions()[name]
        assert shown["visible"]
        assert shown["committed"] is None, "the probe commits nothing"

    def test_every_change_is_seen(self, org: LocalOrg, hook: ManagedEventSubscriptionHook, name: str) -> None:
        record = hook.create(name, TOPIC).record
        org.knobs(managed_visibility_seconds=0.5)
        for state, change in (
            ("STOP", lambda: hook.stop(name, confirm_position_loss=True)),
            ("RUN", lambda: hook.start(name)),
        ):
            change()
            hook.wait_until_visible(name, state, timeout=60)
            assert org.managed_subscriptions()[name]["visible"]
        hook.delete(name, confirm_position_loss=True)
        hook.wait_until_visible(record.id, "DELETED", timeout=60)
        org.knobs(managed_visibility_seconds=0)
        hook.wait_until_visible(record.id, "DELETED", timeout=0.1)

    def test_events_that_are_there_are_left_for_the_consumer(
        self, org: LocalOrg, hook: ManagedEventSubscriptionHook, name: str
    ) -> None:
        published = org.publish(TOPIC, [{"Amount__c": float(n)} for n in range(3)])
        subscription = hook.create(name, TOPIC).record.id
        hook.wait_until_visible(subscription, timeout=60)
        record = org.record(TOPIC)
        seen = wait_until(lambda: read(org, name, len(record)), what="the place of the probe being free")
        assert seen == [event["replay_id"] for event in record]
        assert seen[-3:] == published

    def test_a_consumer_that_is_there_is_not_disturbed(
        self, org: LocalOrg, hook: ManagedEventSubscriptionHook, name: str
    ) -> None:
        hook.create(name, "/event/Invoice__e")
        with (
            pubsub_client(org) as client,
            client.managed_subscribe(ManagedSubscription.parse(name), idle_timeout=0.3) as stream,
        ):
            assert next(stream) is None
            hook.wait_until_visible(name, timeout=60)
            org.publish("/event/Invoice__e", [{"Amount__c": 1.0}])
            batches = (batch for batch in stream if batch)
            assert len(next(batches)) == 1

    def test_what_is_never_seen(self, org: LocalOrg, hook: ManagedEventSubscriptionHook, name: str) -> None:
        org.knobs(managed_visibility_seconds=600)
        record = hook.create(name, TOPIC).record
        with pytest.raises(ServiceUnavailableError, match=rf"{record.id}.*within 0\.5 seconds.*not known") as raised:
            hook.wait_until_visible(record.id, timeout=0.5)
        assert raised.value.retriable

    def test_a_pubsub_api_that_cannot_be_reached(
        self, org: LocalOrg, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        unused = f"http://127.0.0.1:{free_port()}"
        set_connection(monkeypatch, "sf", **org.airflow_connection(pubsub_endpoint=unused))
        hook = ManagedEventSubscriptionHook("sf")
        record = hook.create(name, TOPIC).record
        with pytest.raises(ServiceUnavailableError, match=r"it was changed, but.*pubsub_endpoint"):
            hook.wait_until_visible(record.id, timeout=0.5)
