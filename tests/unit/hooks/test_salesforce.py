"""Settings from an Airflow connection, whose fields are those of Airflow's Salesforce provider."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.sdk import Connection

from airflow_provider_sfstream._airflow import AirflowNotFoundException
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.hooks.salesforce import SalesforceLoginHook, SalesforceSettings
from airflow_provider_sfstream.hooks.salesforce_pubsub import SalesforcePubSubHook
from airflow_provider_sfstream.salesforce.auth.credentials import Credentials
from airflow_provider_sfstream.salesforce.network.settings import NetworkSettings, Timers

APP = {"consumer_key": "key", "consumer_secret": "s3cret-app", "domain": "acme.my"}


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that stores a connection in the environment variable that Airflow reads."""

    def store(extra: dict[str, Any] | str | None = None, conn_id: str = "salesforce_default", **fields: Any) -> None:
        text = extra if isinstance(extra, str | None) else json.dumps(extra)
        value = json.dumps({"conn_type": "salesforce", "extra": text, **fields})
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", value)

    return store


def settings(extra: dict[str, Any], **fields: Any) -> SalesforceSettings:
    return SalesforceSettings.from_connection(Connection(conn_id="sf", conn_type="salesforce", **fields), extra)


def test_settings_are_read_from_all_fields_of_the_connection(ca_pem: str) -> None:
    got = settings(
        {
            **APP,
            "organization_id": "00D000000000001AAA",
            "pubsub_endpoint": "api.deu.pubsub.salesforce.com:443",
            "tls_ca": ca_pem,
            "allow_insecure": True,
            "proxies": {"https": "http://proxy:1"},
            "version": "62.0",
            "client_id": "airflow",
            "keepalive_seconds": 30,
            "call_timeout_seconds": "12.5",
            "connect_timeout_seconds": "",
        }
    )
    assert got == SalesforceSettings(
        Credentials("client_credentials", "https://acme.my.salesforce.com", "key", consumer_secret="s3cret-app"),
        "00D000000000001AAA",
        "api.deu.pubsub.salesforce.com:443",
        NetworkSettings(ca_pem, {"https": "http://proxy:1"}, True),
        "62.0",
        Timers(keepalive_seconds=30, call_timeout_seconds=12.5),
    )


def test_login_and_password_are_read_from_the_connection() -> None:
    got = settings({**APP, "security_token": "-token"}, login="u@x", password="s3cret")
    assert got.credentials.flow == "password"
    assert (got.credentials.username, got.credentials.password) == ("u@x", "s3cret-token")


def test_empty_field_is_missing_and_hides_the_field_with_the_old_prefix() -> None:
    old = {f"extra__salesforce__{name}": value for name, value in APP.items()}
    assert settings(old).credentials == settings(APP).credentials
    assert settings({**APP, "auth_flow": "", "pubsub_endpoint": "", "organization_id": ""}) == settings(APP)
    with pytest.raises(ConfigurationError, match="consumer_secret"):
        settings({**old, "consumer_secret": ""})


@pytest.mark.parametrize(
    ("given", "expected"), [(True, True), ("true", True), ("1", True), (False, False), ("", False), (None, False)]
)
def test_allow_insecure_is_a_boolean_or_its_text(given: Any, expected: bool) -> None:
    assert settings({**APP, "allow_insecure": given}).network.allow_insecure is expected


def test_proxies_may_be_text_as_the_form_stores_them() -> None:
    text = '{"https": "http://proxy:1"}'
    assert settings({**APP, "proxies": text}).network.proxies == {"https": "http://proxy:1"}


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ({"allow_insecure": "perhaps"}, "allow_insecure"),
        ({"proxies": "http://user:s3cret@proxy"}, "proxies"),
        ({"proxies": "[]"}, "proxies"),
        ({"proxies": {"ftp": "http://x"}}, "proxies"),
        ({"proxies": {"https": "x:1"}}, "proxies"),
        ({"proxies": {"https": 5}}, "proxies"),
        ({"proxies": {"http": "http://user:s3cret@127.0.0.1:x"}}, "proxies"),
        ({"tls_ca": "/no/such/file.pem"}, "tls_ca"),
        ({"consumer_secret": 5}, "consumer_secret must be a text"),
        ({"domain": "login"}, "My Domain"),
        ({"keepalive_seconds": 0}, "keepalive_seconds must be a number of seconds from 0.1 to 86400"),
        ({"keepalive_timeout_seconds": "soon"}, "keepalive_timeout_seconds must be"),
        ({"connect_timeout_seconds": True}, "connect_timeout_seconds must be"),
        ({"reconnect_seconds": "nan"}, "reconnect_seconds must be"),
        ({"call_timeout_seconds": [5]}, "call_timeout_seconds must be"),
    ],
)
def test_error_of_an_invalid_field_names_the_field_and_the_connection(extra: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match="Airflow connection 'sf': ") as caught:
        settings({**APP, **extra})
    assert named in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_the_repr_shows_no_secret() -> None:
    shown = repr(settings({**APP, "proxies": {"https": "http://u:s3cret@proxy:1"}}))
    assert "s3cret" not in shown
    assert "key" in shown


