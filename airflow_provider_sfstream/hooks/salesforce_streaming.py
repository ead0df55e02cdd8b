"""Hook of the Streaming API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    ReplayIdLostError,
    RequestRejectedError,
    SalesforceStreamError,
    TopicNotFoundError,
)
from airflow_provider_sfstream.hooks.salesforce import SalesforceSettings
from airflow_provider_sfstream.hooks.salesforce_events import SalesforceEventHook, SharedOnLoop
from airflow_provider_sfstream.salesforce.api_versions import DEFAULT_API_VERSION, api_version_from

if TYPE_CHECKING:
    from airflow_provider_sfstream.salesforce.streaming.async_client import AsyncStreamingClient
    from airflow_provider_sfstream.salesforce.streaming.client import StreamingClient
    from airflow_provider_sfstream.salesforce.streaming.cometd.client import CometdClient

_async_clients: SharedOnLoop[AsyncStreamingClient] = SharedOnLoop()

_TOPIC_ERRORS = (AccessDeniedError, TopicNotFoundError, RequestRejectedError, ReplayIdLostError)


class SalesforceStreamingHook(SalesforceEventHook):
    """Subscribe to Salesforce events through the Streaming API: PushTopics, generic, platform and change events.

    Needs the extra ``streaming``, and API version 37.0 or above.

    :param salesforce_conn_id: the Airflow connection.
    """

    def get_conn(self) -> StreamingClient:
        """Return a new client, connected on first use; the caller closes it (``with hook.get_conn() as client``)."""
        from airflow_provider_sfstream.salesforce.streaming.client import StreamingClient

        return StreamingClient(self.token_provider(), **self._connection_arguments(self.settings()))

    @asynccontextmanager
    async def async_client(self) -> AsyncIterator[AsyncStreamingClient]:
        """Yield the asyncio client of this connection.

        Users on one event loop with equal connections share one client and one login, closed when the last user leaves;
        each subscription has a CometD session of its own. Nothing blocks the loop. A hook reads its Airflow connection
        once; a new hook reads later changes, and then receives another client.
        """
        settings = await self.asettings()
        async with _async_clients.use(settings, lambda: asyncio.to_thread(self._new_async_client, settings)) as client:
            yield client

    def _new_async_client(self, settings: SalesforceSettings) -> AsyncStreamingClient:
        # In a thread: its imports and certificate authorities take longer than an event loop should be blocked for.
        from airflow_provider_sfstream.salesforce.streaming.async_client import AsyncStreamingClient

        return AsyncStreamingClient(self._provider(settings), **self._connection_arguments(settings))

    def cometd_client(self, **arguments: Any) -> CometdClient:
        """Return an aiosfstream client that logs in with this connection, for code written for aiosfstream.

        Call it while an event loop runs. It reads the connection: in an async task, call it in a thread or after
        ``await hook.asettings()``.

        :param arguments: of :class:`~airflow_provider_sfstream.salesforce.streaming.cometd.client.CometdClient`, such
            as ``replay`` and ``replay_fallback``.
        """
        return self._new_async_client(self.settings()).cometd_client(**arguments)

    def test_connection(self, topic: str | None = None) -> tuple[bool, str]:
        """Log in and shake hands with the Streaming API. Return whether that works, and the failed part otherwise.

        :param topic: a topic that the user must be able to subscribe to.
        """

        def test(client: StreamingClient) -> tuple[bool, str]:
            try:
                client.check()
                if topic:
                    client.check(topic)
            except _TOPIC_ERRORS as error:
                return False, f"Topic permission: {error}"
            except SalesforceStreamError as error:
                return False, f"Streaming endpoint: {error}"
            reached = f"Logged in to org {self.org_id}; Streaming API {client.api_version} reached"
            return True, f"{reached}{f', {topic} can be subscribed to' if topic else ''}."

        return self._run_test(self.get_conn, test)

    def _connection_arguments(self, settings: SalesforceSettings) -> dict[str, Any]:
        try:
            api_version = api_version_from(settings.version) if settings.version else DEFAULT_API_VERSION
        except ConfigurationError as error:
            raise ConfigurationError(f"Airflow connection {self.salesforce_conn_id!r}, version: {error}") from None
        timeout = settings.timers.call_timeout_seconds
        return {
            "api_version": api_version,
            "network": settings.network,
            **({} if timeout is None else {"connection_timeout": timeout}),
        }
