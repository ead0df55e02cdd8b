"""Which access tokens Salesforce refused to a client, so that exactly those are forgotten when it logs in again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_provider_sfstream.exceptions import SessionExpiredError
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken, TokenProvider


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
