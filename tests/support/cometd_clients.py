"""CometD clients of a local org: the package's client, and the unmodified aiosfstream for comparison."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiosfstream
from aiosfstream.auth import AuthenticatorBase

from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken
from airflow_provider_sfstream.salesforce.streaming.cometd.client import CometdClient
from tests.support.localorg import LocalOrg
from tests.support.stock_aiosfstream import StockClient, stock_asyncio

CONNECTION_TIMEOUT = 10.0
"""Seconds; the default of both clients. aiosfstream waits that long for its reconnection, ours for a response."""


class OrgTokens:
    """A token provider that fetches tokens from the org's admin API; ``logins`` counts them."""

    def __init__(self, org: LocalOrg, instance_url: str) -> None:
        self._org = org
        self._instance_url = instance_url
        self._token: AccessToken | None = None
        self.logins = 0

    def token(self) -> AccessToken:
        if self._token is None:
            self.logins += 1
            self._token = AccessToken(self._org.token(), self._instance_url, self._org.org_id)
        return self._token

    async def atoken(self) -> AccessToken:
        return await asyncio.to_thread(self.token)

    def invalidate(self, token: AccessToken) -> None:
        if token == self._token:
            self._token = None


class TokenAuthenticator(AuthenticatorBase):  # type: ignore[misc]
    """An authenticator as a user of aiosfstream would write it: each call fetches a new token."""

    def __init__(self, new_token: Callable[[], str], instance_url: str) -> None:
        super().__init__()
        self._new_token = new_token
        self._url = instance_url
        self.calls = 0

    async def _authenticate(self) -> tuple[int, dict[str, Any]]:
        self.calls += 1
        token = await asyncio.to_thread(self._new_token)
        return 200, {"access_token": token, "token_type": "Bearer", "instance_url": self._url}


@contextlib.asynccontextmanager
async def cometd_client(
    kind: str, authenticator: AuthenticatorBase, **options: Any
) -> AsyncIterator[aiosfstream.Client]:
    """Yield a client that is not open yet, and close it afterwards.

    :param kind: ``"ours"`` or ``"stock"`` (aiosfstream).
    """
    options.setdefault("connection_timeout", CONNECTION_TIMEOUT)
    if kind == "ours":
        client = CometdClient(authenticator, **options)
        try:
            yield client
        finally:
            await client.close()
        return
    with stock_asyncio():
        stock = StockClient(authenticator, **options)
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        try:
            yield stock
        finally:
            await stock.abandon()
