"""Client of the Streaming API: aiosfstream's client without silent loss of events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import MutableMapping
from typing import Any, cast

import aiosfstream
from aiocometd.constants import ConnectionType
from aiocometd.exceptions import ServerError
from aiosfstream import (
    ConstantReplayId,
    MappingStorage,
    ReplayMarkerStorage,
    ReplayMarkerStoragePolicy,
    ReplayOption,
)
from aiosfstream.auth import AuthenticatorBase
from aiosfstream.exceptions import ClientError, ClientInvalidOperation, translate_errors_context

from airflow_provider_sfstream.salesforce.api_versions import DEFAULT_API_VERSION, api_version_from
from airflow_provider_sfstream.salesforce.network.settings import DEFAULT_NETWORK, NetworkSettings
from airflow_provider_sfstream.salesforce.streaming.cometd.messages import (
    EventMessage,
    JsonDumps,
    JsonLoads,
    default_dumps,
    default_loads,
)
from airflow_provider_sfstream.salesforce.streaming.cometd.queue import EventQueue
from airflow_provider_sfstream.salesforce.streaming.cometd.replay import (
    ArrivalOrderStorage,
    is_replay_id_refused,
)
from airflow_provider_sfstream.salesforce.streaming.cometd.transport import CometdTransport
from airflow_provider_sfstream.salesforce.topics import channel_of

LOGGER = logging.getLogger(__name__)

_ANY_LOOP = cast(asyncio.AbstractEventLoop, object())
"""Placeholder of aiocometd's event loop until :meth:`CometdClient.open` sets it."""


