"""Renewal of a session: it invalidates the refused tokens and no other."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from airflow_provider_sfstream.exceptions import ServiceUnavailableError, SessionExpiredError
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken, Session


def token(value: str) -> AccessToken:
    return AccessToken(value, "https://acme.my.salesforce.com", "00D000000000001AAA")


@dataclass
class Tokens:
    invalidated: list[AccessToken] = field(default_factory=list)

    def token(self) -> AccessToken:
        return token("one")

    async def atoken(self) -> AccessToken:
        return token("two")

    def invalidate(self, token: AccessToken) -> None:
        self.invalidated.append(token)


@pytest.fixture
def tokens() -> Tokens:
    return Tokens()


def refuse(session: Session, refused: AccessToken, error: Exception) -> None:
    with pytest.raises(type(error)), session.using(refused):
        raise error


async def test_session_returns_the_token_of_the_token_provider(tokens: Tokens) -> None:
    session = Session(tokens)
    assert session.token() == token("one")
    assert await session.atoken() == token("two")


def test_renewal_invalidates_each_refused_token_once(tokens: Tokens) -> None:
    session = Session(tokens)
    with session.using(token("good")):
        pass
    refuse(session, token("unlucky"), ServiceUnavailableError("the network"))
    refuse(session, token("old"), SessionExpiredError("expired"))
    refuse(session, token("old"), SessionExpiredError("expired"))
    refuse(session, token("new"), SessionExpiredError("revoked"))
    assert tokens.invalidated == []
    session.renew()
    assert {refused.value for refused in tokens.invalidated} == {"old", "new"}
    assert len(tokens.invalidated) == 2
    session.renew()
    assert len(tokens.invalidated) == 2
