"""A login without a network: a test reads each request and passes its response."""

from __future__ import annotations

import types
from collections.abc import Generator
from typing import Any

import httpx

from airflow_provider_sfstream.salesforce.auth.credentials import Credentials
from airflow_provider_sfstream.salesforce.auth.login import log_in
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken
from airflow_provider_sfstream.salesforce.network.settings import DEFAULT_NETWORK, NetworkSettings


class Login:
    """A login in progress: ``request`` is the next request; if it is ``None``, ``token`` is the result."""

    def __init__(self, credentials: Credentials, now: float, network: NetworkSettings = DEFAULT_NETWORK) -> None:
        self.request: httpx.Request | None = None
        self.token: AccessToken | None = None
        self._login: Any = log_in(credentials, now, _exchange, network)
        self.answer(None)

    def answer(self, response: httpx.Response | None) -> None:
        """Pass the response to ``request``."""
        try:
            self.request = self._login.send(response)
        except StopIteration as done:
            self.request, self.token = None, done.value


@types.coroutine
def _exchange(request: httpx.Request) -> Generator[httpx.Request, httpx.Response, httpx.Response]:
    return (yield request)