class CometdClient(aiosfstream.Client):  # type: ignore[misc]
    """aiosfstream's client of the Streaming API, with its interface, and these guarantees.

    * Event messages are received in the order in which the server sent them, without a gap, until an error. Any fault
      of the connection is an error: :meth:`receive` raises it after all messages that had arrived, and the client never
      reconnects implicitly. Open a client again, also the same one, and subscribe from the durable position: messages
      may be duplicates, but none is missing.
    * Cancelling :meth:`receive` loses nothing.
    * The application decides when replay markers are stored: ``async with client.replay_storage(message): ...``, in the
      order of arrival. ``ReplayMarkerStoragePolicy.AUTOMATIC``, aiosfstream's default, stores them before a message is
      handled: at most once.
    * A response is never completely in memory; while ``max_pending_count`` messages wait, reading stops.
    * Every wait for the network is bounded, also in :meth:`open`.
    * Neither repr nor logs nor errors show a secret.

    The constructor may run anywhere; the client belongs to the event loop that opens it. A channel supports one filter
    at a time. Use one client for each channel: with more, the response to a later ``subscribe`` may contain events
    while older ones are still in transit.

    :param authenticator: an authenticator of aiosfstream; for logins of this package, a
        :class:`~airflow_provider_sfstream.salesforce.streaming.cometd.http.SessionAuthenticator`.
    :param replay: start of subscriptions: a ``ReplayOption``, a mapping of replay markers, or a
        ``ReplayMarkerStorage``. It becomes the client's :attr:`replay_storage`.
    :param replay_fallback: start used only if Salesforce refuses a replay ID. Without it the refusal is a
        ``ServerError``. Either way events are lost, so set it deliberately.
    :param connection_timeout: seconds for each request; a held ``/meta/connect`` has in addition the time for which the
        server holds it.
    :param max_pending_count: maximum of waiting event messages; 0 or less: no maximum.
    :param json_dumps: returns JSON text for a list of dicts. ``None``: orjson where installed, else the standard
        library.
    :param json_loads: parses the JSON text of one message. ``None``: as above.
    :param loop: the required event loop of :meth:`open`, if any.
    :param api_version: of the Streaming API, for example ``"66.0"``; 37.0 and up.
    :param network: certificate authority, proxies, and whether plaintext to an instance on another machine is accepted.
    :param held: requested maximum of seconds for which the server holds a poll without events (Bayeux,
        ``advice.timeout``). ``None``: the server's default, 110 seconds at Salesforce.
    :raises ConfigurationError: if the API version is invalid.
    :raises TypeError: if ``authenticator`` or ``replay`` has another type.
    """

    def __init__(
        self,
        authenticator: AuthenticatorBase,
        *,
        replay: ReplayOption | ReplayMarkerStorage | MutableMapping[str, Any] = ReplayOption.NEW_EVENTS,
        replay_fallback: ReplayOption | None = None,
        replay_storage_policy: ReplayMarkerStoragePolicy = ReplayMarkerStoragePolicy.MANUAL,
        connection_timeout: float = 10.0,
        max_pending_count: int = 100,
        json_dumps: JsonDumps | None = None,
        json_loads: JsonLoads | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        api_version: str = DEFAULT_API_VERSION,
        network: NetworkSettings = DEFAULT_NETWORK,
        held: float | None = None,
    ) -> None:
        self.api_version = api_version_from(api_version)
        super().__init__(
            authenticator,
            replay=replay,
            replay_fallback=replay_fallback,
            replay_storage_policy=replay_storage_policy,
            connection_timeout=connection_timeout,
            max_pending_count=max_pending_count,
            json_dumps=json_dumps or default_dumps,
            json_loads=json_loads or default_loads,
            loop=loop or _ANY_LOOP,
        )
        self._connection_types = [ConnectionType.LONG_POLLING]
        self._network, self._timeout, self._held = network, connection_timeout, held
        self._opening = False
        self._transport: CometdTransport | None = None
        self._incoming_queue: EventQueue | None = None

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<{type(self).__name__} {state}, {self.url or 'never opened'}, {self.replay_storage!r}>"

    async def open(self) -> None:
        """Log in, shake hands and connect. A closed client can be opened again.

        :raises ClientInvalidOperation: if it is open, or belongs to another event loop.
        :raises AuthenticationError: aiosfstream's, if the login failed.
        :raises ConfigurationError: if the instance would be reached in plaintext without ``allow_insecure``.
        :raises ServerError: if the server refused the handshake or the first connect.
        :raises TransportError: if the server was not reached in time, or its response is invalid.
        """
        if not self.closed or self._opening:
            raise ClientInvalidOperation("Client is already open.")
        running = asyncio.get_running_loop()
        if self._loop is not _ANY_LOOP and self._loop is not running:
            raise ClientInvalidOperation("The client belongs to another event loop.")
        self._opening = True
        try:
            await self.auth.authenticate()
            self.url = self.get_cometd_url(self.auth.instance_url)
            # open() of aiosfstream logs the authenticator, which may show secrets.
            with translate_errors_context():
                await super(aiosfstream.Client, self).open()
        except BaseException:
            await self._release()
            raise
        finally:
            self._opening = False

    async def close(self) -> None:
        """Disconnect and release all resources, without raising. Waiting messages can be received afterwards.

        A pending :meth:`receive` raises ``ClientInvalidOperation``, which ends an ``async for``.
        """
        if self._incoming_queue is not None:
            self._queue.end(ClientInvalidOperation(_CLOSED))
        await self._release()

    async def subscribe(self, channel: str) -> None:
        """Subscribe to ``channel`` from the start in ``replay``.

        :raises ClientInvalidOperation: if the client is closed, or the channel is subscribed with another filter.
        :raises ServerError: if Salesforce refused. The session stays open.
        :raises TransportError: if the request failed; events may be lost, so this ends the session.
        """
        for subscribed in self.subscriptions:
            if subscribed != channel and channel_of(subscribed) == channel_of(channel):
                raise ClientInvalidOperation(
                    f"{subscribed} is already subscribed, and its events could not be distinguished from those of "
                    f"{channel}. Use another client for {channel}."
                )
        subscribe = super(aiosfstream.Client, self).subscribe
        with translate_errors_context():
            try:
                await subscribe(channel)
            except ServerError as error:
                if self.replay_fallback is None or not is_replay_id_refused(error):
                    raise
                LOGGER.warning(
                    "%s: Salesforce refused the stored replay ID (%s). Events are lost. Subscribing from %r instead.",
                    channel,
                    error.error,
                    self.replay_fallback,
                )
                cast(ArrivalOrderStorage, self.replay_storage).fall_back(channel, self.replay_fallback)
                await subscribe(channel)

    async def receive(self) -> EventMessage:
        """Wait for the next event message. Cancelling it loses none.

        :raises ClientInvalidOperation: if the client is closed and no message waits.
        :raises ServerError: if the server ended the session.
        :raises TransportError: if the connection failed. The client is closed then; open it again.
        """
        messages: list[EventMessage] = await self.receive_many(1)
        return messages[0]

    async def receive_many(self, most: int, *, heartbeats: bool = False, refused: bool = False) -> list[EventMessage]:
        """Wait for an event message; return all that wait, in order. Cancelling it loses none.

        :param most: messages to return at most, at least 1.
        :param heartbeats: return an empty list when the server answered without events.
        :param refused: return messages with a ``refusal``, too. Otherwise one raises ``TransportError``, after all
            earlier messages, and is not skipped.
        :raises: the errors of :meth:`receive`.
        """
        if most < 1:
            raise ValueError(f"most={most} must be at least 1.")
        queue = self._queue
        messages = await queue.take(most, heartbeats=heartbeats)
        place = next((index for index, message in enumerate(messages) if message.refusal is not None), None)
        if not refused and place is not None:
            queue.put_back(messages[place:])
            refusal = messages[place].refusal
            messages = messages[:place]
            if refusal is not None and not messages:
                await self._release()
                raise refusal
        if messages:
            await self._mark(queue, messages)
        elif queue.failure is not None:
            failure = queue.failure
            await self._release()
            queue.failure = ClientInvalidOperation(_CLOSED)
            with translate_errors_context():
                raise failure
        return messages

    @staticmethod
    def create_replay_storage(replay_param: Any) -> ReplayMarkerStorage | None:
        """Return the storage for the ``replay`` argument; ``None`` if it has another type."""
        if isinstance(replay_param, ArrivalOrderStorage):
            return replay_param
        if isinstance(replay_param, ReplayMarkerStorage):
            return ArrivalOrderStorage(replay_param)
        if isinstance(replay_param, MutableMapping):
            return ArrivalOrderStorage(MappingStorage(replay_param))
        return ArrivalOrderStorage(ConstantReplayId(replay_param)) if isinstance(replay_param, ReplayOption) else None

    def get_cometd_url(self, instance_url: str) -> str:
        """Return the URL of the instance's CometD endpoint.

        :raises ConfigurationError: if it would be reached in plaintext without ``allow_insecure``.
        """
        return f"{self._network.origin('The instance URL', instance_url)}/cometd/{self.api_version}"

    @property
    def _queue(self) -> EventQueue:
        if self._incoming_queue is None:
            raise ClientInvalidOperation(_CLOSED)
        return self._incoming_queue

    async def _mark(self, queue: EventQueue, messages: list[EventMessage]) -> None:
        """Store the markers of messages before they are returned, if the policy is AUTOMATIC."""
        if self.replay_storage_policy is not ReplayMarkerStoragePolicy.AUTOMATIC:
            return
        try:
            for message in {message["channel"]: message for message in messages}.values():
                await self.replay_storage.extract_replay_id(message)
        except BaseException:
            queue.put_back(messages)
            raise

    async def _negotiate_transport(self) -> CometdTransport:
        self._incoming_queue = EventQueue(self._max_pending_count)
        self._transport = transport = CometdTransport(
            url=self.url,
            queue=self._queue,
            network=self._network,
            timeout=self._timeout,
            held=self._held,
            extensions=self.extensions,
            auth=self.auth,
            json_dumps=self._json_dumps,
            json_loads=self._json_loads,
        )
        response = await transport.handshake(self._connection_types)
        self._verify_response(response)
        if ConnectionType.LONG_POLLING.value not in (response.get("supportedConnectionTypes") or []):
            raise ClientError("None of the connection types offered by the server are supported.")
        return transport

    async def _check_server_disconnected(self) -> None:
        if self._incoming_queue is not None and self._queue.failure is not None:
            failure = self._queue.failure
            await self._release()
            raise failure

    async def _release(self) -> None:
        transport, self._transport = self._transport, None
        self._closed = True
        if transport is None:
            return
        try:
            await transport.disconnect()
        finally:
            await transport.close()


_CLOSED = "The client is closed and there are no pending messages."
