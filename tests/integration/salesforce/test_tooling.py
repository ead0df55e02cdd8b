"""Managed event subscriptions through the Tooling API of a local org: reads, writes and errors."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import (
    AccessDeniedError,
    AlreadyExistsError,
    AuthenticationError,
    ConfigurationError,
    RequestRejectedError,
    SalesforceStreamError,
    ServiceUnavailableError,
    SessionExpiredError,
    TopicNotFoundError,
)
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription
from airflow_provider_sfstream.salesforce.network.settings import NetworkSettings
from airflow_provider_sfstream.salesforce.rest.event_topics import EventTopicClient
from airflow_provider_sfstream.salesforce.rest.tooling import ManagedEventSubscriptionRecord, ToolingClient
from tests.support.clients import token_provider
from tests.support.localorg import LocalOrg
from tests.support.rest_proxy import RestProxy

_numbers = itertools.count()
GONE = "18x0000000zzzzzAAA"


@pytest.fixture
def client(org: LocalOrg) -> Iterator[ToolingClient]:
    with ToolingClient(token_provider(org)) as one:
        yield one


@pytest.fixture
def name() -> str:
    return f"Orders_{next(_numbers)}"


@pytest.fixture
def record(client: ToolingClient, name: str, topic: str) -> ManagedEventSubscriptionRecord:
    return create(client, name, topic)


class Proxied:
    """Client that reaches its org through a proxy, which may respond in place of the org."""

    def __init__(self, org: LocalOrg, proxy: RestProxy) -> None:
        self._org = org
        self.proxy = proxy
        self.tokens: list[str] = []
        self.client = ToolingClient(self)

    def token(self) -> AccessToken:
        if not self.tokens:
            self.tokens.append(self._org.token())
        return AccessToken(self.tokens[-1], self.proxy.url, self._org.org_id)

    async def atoken(self) -> AccessToken:
        return self.token()

    def invalidate(self, token: AccessToken) -> None:
        assert token.value == self.tokens[-1]
        self.tokens.append(self._org.token())


@pytest.fixture
def proxied(org: LocalOrg) -> Iterator[Proxied]:
    with RestProxy.running(org.instance_url) as proxy:
        one = Proxied(org, proxy)
        with one.client:
            yield one


def create(client: ToolingClient, name: str, topic: str, **changes: Any) -> ManagedEventSubscriptionRecord:
    arguments = {
        "label": "Some orders",
        "default_replay": "EARLIEST",
        "error_recovery_replay": "LATEST",
        "state": "RUN",
        **changes,
    }
    return client.create(name, topic, **arguments)


def named(text: str) -> ManagedSubscription:
    return ManagedSubscription(text)


def test_created_subscription_has_the_requested_settings(
    org: LocalOrg, client: ToolingClient, name: str, topic: str
) -> None:
    record = create(client, name, topic)
    shown = org.managed_subscriptions()[name]
    assert record.id == shown["id"]
    assert (record.developer_name, record.label, record.topic_name) == (name, "Some orders", topic)
    assert (record.default_replay, record.error_recovery_replay, record.state) == ("EARLIEST", "LATEST", "RUN")
    assert shown["metadata"]["defaultReplay"] == "EARLIEST"
    assert shown["metadata"]["errorRecoveryReplay"] == "LATEST"
    assert json.loads(json.dumps(record.as_dict()))["topic_name"] == topic


def test_record_is_found_by_name_id_and_short_id(client: ToolingClient, record: ManagedEventSubscriptionRecord) -> None:
    for text in (record.developer_name, record.id, record.id[:15]):
        assert client.get(named(text)) == record
        assert client.find(named(text)) == record


@pytest.mark.parametrize("text", ["NoSuchOne", GONE, GONE[:15]])
def test_missing_subscription_is_none_or_raises(client: ToolingClient, text: str) -> None:
    assert client.find(named(text)) is None
    assert client.delete(named(text)) is None
    with pytest.raises(TopicNotFoundError, match=rf"{text}.*ManagedEventSubscriptionOperator\(topic="):
        client.get(named(text))
    with pytest.raises(TopicNotFoundError, match=text):
        client.update(named(text), label="x")


def test_list_returns_all_records_sorted_by_name(client: ToolingClient, name: str, topic: str) -> None:
    records = [create(client, f"{name}_{letter}", topic) for letter in "cab"]
    listed = [each for each in client.list() if each.developer_name.startswith(f"{name}_")]
    assert listed == sorted(records, key=lambda record: record.developer_name)


def test_update_changes_only_the_given_settings(client: ToolingClient, record: ManagedEventSubscriptionRecord) -> None:
    changed = client.update(named(record.id), default_replay="LATEST")
    assert changed.as_dict() == {**record.as_dict(), "default_replay": "LATEST"}
    changed = client.update(named(record.developer_name), label="O'Brien's \\ orders", state="STOP")
    assert (changed.label, changed.state, changed.default_replay) == ("O'Brien's \\ orders", "STOP", "LATEST")
    assert changed.topic_name == record.topic_name


def test_delete_returns_the_record_once(
    org: LocalOrg, client: ToolingClient, record: ManagedEventSubscriptionRecord
) -> None:
    assert client.delete(named(record.developer_name)) == record
    assert record.developer_name not in org.managed_subscriptions()
    assert client.delete(named(record.id)) is None


def test_duplicate_developer_name_is_refused(client: ToolingClient, record: ManagedEventSubscriptionRecord) -> None:
    with pytest.raises(AlreadyExistsError, match=f"{record.developer_name}.*DUPLICATE_DEVELOPER_NAME"):
        create(client, record.developer_name, record.topic_name)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"topic": "/event/Nothing__e"}, "topicName"),
        ({"label": "x" * 81}, "STRING_TOO_LONG"),
        ({"state": "PAUSE"}, "RUN"),
    ],
)
def test_values_refused_by_salesforce_raise_and_change_nothing(
    client: ToolingClient, name: str, topic: str, changes: dict[str, str], part: str
) -> None:
    arguments = {"topic": topic, **changes}
    with pytest.raises(ConfigurationError, match=rf"{name}.*{part}.*Nothing was changed"):
        create(client, name, **arguments)
    assert client.find(named(name)) is None


def test_tooling_client_accepts_only_the_certificate_authority_of_the_org(org: LocalOrg, other_authority: str) -> None:
    class OverTls(Proxied):
        def token(self) -> AccessToken:
            return AccessToken(self._org.token(), self._org.https_instance_url, self._org.org_id)

    provider = OverTls(org, RestProxy(""))
    with ToolingClient(provider, network=NetworkSettings(org.ca_file)) as client:
        client.check()
    for wrong in (None, other_authority):
        client = ToolingClient(provider, network=NetworkSettings(wrong))
        with client, pytest.raises(ConfigurationError, match="tls_ca"):
            client.check()
    assert Path(org.ca_file).exists()


def test_plaintext_to_another_machine_is_refused() -> None:
    class Elsewhere:
        def token(self) -> AccessToken:
            return AccessToken("00D!s3cret", "http://192.0.2.1", "00D000000000001AAA")

    provider: Any = Elsewhere()
    with ToolingClient(provider) as client, pytest.raises(ConfigurationError, match=r"192\.0\.2\.1.*allow_insecure"):
        client.check()


def test_ended_session_of_the_tooling_client_is_renewed(
    org: LocalOrg, client: ToolingClient, name: str, topic: str
) -> None:
    client.check()
    org.revoke()
    record = create(client, name, topic)
    org.revoke()
    assert client.delete(named(record.id)) == record


def test_session_refused_twice_raises(proxied: Proxied) -> None:
    proxied.proxy.error("GET", "/tooling/", 401, "INVALID_SESSION_ID", "Session expired or invalid", times=2)
    with pytest.raises(SessionExpiredError, match="INVALID_SESSION_ID"):
        proxied.client.check()
    assert len(proxied.proxy.requests) == 2


def test_access_token_of_the_connection_is_not_renewed(org: LocalOrg) -> None:
    from airflow_provider_sfstream.salesforce.auth.credentials import credentials_from
    from airflow_provider_sfstream.salesforce.auth.token_provider import OAuthTokenProvider

    given = credentials_from({"access_token": org.token(), "instance_url": org.instance_url})
    with ToolingClient(OAuthTokenProvider(given)) as client:
        client.check()
        org.revoke()
        with pytest.raises(AuthenticationError):
            client.check()


@pytest.mark.parametrize("version", ["99.0", "120.0"])
def test_unknown_api_version_raises(proxied: Proxied, version: str) -> None:
    proxied.proxy.error("GET", f"/v{version}/", 404, "NOT_FOUND", "The requested resource does not exist")
    with ToolingClient(proxied, api_version=version) as client, pytest.raises(ConfigurationError, match="`version`"):
        client.check()


@pytest.mark.parametrize(
    ("status", "body", "error", "part"),
    [
        (403, [{"errorCode": "INSUFFICIENT_ACCESS", "message": "no"}], AccessDeniedError, "Customize Application"),
        (400, [{"errorCode": "INVALID_TYPE", "message": "no"}], ConfigurationError, "edition"),
        (503, b"<html>Sorry</html>", ServiceUnavailableError, "Sorry"),
        (500, [{"errorCode": "UNKNOWN_EXCEPTION", "message": "1234-56"}], ServiceUnavailableError, "1234-56"),
        (302, b"", ConfigurationError, "instance or login host"),
        (200, b"<html>Welcome to our proxy</html>", ConfigurationError, "any proxy on the way"),
        (200, b"[]", ConfigurationError, "any proxy on the way"),
        (200, {"records": "none"}, RequestRejectedError, "does not have the documented form"),
        (200, {"records": [{"Id": GONE}]}, RequestRejectedError, "does not have the documented form"),
        (200, {"records": [{"Id": GONE, "Metadata": None}], "done": True}, RequestRejectedError, "has no settings"),
        (400, [], RequestRejectedError, "HTTP 400"),
        (400, ["what"], RequestRejectedError, "HTTP 400"),
        (400, {"errors": [{"statusCode": "INVALID_INPUT", "message": "bad"}]}, ConfigurationError, "bad"),
    ],
)
def test_unexpected_responses_raise_their_error_class(
    proxied: Proxied, status: int, body: Any, error: type[SalesforceStreamError], part: str
) -> None:
    proxied.proxy.answer("GET", "/tooling/query", status, body)
    with pytest.raises(SalesforceStreamError, match=part) as raised:
        proxied.client.get(named("Orders"))
    assert type(raised.value) is error


def test_response_without_objects_is_no_empty_list_of_events(proxied: Proxied) -> None:
    proxied.proxy.answer("GET", "/sobjects/", 200, {"encoding": "UTF-8"})
    with EventTopicClient(proxied) as client:
        listed = client.all()
    assert [text.partition(":")[0] for text in listed.unseen] == ["events"]
    assert "does not have the documented form" in listed.unseen[0]


def test_unsuccessful_result_raises(proxied: Proxied, name: str, topic: str) -> None:
    no = {"id": None, "success": False, "errors": [{"statusCode": "INVALID_INPUT", "message": "The topicName is bad"}]}
    proxied.proxy.answer("POST", "/tooling/", 200, no)
    with pytest.raises(ConfigurationError, match="The topicName is bad"):
        create(proxied.client, name, topic)


def test_lost_response_raises_a_retriable_error_after_the_change(proxied: Proxied, name: str, topic: str) -> None:
    proxied.proxy.answer("POST", "/tooling/", 0, forwards=True, breaks_off=True)
    with pytest.raises(ServiceUnavailableError, match=f"{name}.*A retry is safe"):
        create(proxied.client, name, topic)
    with pytest.raises(AlreadyExistsError):
        create(proxied.client, name, topic)
    proxied.proxy.answer("DELETE", "/tooling/", 0, forwards=True, breaks_off=True)
    with pytest.raises(ServiceUnavailableError, match="A retry is safe"):
        proxied.client.delete(named(name))
    assert proxied.client.delete(named(name)) is None


def test_delete_of_a_meanwhile_deleted_record_returns_none(
    proxied: Proxied, record: ManagedEventSubscriptionRecord
) -> None:
    proxied.proxy.answer(
        "DELETE", "/tooling/", 404, [{"errorCode": "ENTITY_IS_DELETED", "message": "entity is deleted"}], forwards=True
    )
    assert proxied.client.delete(named(record.id)) is None


def test_update_keeps_settings_that_the_client_does_not_manage(
    org: LocalOrg, client: ToolingClient, name: str, topic: str
) -> None:
    """Salesforce replaces all settings in one request and resets those that the request does not contain."""
    org.managed_subscription(name, topic, version="60.0")
    assert client.get(named(name)).version == "60.0"
    changed = client.update(named(name), label="New")
    assert (changed.label, changed.version, client.api_version) == ("New", "60.0", "66.0")


def test_no_token_in_tooling_errors_logs_or_reprs(
    org: LocalOrg, proxied: Proxied, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = proxied.token().value
    proxied.proxy.error("GET", "/tooling/", 400, "INVALID_INPUT", f"you sent {secret}")
    proxied.proxy.answer("GET", "/tooling/", 502, f"<html>{secret}</html>".encode())
    texts = []
    for _ in range(2):
        with pytest.raises(SalesforceStreamError) as raised:
            proxied.client.check()
        assert raised.value.__cause__ is None
        texts.append(str(raised.value))
    assert "***" in texts[0]
    shown = " ".join([*texts, caplog.text, repr(proxied.client), repr(proxied.client.__dict__)])
    assert secret not in shown
    assert org.client_secret not in shown


def test_proxy_is_used_and_its_password_not_shown(org: LocalOrg) -> None:
    with RestProxy.running(org.instance_url) as proxy:
        secret = proxy.url.replace("http://", "http://user:s3cret@")
        with ToolingClient(token_provider(org), network=NetworkSettings(proxies={"http": secret})) as client:
            client.check()
        assert [method for method, _ in proxy.requests] == ["GET"]
    with ToolingClient(token_provider(org), network=NetworkSettings(proxies={"http": secret})) as client:
        with pytest.raises(ServiceUnavailableError) as raised:
            client.check()
        assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("url", ["", "acme.my.salesforce.com", "https://", "http://[acme", "ftp://acme"])
def test_invalid_instance_url_is_refused(url: str) -> None:
    class Odd:
        def token(self) -> AccessToken:
            return AccessToken("00D!s3cret", url, "00D000000000001AAA")

    provider: Any = Odd()
    with ToolingClient(provider) as client, pytest.raises(ConfigurationError, match="instance URL"):
        client.check()
