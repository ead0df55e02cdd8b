"""aiocometd's long-polling transport, with every fault as the end of the session: no silent loss of events."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, cast

import aiohttp
from aiocometd.constants import CONNECT_MESSAGE, DISCONNECT_MESSAGE, ConnectionType, TransportState
from aiocometd.exceptions import TransportInvalidOperation
from aiocometd.transports.base import TransportBase
from aiocometd.utils import get_error_code, is_event_message
from aiosfstream.exceptions import ServerError, TransportError

from airflow_provider_sfstream.redaction import redacted, remember_secrets
from airflow_provider_sfstream.salesforce.network.settings import NetworkSettings
from airflow_provider_sfstream.salesforce.streaming.cometd.http import (
    HttpError,
    Message,
    Response,
    SessionAuthenticator,
    as_object,
    is_held,
    new_session,
    transport_error,
)
from airflow_provider_sfstream.salesforce.streaming.cometd.messages import EventMessage
from airflow_provider_sfstream.salesforce.streaming.cometd.queue import EventQueue

HELD_SECONDS = 110.0
"""Seconds for which the server may hold a ``/meta/connect`` by default (Streaming API guide, "Clients and
Timeouts")."""

SUBSCRIBE_FIRST_SECONDS = 5.0
"""Seconds for which polling waits for the first subscription: the responses to both contain events, and the order of
two concurrent responses is unknown. The server waits for a poll much longer."""

DISCONNECT_SECONDS = 2.0
"""Seconds for a disconnect."""

_TLS_CLOSE_SECONDS = 0.25


class CometdTransport(TransportBase):  # type: ignore[misc]
    """One Bayeux session over long polling.

    An incomplete response, or one without a waiting request, may have contained events that the server does not send
    again. So any fault ends the session permanently: received messages stay in the queue, in order and without a gap,
    followed by the error. The application opens a new session from its durable position.

    :param timeout: seconds without any response, or without the next part of one, after which a request has failed.
    :param held: requested seconds for which the server holds a ``/meta/connect``. It may hold it longer. ``None``: the
        server's default.
    """

    def __init__(
        self, *, queue: EventQueue, network: NetworkSettings, timeout: float, held: float | None, **options: Any
    ) -> None:
        super().__init__(incoming_queue=queue, loop=asyncio.get_running_loop(), **options)
        self._queue, self._network, self._timeout = queue, network, timeout
        self._advice: Message = {} if held is None else {"advice": {"timeout": max(1, round(held * 1_000))}}
        self._last_reply: Message | None = None
        self._renewing = asyncio.Lock()
        self._renewed = False
        self._has_ended = False
        self._subscribed = asyncio.Event()
        self._subscribing = self._asks_for_events = False
        self._http_session: aiohttp.ClientSession | None = None
        self._reconnect_advice: Message = {}
        self._connect_task: asyncio.Task[None] | None = None

    @property
    def connection_type(self) -> ConnectionType:
        """Long polling, the only type that Salesforce offers."""
        return ConnectionType.LONG_POLLING

    @property
    def last_connect_result(self) -> Message | None:
        """The last reply to a ``/meta/connect``."""
        return self._last_reply

    async def connect(self) -> Message:
        """Connect; if the server agrees, poll until the session ends.

        :return: the reply to the first ``/meta/connect``, which the server is asked not to hold.
        """
        if not self.client_id:
            raise TransportInvalidOperation("Can't connect to the server without a client id. Do a handshake first.")
        self._state = TransportState.CONNECTING
        reply = await self._connect(advice={"timeout": 0})
        if reply.get("successful"):
            self._state = TransportState.CONNECTED
            self._connect_task = asyncio.create_task(self._poll(reply))
        return reply

    async def disconnect(self) -> None:
        """Stop polling and, if the server may still have the session, disconnect quickly, without raising."""
        self._state = TransportState.DISCONNECTING
        try:
            await self._stop_connect_task()
            if self.client_id and not self._has_ended:
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(DISCONNECT_SECONDS):
                        await self._send_payload([DISCONNECT_MESSAGE.copy()])
        finally:
            self._has_ended = True
            self._state = TransportState.DISCONNECTED

    async def subscribe(self, channel: str) -> Message:
        """Subscribe to ``channel``, see :meth:`CometdClient.subscribe`."""
        self._subscribing = True  # a response to an earlier poll proves nothing about the channel
        self._queue.forget_heartbeat()
        try:
            reply: Message = await super().subscribe(channel)
            return reply
        finally:
            self._subscribed.set()

    async def _poll(self, reply: Message) -> None:
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SUBSCRIBE_FIRST_SECONDS):
                    await self._subscribed.wait()
            while True:
                self._check_session(reply)
                await asyncio.sleep((self._advised("interval") or 0) / 1000)  # Bayeux: milliseconds
                await self._queue.space()
                reply = await self._connect(**self._advice)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # the reader receives it, also an exception of a signal handler
            self._fail(error)

    async def _connect(self, **fields: Any) -> Message:
        self._asks_for_events = self._subscribed.is_set()
        reply: Message = await self._send_message(CONNECT_MESSAGE.copy(), **fields)
        self._last_reply = reply
        return reply

    @staticmethod
    def _check_session(reply: Message) -> None:
        advised = as_object(reply.get("advice")).get("reconnect", "retry")
        if not reply.get("successful"):
            raise ServerError("Connect request failed.", reply)
        if advised != "retry":
            raise ServerError(f"The server ended the session: it advises reconnect={advised!r}.", reply)

    def _fail(self, error: BaseException) -> None:
        """End the session: later messages are not delivered."""
        self._queue.end(error)
        self._has_ended = self._has_ended or isinstance(error, ServerError)
        if self.state in (TransportState.CONNECTING, TransportState.CONNECTED):
            self._state = TransportState.SERVER_DISCONNECTED
        if self._connect_task is not None and self._connect_task is not asyncio.current_task():
            self._connect_task.cancel()

    async def _send_payload_with_auth(self, payload: list[Message]) -> Message:
        """Send; once in a session, send again with a new access token if Salesforce refused the one in use.

        Salesforce refuses a request before it executes any part. A second refusal has another cause than the token's
        age: an error.
        """
        token = None if self._auth is None else self._auth.access_token
        refusal: HttpError | None = None
        reply: Message = {}
        try:
            reply = await self._send_payload(payload)
        except HttpError as error:
            if error.status != 401:
                raise
            refusal = error
        if refusal is None and not _is_token_refused(reply):
            return reply
        if await self._has_other_token(token):
            reply = await self._send_payload(payload)
        elif refusal is not None:
            raise refusal
        return reply

    async def _has_other_token(self, refused: str | None) -> bool:
        if self._auth is None:
            return False
        async with self._renewing:
            if self._auth.access_token != refused:
                return True
            if self._renewed:
                return False
            self._renewed = True
            if isinstance(self._auth, SessionAuthenticator):
                await self._auth.renew()
            else:
                await self._auth.authenticate()
            return True

    async def _send_final_payload(self, payload: list[Message], *, headers: dict[str, str]) -> Message:
        failure: Exception
        try:
            return await self._exchange(payload, headers)
        except HttpError as error:
            remember_secrets(headers.get("Authorization", "").rpartition(" ")[2])  # of any authenticator
            error.text = redacted(error.text)
            if error.status == 401:  # another token may be accepted
                raise
            failure = error
        except (TransportError, ServerError) as error:
            failure = error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self._has_ended = self._has_ended or isinstance(error, TimeoutError)
            failure = transport_error(error)
        except asyncio.CancelledError:
            self._fail(TransportError("A request was cancelled: events of its response may be missing."))
            raise
        except BaseException as error:  # for example of a signal handler
            self._fail(error)
            raise
        self._fail(failure)
        raise failure

    async def _exchange(self, payload: list[Message], headers: dict[str, str]) -> Message:
        body: str | bytes = self._json_dumps(payload)
        headers["Content-Type"] = "application/json;charset=UTF-8"
        if self._http_session is None:
            self._http_session = new_session(self._url)
        async with asyncio.timeout(self._patience(payload[0])):
            response = await self._http_session.post(
                self._url,
                data=body.encode("utf-8") if isinstance(body, str) else body,
                headers=headers,
                allow_redirects=False,
                ssl=self._network.ssl_context,
                proxy=self._network.proxy(self._url),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._timeout),
            )
        async with response:
            return await self._read(Response(response, payload[0], self._json_loads))

    def _patience(self, request: Message) -> float:
        """Return the seconds until the response to ``request`` must begin."""
        if not is_held(request):
            return self._timeout
        advised = self._advised("timeout")
        return self._timeout + (HELD_SECONDS if advised is None else advised / 1000)

    def _advised(self, name: str) -> float | None:
        """Return a number of milliseconds that the server advised, ``None`` without advice."""
        advised = self.reconnect_advice.get(name)
        return float(advised) if isinstance(advised, int | float) and advised >= 0 else None

    async def _read(self, response: Response) -> Message:
        """Read a response's messages as they arrive, add events to the queue, and return the reply to the request.

        While the response to a held ``/meta/connect`` is read, this waits for space in the queue. For other requests it
        must not: the application waits for the reply and consumes no events.
        """
        held = is_held(response.request)
        arriving = response.messages(self._patience(response.request), self._timeout)
        async with contextlib.aclosing(arriving):
            async for messages in arriving:
                await self._process_incoming_payload(messages, response.headers)
                for message in messages:
                    if not is_event_message(message):
                        self._record(message)
                        response.note(message)
                        continue
                    response.events += 1
                    self._queue.put(cast(EventMessage, message))
                    if held:
                        await self._queue.space()
        reply = response.reply()
        is_for_subscriber = self._asks_for_events or not self._subscribing
        if held and reply.get("successful") and not response.events and is_for_subscriber:
            self._queue.heartbeat()
        return reply

    def _record(self, message: Message) -> None:
        self._reconnect_advice = {**self._reconnect_advice, **as_object(message.get("advice"))}
        if "successful" in message and "subscription" in message:
            self._update_subscriptions(message)

    async def _close_http_session(self) -> None:
        if self._http_session is None or self._http_session.closed:
            return
        await self._http_session.close()
        # aiohttp's "Graceful Shutdown": the transports close in later steps of the event loop.
        await asyncio.sleep(_TLS_CLOSE_SECONDS if self._url.startswith("https:") else 0)


def _is_token_refused(reply: Message) -> bool:
    """Return whether a reply refuses the access token: 401, also as the cause of a refused handshake.

    The error of a handshake is then ``403::Handshake denied``, with ``401::Authentication invalid`` in ``ext.sfdc``
    (Streaming API guide, "Handling Streaming API Errors").
    """
    reason = as_object(as_object(reply.get("ext")).get("sfdc")).get("failureReason")
    return any(isinstance(text, str) and get_error_code(text) == 401 for text in (reply.get("error"), reason))
