"""Hook of managed event subscriptions against a local org: repeated calls, refusals and visibility."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    ServiceUnavailableError,
    SubscriptionBusyError,
    TopicNotFoundError,
)
from airflow_provider_sfstream.hooks.managed_event_subscription import ManagedEventSubscriptionHook, wait_until_seen
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription
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
def proxy(org: LocalOrg, hook: ManagedEventSubscriptionHook, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestProxy]:
    """Proxy of the REST API, which the hook's connection names."""
    with RestProxy.running(org.instance_url) as proxy:
        urls = {"instance_url": proxy.url, "pubsub_endpoint": f"http://{org.grpc_target}"}
        set_connection(monkeypatch, "sf", conn_type="salesforce", extra={"access_token": org.token(), **urls})
        yield proxy


@pytest.fixture
def name() -> str:
    return f"Orders_{next(_numbers)}"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll the Pub/Sub API more often than in production."""
    defaults = wait_until_seen.__kwdefaults__
    monkeypatch.setitem(defaults, "interval", 0.05)
    monkeypatch.setitem(defaults, "silence", 2.0)


def writes(org: LocalOrg) -> list[str]:
    """Return method and path of each request that changes a record."""
    return [each["method"] for each in org.requests("http") if "/tooling/sobjects/" in each["method"]]


def logins(org: LocalOrg) -> int:
    return len([each for each in org.requests("http") if each["method"] == "POST /services/oauth2/token"])


def warnings(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the warnings that were logged since the last call."""
    out, err = capsys.readouterr()
    return [line for line in (out + err).splitlines() if "warning" in line]


def test_ensure_of_unchanged_settings_writes_nothing(
    org: LocalOrg, hook: ManagedEventSubscriptionHook, name: str
) -> None:
    created = hook.ensure(name, topic=TOPIC)
    assert (created.changed, created.before) == (True, None)
    assert created.record.label == name.replace("_", " ")
    assert (created.record.default_replay, created.record.error_recovery_replay) == ("EARLIEST", "EARLIEST")
    assert str(created) == f"managed event subscription {name} ({created.record.id}): created on {TOPIC}"
    before = writes(org)
    for again in (hook.ensure(name, topic=TOPIC), hook.ensure(created.record.id), hook.ensure(name.upper())):
        assert (again.changed, again.record) == (False, created.record)
        assert str(again).endswith(": no change")
    assert hook.get(name) == hook.get(created.record.id) == created.record
    assert created.record in hook.list()
    assert writes(org) == before


@pytest.mark.parametrize(
    "settings",
    [
        {"label": "Others"},
        {"default_replay": "LATEST"},
        {"error_recovery_replay": "LATEST", "label": "Both"},
        {"state": "stopped", "default_replay": "LATEST", "confirm_position_loss": True},
    ],
)
def test_all_changed_settings_are_written_in_one_request(
    org: LocalOrg, hook: ManagedEventSubscriptionHook, name: str, settings: dict[str, Any]
) -> None:
    record = hook.ensure(name, topic=TOPIC).record
    before = writes(org)
    changed = hook.ensure(name, topic=TOPIC, **settings)
    wanted = {key: value for key, value in settings.items() if key not in ("state", "confirm_position_loss")}
    state = "STOP" if "state" in settings else "RUN"
    assert changed.record.as_dict() == {**record.as_dict(), **wanted, "state": state}
    assert (changed.changed, changed.before, changed.is_of_state) == (True, record, state == "STOP")
    for key, value in wanted.items():
        assert f"{key} {getattr(record, key)!r} -> {value!r}" in str(changed)
    assert len(writes(org)) == len(before) + 1
    assert not hook.ensure(name, topic=TOPIC, **settings).changed


def test_another_topic_is_refused_and_nothing_changed(
    org: LocalOrg, hook: ManagedEventSubscriptionHook, name: str
) -> None:
    record = hook.ensure(name, topic=TOPIC).record
    before = writes(org)
    with pytest.raises(ConfigurationError, match=f"{name}.*on {TOPIC}.*/event/Invoice__e.*Nothing was changed"):
        hook.ensure(name, topic="/event/Invoice__e", default_replay="LATEST")
    with pytest.raises(ConfigurationError, match=f"{name}.*{name.upper()} on {TOPIC} was requested"):
        hook.ensure(name.upper(), topic=TOPIC)
    assert hook.get(name) == record
    assert writes(org) == before


