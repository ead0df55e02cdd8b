"""Hook of managed event subscriptions: arguments that it refuses before it contacts Salesforce."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError, InvalidTopicError
from airflow_provider_sfstream.hooks.managed_event_subscription import ManagedEventSubscriptionHook
from tests.support.tasks import set_connection

EXTRA = {"login_url": "https://login.invalid", "consumer_key": "key", "consumer_secret": "s3cret"}


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(**changes: Any) -> ManagedEventSubscriptionHook:
        set_connection(monkeypatch, "sf", conn_type="salesforce", extra={**EXTRA, **changes})
        return ManagedEventSubscriptionHook("sf")

    return make


@pytest.mark.parametrize("version", ["59.0", "37.0", "v59", "latest"])
def test_api_version_without_managed_subscriptions_is_refused(hook: Any, version: str) -> None:
    with pytest.raises(ConfigurationError, match=r"connection 'sf'.*event subscriptions require 60\.0 or above"):
        hook(version=version).get("Orders")


@pytest.mark.parametrize(("version", "used"), [(None, "66.0"), ("60.0", "60.0"), ("v62.0", "62.0"), (61, "61.0")])
def test_client_uses_the_api_version_of_the_connection(hook: Any, version: Any, used: str) -> None:
    with hook(**({} if version is None else {"version": version})).get_conn() as client:
        assert client.api_version == used


@pytest.mark.parametrize(("method", "state"), [("ensure", ["stopped"]), ("delete", [])])
def test_hook_requires_confirmation_of_a_lost_position(hook: Any, method: str, state: list[str]) -> None:
    with pytest.raises(ConfigurationError, match=r"Orders.*confirm_position_loss=True.*Nothing was changed"):
        getattr(hook(), method)("Orders", *state)


def test_invalid_names_are_refused_before_any_request(hook: Any) -> None:
    one = hook()
    for call in (
        lambda: one.get("O'Brien"),
        lambda: one.ensure("no name", label="x"),
        lambda: one.ensure("Orders_", "stopped", confirm_position_loss=True),
        lambda: one.delete("", confirm_position_loss=True),
        lambda: one.wait_until_visible("1Orders"),
    ):
        with pytest.raises(ConfigurationError, match="Nothing was contacted"):
            call()
    with pytest.raises(InvalidTopicError):
        one.ensure("Orders", topic="/topic/Orders")


def test_connection_test_reports_unusable_fields(hook: Any) -> None:
    for changes, part in (({"version": "59.0"}, "60.0"), ({"consumer_secret": ""}, "consumer_secret")):
        ok, message = hook(**changes).test_connection()
        assert not ok
        assert message.startswith("Connection fields: ")
        assert part in message
        assert "s3cret" not in message
