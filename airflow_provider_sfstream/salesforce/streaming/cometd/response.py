"""The response to one Bayeux request, read message by message while it arrives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
from aiocometd.constants import MetaChannel
from aiocometd.utils import is_matching_response
from aiosfstream.exceptions import ServerError, TransportError

from airflow_provider_sfstream.salesforce.streaming.cometd.http import HttpError
from airflow_provider_sfstream.salesforce.streaming.cometd.messages import (
    JsonLoads,
    MessageSplitter,
    parse_message,
)

Message = dict[str, Any]

_QUOTED = 500


class Response:
    """The response to ``request``. ``events`` is for its reader to count them.

    :param json_loads: parses the text of one message.
    """

    def __init__(self, response: aiohttp.ClientResponse, request: Message, json_loads: JsonLoads) -> None:
        self.request = request
        self.headers = response.headers
        self.events = 0
        self._response = response
        self._json_loads = json_loads
        self._reply: Message | None = None
        self._ending: Message | None = None

    async def messages(self, first_patience: float, patience: float) -> AsyncGenerator[list[Message], None]:
        """Yield messages in order, those together that became complete together.

        :param first_patience: seconds that the body may take to begin.
        :param patience: seconds between its parts. The time that the caller takes does not count.
        :raises TimeoutError: if the server took longer.
        :raises TransportError: if the body is, or ends, not as it must. All complete messages were yielded before.
        """
        splitter = MessageSplitter()
        chunk = await self._chunk(first_patience)
        failure: TransportError | None = None
        began = chunk
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
            raise self._http_error(began) from None

    def note(self, message: Message) -> None:
        """Keep a message that is no event: the reply, or one with which the server ends the session."""
        if self._reply is None and is_matching_response(message, self.request):
            self._reply = message
        elif not message.get("successful", True) or message["channel"] == MetaChannel.DISCONNECT:
            self._ending = message

    def reply(self) -> Message:
        """Return the reply to the request, when all messages were read.

        :raises ServerError: if the server ended the session instead.
        :raises TransportError: if it did not reply.
        """
        if self._reply is not None and not self._reply.get("successful"):
            return self._reply
        if self._ending is not None:
            raise ServerError("The server ended the session.", self._ending)
        if self._reply is None:
            raise TransportError("The response held no reply to the request.")
        return self._reply

    async def _chunk(self, patience: float) -> bytes:
        async with asyncio.timeout(patience):
            chunk: bytes = await self._response.content.readany()
            return chunk

    def _parse(self, splitter: MessageSplitter, chunk: bytes) -> tuple[list[Message], TransportError | None]:
        """Return the messages that ``chunk`` completes and, after them, what could not be read."""
        messages: list[Message] = []
        try:
            for raw in splitter.feed(chunk):
                messages.append(parse_message(raw, self._json_loads))  # noqa: PERF401 - keeps those before the error
        except TransportError as error:
            return messages, error
        return messages, None

    def _http_error(self, began: bytes) -> HttpError:
        status = f"{self._response.status} {self._response.reason or ''}".rstrip()
        text = began[:_QUOTED].decode("utf-8", "replace")
        return HttpError(f"The server answered HTTP {status}.", self._response.status, text)


def is_held(request: Message) -> bool:
    """Return whether the server may hold ``request`` until there are events: not the first ``/meta/connect``."""
    return request["channel"] == MetaChannel.CONNECT and as_object(request.get("advice")).get("timeout") != 0


def as_object(value: Any) -> Message:
    """Return ``value`` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}
