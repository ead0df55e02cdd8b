"""aiosfstream's authenticator on this package's logins."""

from __future__ import annotations

import pytest
from aiosfstream.exceptions import AuthenticationError

from airflow_provider_sfstream import exceptions
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken, Session
from airflow_provider_sfstream.salesforce.streaming.cometd.http import SessionAuthenticator


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


async def test_the_token_is_sent() -> None:
    authenticator = SessionAuthenticator(Tokens())

    await authenticator.authenticate()

    assert await headers_of(authenticator) == {"Authorization": "Bearer SECRET1"}
    assert authenticator.instance_url == "https://x.example"
    assert authenticator.token is not None
    assert authenticator.token.value == "SECRET1"


async def test_before_a_login_nothing_is_sent() -> None:
    with pytest.raises(AuthenticationError):
        await headers_of(SessionAuthenticator(Tokens()))


async def test_a_token_that_was_not_refused_is_kept() -> None:
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


async def test_our_error_is_behind_aiosfstreams() -> None:
    tokens = Tokens()
    tokens.failure = exceptions.LoginUnavailableError("the login host is busy")

    with pytest.raises(AuthenticationError, match="the login host is busy") as failed:
        await SessionAuthenticator(tokens).authenticate()

    assert failed.value.__cause__ is tokens.failure


async def test_its_repr_shows_no_secret() -> None:
    authenticator = SessionAuthenticator(Tokens())
    await authenticator.authenticate()

    assert "SECRET" not in repr(authenticator)
