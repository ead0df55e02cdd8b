"""Access tokens, token providers, and the refused tokens of a client."""

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
    """Result of a login, sufficient to call any Salesforce API. Neither its repr nor an error shows the token.

    :param instance_url: scheme and host of the org, without a path.
    :param org_id: 15 or 18 characters.
    :raises AuthenticationError: if the token is empty or cannot be sent in a header.
    """

    value: str = field(repr=False)
    instance_url: str
    org_id: str
    user_id: str | None = None

    def __post_init__(self) -> None:
        remember_secrets(self.value)
        # Checked here, because libraries quote an invalid header, and with it the token, in their errors.
        if not self.value or not self.value.isascii() or not self.value.isprintable() or " " in self.value:
            raise AuthenticationError(
                "The access token is empty, or not one line of printable ASCII. Check its source."
            )


class TokenProvider(Protocol):
    """Source of the current access token; logs in if there is none. Safe for concurrent threads and tasks."""

    def token(self) -> AccessToken:
        """Return the current token; log in if needed. Raises an AuthenticationError if the login failed."""
        ...

    async def atoken(self) -> AccessToken:
        """Do what :meth:`token` does, without blocking the event loop."""
        ...

    def invalidate(self, token: AccessToken) -> None:
        """Invalidate ``token``, which Salesforce refused. Do nothing if another token has replaced it."""
        ...


class Session:
    """The access tokens of one client. Safe for concurrent threads and tasks."""

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
        """Record that ``token`` was refused if the block raises :class:`SessionExpiredError`."""
        try:
            yield
        except SessionExpiredError:
            self.refused(token)
            raise

    def refused(self, token: AccessToken) -> None:
        """Record that ``token`` was refused."""
        with self._lock:
            self._refused.add(token)

    def renew(self) -> None:
        """Invalidate the refused tokens, so that the next call logs in again. Other tokens stay valid."""
        with self._lock:
            refused, self._refused = self._refused, set()
        for token in refused:
            self._token_provider.invalidate(token)
