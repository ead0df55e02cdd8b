"""The access token, where clients get it from, and which tokens Salesforce refused to a client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from airflow_provider_sfstream.exceptions import AuthenticationError, SessionExpiredError
from airflow_provider_sfstream.redaction import remember_secrets


@dataclass(frozen=True)
class AccessToken:
    """What a login gave: enough to call any Salesforce API. Neither its repr nor an error shows the token.

    :param value: the access token (or session id) itself.
    :param instance_url: scheme and host of the org, without a path.
    :param org_id: 15 or 18 characters.
    :param user_id: of the user that logged in, where known.
    :raises AuthenticationError: if the token is empty or cannot be sent in a header.
    """

    value: str = field(repr=False)
    instance_url: str
    org_id: str
    user_id: str | None = None

    def __post_init__(self) -> None:
        remember_secrets(self.value)
        # Checked here, because libraries quote a header that they refuse, and with it the token.
        if not self.value or not self.value.isascii() or not self.value.isprintable() or " " in self.value:
            raise AuthenticationError(
                "The access token is empty or not one line of printable ASCII. Check where it comes from."
            )


class TokenProvider(Protocol):
    """Gives the current access token, and logs in when there is none. Safe for many threads and tasks at once."""

    def token(self) -> AccessToken:
        """Return the current token, logging in if needed.

        :raises AuthenticationError: if the login failed.
        """
        ...

    async def atoken(self) -> AccessToken:
        """Do what :meth:`token` does, without blocking the event loop."""
        ...

    def invalidate(self, token: AccessToken) -> None:
        """Forget ``token``, which Salesforce refused. Does nothing if another one has taken its place."""
        ...


class Session:
    """The access tokens of one client. Safe for many threads and tasks at once.

    :param token_provider: gives the access token, at the time of each call.
    """

    def __init__(self, token_provider: TokenProvider) -> None:
        self._token_provider = token_provider
        self._lock = threading.Lock()
        self._refused: set[AccessToken] = set()

    def token(self) -> AccessToken:
        """Return the current token; see :meth:`TokenProvider.token`."""
        return self._token_provider.token()

    async def atoken(self) -> AccessToken:
        """Do what :meth:`token` does, without blocking the event loop."""
        return await self._token_provider.atoken()

    @contextmanager
    def using(self, token: AccessToken) -> Iterator[None]:
        """Remember that ``token`` was refused, if the block ends with :class:`SessionExpiredError`."""
        try:
            yield
        except SessionExpiredError:
            self.refused(token)
            raise

    def refused(self, token: AccessToken) -> None:
        """Remember that ``token`` was refused."""
        with self._lock:
            self._refused.add(token)

    def renew(self) -> None:
        """Forget the tokens that were refused, so that the next call logs in again. Any other token is kept."""
        with self._lock:
            refused, self._refused = self._refused, set()
        for token in refused:
            self._token_provider.invalidate(token)
