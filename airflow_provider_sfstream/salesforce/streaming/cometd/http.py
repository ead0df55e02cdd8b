"""HTTP of the Streaming API: login, cookies, errors, and incremental responses."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Iterator
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiocometd.constants import MetaChannel
from aiocometd.utils import is_matching_response
from aiosfstream.auth import AuthenticatorBase
from aiosfstream.exceptions import AuthenticationError, ServerError, TransportError

from airflow_provider_sfstream import __version__
from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.redaction import redacted
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken, Session, TokenProvider
from airflow_provider_sfstream.salesforce.network.tls import is_loopback
from airflow_provider_sfstream.salesforce.streaming.cometd.messages import JsonLoads, MessageSplitter, parse_message

Message = dict[str, Any]
_LONGEST_QUOTATION = 500


class HttpError(TransportError):  # type: ignore[misc]
    """HTTP error of Salesforce, or of an intermediary, in place of Bayeux messages. ``text``: the start of the body."""

    def __init__(self, message: str, status: int, text: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.text = text


class NoAnswerError(TransportError):  # type: ignore[misc]
    """Missing response: the server was not reached, or did not respond in time."""


def new_session(url: str) -> aiohttp.ClientSession:
    """Return an HTTP session for one CometD session.

    It stores cookies, by which Salesforce routes, unchanged; for an IP address only if that is this machine.
    """
    loopback = is_loopback(urlsplit(url).hostname or "")
    return aiohttp.ClientSession(
        cookie_jar=aiohttp.CookieJar(unsafe=loopback, quote_cookie=False),
        headers={"User-Agent": f"airflow-provider-sfstream/{__version__}"},
        timeout=aiohttp.ClientTimeout(total=None),
    )


def transport_error(error: BaseException) -> TransportError:
    """Return the error for an exception of the HTTP library.

    The exception is not the cause of the error, because its repr may show the request's headers. A TLS error is.
    """
    text = "the server did not answer in time" if isinstance(error, TimeoutError) else str(error)
    is_unreachable = isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError)
    kind = NoAnswerError if is_unreachable or isinstance(error, TimeoutError) else TransportError
    failure = kind(redacted(f"{type(error).__name__}: {text}".rstrip(": ")))
    failure.__cause__ = next((arg for arg in _causes(error) if isinstance(arg, ssl.SSLError)), None)
    return failure


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


class Response:
    """The response to ``request``. ``events`` is a counter for its reader."""

    def __init__(self, response: aiohttp.ClientResponse, request: Message, json_loads: JsonLoads) -> None:
        self.request = request
        self.headers = response.headers
        self.events = 0
        self._response = response
        self._json_loads = json_loads
        self._reply: Message | None = None
        self._ending: Message | None = None

    async def messages(self, first_patience: float, patience: float) -> AsyncGenerator[list[Message], None]:
        """Yield lists of messages in order; one list has the messages that one chunk completed.

        :param first_patience: seconds until the body begins.
        :param patience: seconds between its parts, without the time of the caller.
        :raises TimeoutError: if the server took longer.
        :raises TransportError: if the body is invalid or incomplete. All complete messages were yielded before.
        """
        splitter = MessageSplitter()
        chunk = await self._chunk(first_patience)
        failure: TransportError | None = None
        first_chunk = chunk
        while chunk and failure is None:
            messages, failure = self._parse(splitter, chunk)
            yield messages
            if failure is None:
                chunk = await self._chunk(patience)
        try:
            if failure is not None:
                raise failure
            splitter.end()
        except TransportError:
            if self._response.status < 300:
                raise
            raise self._http_error(first_chunk) from None

    def note(self, message: Message) -> None:
        """Store a message that is not an event: the reply, or one with which the server ends the session."""
        if self._reply is None and is_matching_response(message, self.request):
            self._reply = message
        elif not message.get("successful", True) or message["channel"] == MetaChannel.DISCONNECT:
            self._ending = message

    def reply(self) -> Message:
        """Return the reply to the request, after all messages were read.

        :raises ServerError: if the server ended the session instead.
        :raises TransportError: if it did not reply.
        """
        if self._reply is not None and not self._reply.get("successful"):
            return self._reply
        if self._ending is not None:
            raise ServerError("The server ended the session.", self._ending)
        if self._reply is None:
            raise TransportError("The response contained no reply to the request.")
        return self._reply

    async def _chunk(self, patience: float) -> bytes:
        async with asyncio.timeout(patience):
            chunk: bytes = await self._response.content.readany()
            return chunk

    def _parse(self, splitter: MessageSplitter, chunk: bytes) -> tuple[list[Message], TransportError | None]:
        """Return the messages that ``chunk`` completes, and the error of the first unreadable one."""
        messages: list[Message] = []
        try:
            for raw in splitter.feed(chunk):
                messages.append(parse_message(raw, self._json_loads))  # noqa: PERF401 - keeps those before the error
        except TransportError as error:
            return messages, error
        return messages, None

    def _http_error(self, body: bytes) -> HttpError:
        status = f"{self._response.status} {self._response.reason or ''}".rstrip()
        text = body[:_LONGEST_QUOTATION].decode("utf-8", "replace")
        return HttpError(f"The server answered HTTP {status}.", self._response.status, text)


def is_held(request: Message) -> bool:
    """Return whether the server may hold ``request`` until there are events: not the first ``/meta/connect``."""
    return request["channel"] == MetaChannel.CONNECT and as_object(request.get("advice")).get("timeout") != 0


def as_object(value: Any) -> Message:
    """Return ``value`` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


class SessionAuthenticator(AuthenticatorBase):  # type: ignore[misc]
    """Authenticator of aiosfstream with the access token of a :class:`Session`, renewed if Salesforce refuses it.

    Its repr shows no secret. A login that fails raises aiosfstream's ``AuthenticationError``, whose ``__cause__`` is
    the error of :mod:`airflow_provider_sfstream.exceptions`.

    :param session: the session, which other clients may share, or a token provider.
    """

    def __init__(self, session: Session | TokenProvider) -> None:
        super().__init__()
        self._session = session if isinstance(session, Session) else Session(session)
        self._token: AccessToken | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(instance_url={self.instance_url!r})"

    @property
    def token(self) -> AccessToken | None:
        """The token in use, ``None`` before the first login."""
        return self._token

    async def renew(self) -> None:
        """Invalidate the token in use, which Salesforce refused, and log in again unless another client has done so."""
        if self._token is not None:
            self._session.refused(self._token)
            self._session.renew()
        await self.authenticate()

    async def _authenticate(self) -> tuple[int, dict[str, Any]]:
        try:
            self._token = token = await self._session.atoken()
        except SalesforceStreamError as error:
            raise AuthenticationError(str(error)) from error
        return 200, {"access_token": token.value, "token_type": "Bearer", "instance_url": token.instance_url}