def test_missing_subscription_without_topic_or_by_id_is_refused(
    org: LocalOrg, hook: ManagedEventSubscriptionHook
) -> None:
    for call in (
        lambda: hook.ensure("Nothing_like_it"),
        lambda: hook.ensure("Nothing_like_it", "stopped", confirm_position_loss=True),
        lambda: hook.ensure("18x000000000777AAA", topic=TOPIC),
    ):
        with pytest.raises(TopicNotFoundError, match=r"ManagedEventSubscriptionOperator\(topic=\.\.\.\)"):
            call()


def test_subscription_that_another_process_creates_meanwhile_is_adopted(
    proxy: RestProxy, hook: ManagedEventSubscriptionHook, name: str
) -> None:
    """The other process creates it between query and request. The hook then changes the settings that differ."""
    record = hook.ensure(name, topic=TOPIC).record
    nothing = {"size": 0, "totalSize": 0, "done": True, "records": []}
    proxy.answer("GET", "/tooling/query", 200, nothing)
    won = hook.ensure(name, topic=TOPIC)
    assert (won.changed, won.record) == (False, record)
    proxy.answer("GET", "/tooling/query", 200, nothing)
    assert hook.ensure(name, topic=TOPIC, default_replay="LATEST").before == record
    proxy.answer("GET", "/tooling/query", 200, nothing, times=2)
    with pytest.raises(ConfigurationError, match="DUPLICATE_DEVELOPER_NAME"):
        hook.ensure(name, topic=TOPIC)


def test_settings_that_salesforce_did_not_store_are_an_error(
    proxy: RestProxy, hook: ManagedEventSubscriptionHook, name: str
) -> None:
    record = hook.ensure(name, topic=TOPIC).record
    differs = rf"{name} .*stored default_replay 'EARLIEST' instead of 'LATEST'.*run the task again"
    proxy.answer("PATCH", "/tooling/", 200, {})
    with pytest.raises(ConfigurationError, match=differs):
        hook.ensure(name, topic=TOPIC, default_replay="LATEST")
    proxy.answer("GET", "/tooling/query", 200, {"size": 0, "totalSize": 0, "done": True, "records": []})
    proxy.answer("POST", "/tooling/", 201, {"id": record.id})
    with pytest.raises(ConfigurationError, match=differs):
        hook.ensure(name, topic=TOPIC, default_replay="LATEST")
    assert hook.ensure(name, topic=TOPIC, default_replay="LATEST").record.default_replay == "LATEST"


def test_missing_permissions_are_named(proxy: RestProxy, hook: ManagedEventSubscriptionHook, name: str) -> None:
    proxy.error("POST", "/tooling/", 403, "INSUFFICIENT_ACCESS", "insufficient access rights")
    with pytest.raises(AccessDeniedError, match=f"{name}.*Customize Application"):
        hook.ensure(name, topic=TOPIC)
    proxy.error("GET", "/tooling/query", 400, "INVALID_TYPE", "sObject type is not supported")
    ok, message = hook.test_connection()
    assert not ok
    assert message.startswith("Tooling API: ")
    assert "View Setup" in message