@pytest.mark.parametrize("extra", ["{not json", '["a list"]', '"text"'])
def test_an_extra_that_is_no_json_object_is_refused(connect: Any, extra: str) -> None:
    connect(extra)
    # Airflow 3.1 itself refuses this connection: it logs the reason and reports that the connection is not defined.
    with pytest.raises(
        (ConfigurationError, AirflowNotFoundException), match=r"Extra is not a JSON object|isn't defined"
    ):
        SalesforceLoginHook().settings()


def test_settings_of_a_connection_with_another_id(connect: Any) -> None:
    connect(APP, conn_id="my_org")
    assert SalesforceLoginHook("my_org").settings() == settings(APP)


async def test_settings_are_read_asynchronously(connect: Any) -> None:
    connect(APP)
    hook = SalesforceLoginHook()
    assert await hook.asettings() == settings(APP)


def test_a_retiring_login_and_api_version_warn_once(connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connect({**APP, "version": "40.0"}, login="u@x", password="s3cret")
    hook = SalesforceLoginHook()
    warnings: list[str] = []
    monkeypatch.setattr(hook.log, "warning", lambda text, *values: warnings.append(text % values))
    hook.token_provider()
    hook.token_provider()
    assert ["username and password" in warning for warning in warnings] == [True, False]
    assert ["API version 40.0" in warning for warning in warnings] == [False, True]
    assert all("salesforce_default" in warning and "s3cret" not in warning for warning in warnings)


def test_test_connection_names_unusable_fields(connect: Any) -> None:
    connect({"consumer_key": "key"})
    ok, message = SalesforcePubSubHook().test_connection()
    assert not ok
    assert message.startswith("Connection fields: Airflow connection 'salesforce_default': ")
    connect({**APP, "tls_ca": "/no/such/file"})
    ok, message = SalesforcePubSubHook().test_connection()
    assert not ok
    assert "tls_ca" in message
    connect({**APP, "pubsub_endpoint": "http://example.org:7443"})
    ok, message = SalesforcePubSubHook().test_connection()
    assert not ok
    assert "allow_insecure" in message


def test_equal_settings_have_equal_hashes_and_any_difference_matters(ca_pem: str) -> None:
    """Tasks with equal settings share an asynchronous client."""
    one = settings({**APP, "proxies": {"https": "http://proxy:1"}})
    assert hash(one) == hash(settings({**APP, "proxies": '{"https": "http://proxy:1"}'}))
    others: list[dict[str, Any]] = [
        {"consumer_secret": "other"},
        {"pubsub_endpoint": "host:1"},
        {"tls_ca": ca_pem},
    ]
    others += [{"proxies": {}}, {"keepalive_seconds": 44}]
    for change in others:
        assert settings({**APP, "proxies": {"https": "http://proxy:1"}, **change}) != one


@pytest.mark.parametrize("stated", ["00D5g000001QCmE", "00D5g000001QCmEEAW"])
def test_organization_id_of_the_connection_is_used_without_a_login(connect: Any, stated: str) -> None:
    connect({**APP, "organization_id": stated})
    hook = SalesforceLoginHook()
    assert hook.known_org_id == "00D5g000001QCmEEAW"
    assert hook._token_provider is None, "the hook created no token provider"


@pytest.mark.parametrize(
    "stated", ["0055g000001QCmE", "00D5g000001QCm", "00D5g000001QCmEEAX", "acme", "00D5g000001QC!E"]
)
def test_invalid_organization_id_of_the_connection_is_refused(connect: Any, stated: str) -> None:
    connect({**APP, "organization_id": stated})
    with pytest.raises(ConfigurationError, match=r"salesforce_default.*organization_id"):
        _ = SalesforceLoginHook().known_org_id
