"""Credentials from the fields of a connection, and errors of invalid fields."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from airflow_provider_sfstream.exceptions import ConfigurationError, SalesforceStreamError
from airflow_provider_sfstream.salesforce.auth.credentials import (
    Credentials,
    credentials_from,
    login_url_from,
)

APP = {"consumer_key": "key", "consumer_secret": "s3cret-app"}
MY_DOMAIN = {"domain": "mycompany.my"}


def test_consumer_key_and_secret_select_client_credentials() -> None:
    assert credentials_from(APP | MY_DOMAIN) == Credentials(
        "client_credentials", "https://mycompany.my.salesforce.com", "key", consumer_secret="s3cret-app"
    )


def test_private_key_selects_jwt_bearer(private_key: str, tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_text(private_key)
    by_text = credentials_from({**APP, "login": "u@x", "private_key": private_key})
    assert by_text == Credentials("jwt_bearer", "https://login.salesforce.com", "key", "u@x", private_key=private_key)
    assert credentials_from({**APP, "login": "u@x", "private_key_file_path": str(file)}) == by_text
    one_line = private_key.replace("\n", "\\n")
    assert credentials_from({**APP, "login": "u@x", "private_key": one_line}) == by_text


def test_a_refresh_token_needs_no_secret() -> None:
    fields = {"consumer_key": "key", "refresh_token": "s3cret-refresh"}
    assert credentials_from(fields) == Credentials(
        "refresh_token", "https://login.salesforce.com", "key", refresh_token="s3cret-refresh"
    )


def test_security_token_is_appended_to_the_password() -> None:
    fields = {**APP, "login": "u@x", "password": "s3cret-", "security_token": "t0ken", "domain": "test"}
    assert credentials_from(fields) == Credentials(
        "password", "https://test.salesforce.com", "key", "u@x", consumer_secret="s3cret-app", password="s3cret-t0ken"
    )


def test_access_token_uses_its_instance_url() -> None:
    fields = {"access_token": "s3cret-token", "instance_url": "https://na1.salesforce.com/"}
    assert credentials_from(fields) == Credentials(
        "access_token", "https://na1.salesforce.com", access_token="s3cret-token"
    )


def test_auth_flow_decides_between_fields_of_several_flows() -> None:
    fields = {**APP, **MY_DOMAIN, "login": "u@x", "password": "p", "refresh_token": "r"}
    with pytest.raises(ConfigurationError, match=r"refresh_token, password.*auth_flow"):
        credentials_from(fields)
    assert credentials_from({**fields, "auth_flow": "password"}).flow == "password"
    assert credentials_from({**fields, "auth_flow": "client_credentials"}).flow == "client_credentials"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, ["consumer_key", "consumer_secret"]),
        ({"consumer_key": "k"}, ["consumer_secret"]),
        ({"login": "u", "password": "p", "security_token": "t"}, ["consumer_key", "consumer_secret"]),
        ({"password": "p", **APP}, ["login"]),
        ({"access_token": "t"}, ["instance_url"]),
        ({"refresh_token": "t"}, ["consumer_key"]),
        ({"private_key": "k"}, ["consumer_key", "login"]),
        ({"auth_flow": "jwt_bearer", "login": "u", **APP}, ["private_key (or private_key_file_path)"]),
        ({"auth_flow": "access_token"}, ["access_token", "instance_url"]),
    ],
)
def test_missing_fields_are_named(fields: dict[str, str], named: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        credentials_from(fields)
    assert f"lacks {', '.join(named)} for" in str(caught.value)


@pytest.mark.parametrize(
    "domain", [{}, {"domain": "login"}, {"domain": "test"}, {"login_url": "https://login.salesforce.com/"}]
)
def test_client_credentials_need_my_domain(domain: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="My Domain"):
        credentials_from(APP | domain)


def test_an_unknown_flow_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="auth_flow 'saml' is invalid"):
        credentials_from({**APP, "auth_flow": "saml"})


@pytest.mark.parametrize(
    ("fields", "url"),
    [
        ({}, "https://login.salesforce.com"),
        ({"domain": "test"}, "https://test.salesforce.com"),
        ({"domain": "acme.my"}, "https://acme.my.salesforce.com"),
        ({"domain": "acme--dev.sandbox.my"}, "https://acme--dev.sandbox.my.salesforce.com"),
        ({"domain": "acme.my.salesforce.com"}, "https://acme.my.salesforce.com"),
        ({"domain": "https://acme.my.salesforce.com/"}, "https://acme.my.salesforce.com"),
        ({"instance_url": "https://acme.my.salesforce.com"}, "https://acme.my.salesforce.com"),
        ({"instance_url": "acme.my"}, "https://acme.my.salesforce.com"),
        ({"instance": "na1.salesforce.com"}, "https://na1.salesforce.com"),
        ({"login_url": "http://127.0.0.1:8000", "domain": "test"}, "http://127.0.0.1:8000"),
        ({"login_url": "portal.example.org"}, "https://portal.example.org"),
        ({"domain": "acme.my", "instance_url": "https://other"}, "https://acme.my.salesforce.com"),
    ],
)
def test_login_url_of_each_set_of_fields(fields: dict[str, str], url: str) -> None:
    assert login_url_from(fields) == url


@pytest.mark.parametrize(
    ("login_url", "audience"),
    [
        ("https://login.salesforce.com", "https://login.salesforce.com"),
        ("https://test.salesforce.com", "https://test.salesforce.com"),
        ("https://acme.my.salesforce.com", "https://login.salesforce.com"),
        ("https://acme--dev.sandbox.my.salesforce.com", "https://test.salesforce.com"),
        ("https://portal.example.org", "https://portal.example.org"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
    ],
)
def test_the_audience_of_a_jwt(login_url: str, audience: str) -> None:
    assert Credentials("jwt_bearer", login_url, "k", "u", private_key="p").audience == audience


@pytest.mark.parametrize(("field", "others"), [("login_url", APP), ("instance_url", {"access_token": "t"})])
def test_plain_http_is_for_this_machine_only(field: str, others: dict[str, str]) -> None:
    fields = {**others, field: "http://x.example"}
    with pytest.raises(ConfigurationError, match=rf"{field} .*allow_insecure"):
        credentials_from(fields)
    credentials_from(fields, allow_insecure=True)
    credentials_from({**fields, field: "http://localhost:1"})


@pytest.mark.parametrize("url", ["ftp://x", "https://", "https://user:pw@x.example", "https://x:port"])
def test_an_unusable_login_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="login_url") as caught:
        credentials_from({**APP, "login_url": url})
    assert "pw" not in str(caught.value)


class TestPrivateKey:
    def jwt(self, **fields: str) -> None:
        credentials_from({**APP, "login": "u", **fields})

    def test_private_key_as_text_and_as_file_is_refused(self, private_key: str) -> None:
        with pytest.raises(ConfigurationError, match="Both private_key and private_key_file_path"):
            self.jwt(private_key=private_key, private_key_file_path="/key.pem")

    def test_missing_private_key_file_is_named(self) -> None:
        with pytest.raises(ConfigurationError, match=r"private_key_file_path '/no/such/key\.pem' cannot be read"):
            self.jwt(private_key_file_path="/no/such/key.pem")

    @pytest.mark.parametrize(
        "text", ["garbage-s3cret", "-----BEGIN PRIVATE KEY-----\ns3cret\n-----END PRIVATE KEY-----"]
    )
    def test_invalid_private_key_is_refused_and_not_quoted(self, text: str) -> None:
        with pytest.raises(ConfigurationError) as caught:
            self.jwt(private_key=text)
        assert "s3cret" not in str(caught.value)
        assert caught.value.__cause__ is None

    def test_private_key_with_a_passphrase_is_refused(self, rsa_key: rsa.RSAPrivateKey) -> None:
        pem = rsa_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"pass")).decode()
        with pytest.raises(ConfigurationError, match="without a passphrase"):
            self.jwt(private_key=pem)

    def test_private_key_that_is_not_rsa_is_refused(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        with pytest.raises(ConfigurationError, match="RSA"):
            self.jwt(private_key=pem)


def test_no_repr_shows_a_secret(private_key: str) -> None:
    every = [
        credentials_from(APP | MY_DOMAIN),
        credentials_from({**APP, "login": "u@x", "private_key": private_key}),
        credentials_from({**APP, "refresh_token": "s3cret-refresh"}),
        credentials_from({**APP, "login": "u@x", "password": "s3cret-", "security_token": "t0ken"}),
        credentials_from({"access_token": "s3cret-token", "instance_url": "https://x.example"}),
    ]
    secrets = {
        "consumer_secret": "s3cret-app",
        "private_key": private_key,
        "refresh_token": "s3cret-refresh",
        "password": "s3cret-t0ken",
        "access_token": "s3cret-token",
    }
    for credentials in every:
        held = [secret for name, secret in secrets.items() if getattr(credentials, name, None) == secret]
        assert held, "these credentials contain none of the secrets"
        for secret in held:
            assert secret not in repr(credentials)
            assert secret not in str([credentials])
            assert secret not in str(SalesforceStreamError(f"The server says: {secret!r}, {secret}"))
