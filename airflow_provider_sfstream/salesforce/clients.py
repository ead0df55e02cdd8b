"""Common parts of the clients of the event APIs: login, Salesforce's time, and the schemas of asyncio clients."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Self

from airflow_provider_sfstream.exceptions import SessionExpiredError
from airflow_provider_sfstream.salesforce.auth.tokens import Session, TokenProvider
from airflow_provider_sfstream.salesforce.network.settings import DEFAULT_NETWORK, NetworkSettings
from airflow_provider_sfstream.salesforce.rest.client import measured_server_time
from airflow_provider_sfstream.salesforce.server_time import ServerTime


class OrgClient:
    """Login and HTTP settings of a client, blocking or asyncio."""

    def __init__(self, token_provider: TokenProvider, *, network: NetworkSettings = DEFAULT_NETWORK) -> None:
        self._session = Session(token_provider)
        self._network = network
        self.measure_time = partial(measured_server_time, token_provider, network)

    def renew_session(self) -> None:
        """Invalidate the access token that was refused last, so that the next call logs in again.

        Subscriptions that were refused with the same token share one login.
        """
        self._session.renew()


class AsyncOrgClient(OrgClient):
    """Client of one event loop: an async context manager that closes it, and its schemas by ID, each loaded once."""

    _CLOSED: ClassVar[str]

    def __init__(self, token_provider: TokenProvider, **settings: Any) -> None:
        super().__init__(token_provider, **settings)
        self._closed = False
        self._schemas: dict[str, asyncio.Task[str | None]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End all calls and subscriptions; waiting callers receive a :class:`RuntimeError`. May be called again."""
        self._closed = True
        loads, self._schemas = list(self._schemas.values()), {}
        for load in loads:
            load.cancel()
        if loads:
            await asyncio.wait(loads)

    async def org_id(self) -> str:
        """Return the id of the org that this client reads, 18 characters. Logs in if needed."""
        return (await self._session.atoken()).org_id

    async def server_time(self, clock: Callable[[], float]) -> ServerTime | None:
        """Return Salesforce's time, measured now with ``clock``; ``None``, with a warning, if no response has it."""
        return await asyncio.to_thread(self.measure_time, clock)

    async def schema(self, schema_id: str) -> str | None:
        """Return the Avro schema JSON of ``schema_id``. Send one request for each ID, for all waiting callers.

        Logs in again once if Salesforce refuses the token. All waiting callers receive a failure, which is not cached.
        """
        self._check_open()
        load = self._schemas.get(schema_id)
        if load is None:
            load = self._schemas[schema_id] = asyncio.create_task(self._load_schema(schema_id))
            load.add_done_callback(partial(self._forget_failure, schema_id))
        with self._error_if_closed():
            # Shielded: the cancellation of one caller must not cancel the request of the other callers.
            return await asyncio.shield(load)

    async def _load_schema(self, schema_id: str) -> str | None:
        try:
            return await self._request_schema(schema_id)
        except SessionExpiredError:
            # Salesforce refuses a call without a session before it executes any part, so that a retry is safe.
            self.renew_session()
            return await self._request_schema(schema_id)

    @abstractmethod
    async def _request_schema(self, schema_id: str) -> str | None:
        """Request a schema once, with the current token."""

    def _forget_failure(self, schema_id: str, load: asyncio.Task[str | None]) -> None:
        if load.cancelled() or load.exception() is not None:
            self._schemas.pop(schema_id, None)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(self._CLOSED)

    @contextmanager
    def _error_if_closed(self) -> Iterator[None]:
        """Replace a cancellation by :class:`RuntimeError` if :meth:`aclose` cancelled the call, not the task."""
        try:
            yield
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed and task is not None and not task.cancelling():
                raise RuntimeError(self._CLOSED) from None
            raise
