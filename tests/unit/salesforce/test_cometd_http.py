"""HTTP connection to the Streaming API: address, proxy, TLS and authentication."""

from __future__ import annotations

import ssl
from typing import Any

import aiohttp
import pytest
from aiosfstream.exceptions import AuthenticationError, TransportError

from airflow_provider_sfstream import exceptions
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken, Session
from airflow_provider_sfstream.salesforce.network.settings import NetworkSettings
from airflow_provider_sfstream.salesforce.streaming.cometd.client import CometdClient
from airflow_provider_sfstream.salesforce.streaming.cometd.http import (
    SessionAuthenticator,
    transport_error,
)


def url_of(instance_url: str, **network: Any) -> str:
    client = CometdClient(SessionAuthenticator(Tokens()), api_version="62.0", network=NetworkSettings(**network))
    return client.get_cometd_url(instance_url)


@pytest.mark.parametrize("instance_url", ["https://x.my.salesforce.com", "https://x.my.salesforce.com/"])
def test_the_address_of_the_endpoint(instance_url: str) -> None:
    assert url_of(instance_url) == "https://x.my.salesforce.com/cometd/62.0"


@pytest.mark.parametrize("instance_url", ["http://127.0.0.1:8080", "http://localhost:8080", "http://[::1]:8080"])
def test_plaintext_to_this_machine_is_allowed(instance_url: str) -> None:
    assert url_of(instance_url).startswith(instance_url)


def test_plaintext_to_another_machine_must_be_allowed() -> None:
    with pytest.raises(ConfigurationError, match=r"x\.example would send credentials unencrypted"):
        url_of("http://x.example")

    assert url_of("http://x.example", allow_insecure=True) == "http://x.example/cometd/62.0"


@pytest.mark.parametrize("instance_url", ["x.my.salesforce.com", "ftp://x.example", "", "https://"])
def test_invalid_instance_url_of_the_endpoint_is_refused(instance_url: str) -> None:
    with pytest.raises(ConfigurationError, match="instance URL"):
        url_of(instance_url, allow_insecure=True)


def test_transport_error_shows_no_proxy_password() -> None:
    error = transport_error(aiohttp.ClientError("cannot reach http://user:secret@proxy:3128 now"))

    assert isinstance(error, TransportError)
    assert str(error) == "ClientError: cannot reach http://***@proxy:3128 now"


def test_transport_error_keeps_the_tls_error_as_its_cause() -> None:
    cause = ssl.SSLCertVerificationError("certificate verify failed")
    outer = aiohttp.ClientError("cannot connect")
    outer.__cause__ = cause

    assert transport_error(outer).__cause__ is cause
    assert transport_error(aiohttp.ClientError("cannot connect")).__cause__ is None


def test_transport_error_of_a_timeout_names_the_timeout() -> None:
    assert "did not answer in time" in str(transport_error(TimeoutError()))


class Tokens:
    def __init__(self) -> None:
        self.logins = 0
        self.failure: Exception | None = None
        self.current: AccessToken | None = None

    def token(self) -> AccessToken:
        if self.failure is not None:
            raise self.failure
        if self.current is None:
            self.logins += 1
            self.current = AccessToken(f"SECRET{self.logins}", "https://x.example", "00D000000000001EAA")
        return self.current

    async def atoken(self) -> AccessToken:
        return self.token()

    def invalidate(self, token: AccessToken) -> None:
        if token == self.current:
            self.current = None


async def headers_of(authenticator: SessionAuthenticator) -> dict[str, str]:
    headers: dict[str, str] = {}
    await authenticator.outgoing([], headers)
    return headers


async def test_token_is_sent_as_an_authorization_header() -> None:
    authenticator = SessionAuthenticator(Tokens())

    await authenticator.authenticate()

    assert await headers_of(authenticator) == {"Authorization": "Bearer SECRET1"}
    assert authenticator.instance_url == "https://x.example"
    assert authenticator.token is not None
    assert authenticator.token.value == "SECRET1"


async def test_request_before_a_login_raises() -> None:
    with pytest.raises(AuthenticationError):
        await headers_of(SessionAuthenticator(Tokens()))


async def test_token_that_was_not_refused_is_reused() -> None:
    tokens = Tokens()
    authenticator = SessionAuthenticator(tokens)

    await authenticator.authenticate()
    await authenticator.authenticate()

    assert tokens.logins == 1


async def test_a_refused_token_is_renewed() -> None:
    authenticator = SessionAuthenticator(Tokens())
    await authenticator.authenticate()

    await authenticator.renew()

    assert await headers_of(authenticator) == {"Authorization": "Bearer SECRET2"}


async def test_clients_of_one_session_log_in_again_once() -> None:
    tokens = Tokens()
    session = Session(tokens)
    first, second = SessionAuthenticator(session), SessionAuthenticator(session)
    for authenticator in (first, second):
        await authenticator.authenticate()

    for authenticator in (first, second):
        await authenticator.renew()

    assert tokens.logins == 2
    assert await headers_of(first) == await headers_of(second) == {"Authorization": "Bearer SECRET2"}


async def test_provider_error_is_the_cause_of_aiosfstreams_error() -> None:
    tokens = Tokens()
    tokens.failure = exceptions.LoginUnavailableError("the login host is busy")

    with pytest.raises(AuthenticationError, match="the login host is busy") as failed:
        await SessionAuthenticator(tokens).authenticate()

    assert failed.value.__cause__ is tokens.failure


async def test_repr_of_the_authenticator_shows_no_secret() -> None:
    authenticator = SessionAuthenticator(Tokens())
    await authenticator.authenticate()

    assert "SECRET" not in repr(authenticator)