def test_stopping_and_starting(
    org: LocalOrg, hook: ManagedEventSubscriptionHook, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hook.ensure(name, topic=TOPIC)
    with pytest.raises(ConfigurationError, match="confirm_position_loss"):
        hook.ensure(name, "stopped")
    assert hook.get(name).state == "RUN"
    stopped = hook.ensure(name, "stopped", confirm_position_loss=True)
    assert (stopped.changed, stopped.is_of_state, stopped.record.state) == (True, True, "STOP")
    [warning] = warnings(capsys)
    assert name in warning
    assert "discarded its committed replay ID" in warning
    before = writes(org)
    assert not hook.ensure(name, "stopped", confirm_position_loss=True).changed
    assert writes(org) == before
    started = hook.ensure(name)
    assert (started.changed, started.record.state) == (True, "RUN")
    assert not hook.ensure(name).changed
    assert len(writes(org)) == len(before) + 1
    assert not warnings(capsys)


def test_subscription_can_be_created_stopped(
    hook: ManagedEventSubscriptionHook, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    created = hook.ensure(name, "stopped", topic=TOPIC, label="Later", confirm_position_loss=True)
    assert (created.record.state, created.record.label, created.is_of_state) == ("STOP", "Later", True)
    assert not warnings(capsys), "a new subscription has no position to lose"


def test_delete_requires_confirmation_and_logs_one_warning(
    org: LocalOrg, hook: ManagedEventSubscriptionHook, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    record = hook.ensure(name, topic=TOPIC).record
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
    assert "66.0" in message


def read(org: LocalOrg, name: str, count: int) -> list[bytes] | None:
    """Return the replay IDs of the next events of a subscription; ``None`` while another stream uses it."""
    subscription = ManagedSubscription(name)
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
    def test_new_subscription_becomes_visible_after_a_delay(
        self, org: LocalOrg, hook: ManagedEventSubscriptionHook, name: str
    ) -> None:
        org.knobs(managed_visibility_seconds=600)
        record = hook.ensure(name, topic=TOPIC).record
        assert not org.managed_subscriptions()[name]["visible"]
        org.knobs(managed_visibility_seconds=0.5)
        before = logins(org)
        hook.wait_until_visible(record.id, timeout=60)
        assert logins(org) == before, "one login serves both APIs"
        shown = org.managed_subscriptions()[name]
        assert shown["visible"]
        assert shown["committed"] is None, "the probe commits nothing"

    def test_every_change_becomes_visible(self, org: LocalOrg, hook: ManagedEventSubscriptionHook, name: str) -> None:
        record = hook.ensure(name, topic=TOPIC).record
        org.knobs(managed_visibility_seconds=0.5)
        for state, change in (
            ("stopped", lambda: hook.ensure(name, "stopped", confirm_position_loss=True)),
            ("running", lambda: hook.ensure(name)),
        ):
            change()
            hook.wait_until_visible(name, state, timeout=60)
            assert org.managed_subscriptions()[name]["visible"]
        hook.delete(name, confirm_position_loss=True)
        hook.wait_until_visible(record.id, "deleted", timeout=60)
        org.knobs(managed_visibility_seconds=0)
        hook.wait_until_visible(record.id, "deleted", timeout=0.1)

    def test_probe_leaves_stored_events_for_the_consumer(
        self, org: LocalOrg, hook: ManagedEventSubscriptionHook, name: str
    ) -> None:
        published = org.publish(TOPIC, [{"Amount__c": float(n)} for n in range(3)])
        subscription = hook.ensure(name, topic=TOPIC).record.id
        assert hook.wait_until_visible(subscription, timeout=60), "an event shows it"
        record = org.record(TOPIC)
        seen = wait_until(lambda: read(org, name, len(record)), what="the end of the stream of the probe")
        assert seen == [event["replay_id"] for event in record]
        assert seen[-3:] == published

    def test_silence_shows_no_state(self, hook: ManagedEventSubscriptionHook, name: str) -> None:
        hook.ensure(name, topic=TOPIC, default_replay="LATEST")
        assert not hook.wait_until_visible(name, timeout=60)

    def test_probe_does_not_disturb_a_running_consumer(
        self, org: LocalOrg, hook: ManagedEventSubscriptionHook, name: str
    ) -> None:
        hook.ensure(name, topic="/event/Invoice__e")
        with (
            pubsub_client(org) as client,
            client.managed_subscribe(ManagedSubscription(name), idle_timeout=0.3) as stream,
        ):
            assert next(stream) is None
            hook.wait_until_visible(name, timeout=60)
            org.publish("/event/Invoice__e", [{"Amount__c": 1.0}])
            batches = (batch for batch in stream if batch)
            assert len(next(batches)) == 1

    def test_subscription_that_stays_invisible_raises_after_the_timeout(
        self, org: LocalOrg, hook: ManagedEventSubscriptionHook, name: str
    ) -> None:
        org.knobs(managed_visibility_seconds=600)
        record = hook.ensure(name, topic=TOPIC).record
        with pytest.raises(
            ServiceUnavailableError, match=rf"{record.id}.*within 0\.5 seconds.*was not found"
        ) as raised:
            hook.wait_until_visible(record.id, timeout=0.5)
        assert raised.value.retriable

    def test_unreachable_pubsub_api_is_reported(
        self, org: LocalOrg, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        unused = f"http://127.0.0.1:{free_port()}"
        set_connection(monkeypatch, "sf", **org.airflow_connection(pubsub_endpoint=unused))
        hook = ManagedEventSubscriptionHook("sf")
        record = hook.ensure(name, topic=TOPIC).record
        with pytest.raises(ServiceUnavailableError, match=r"it was changed, but.*pubsub_endpoint"):
            hook.wait_until_visible(record.id, timeout=0.5)
