"""Proxy between a CometD client and the local org that injects network faults and changed responses."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
from aiohttp import web

Message = dict[str, Any]
Action = Callable[["CometdProxy", web.Request, list[Message]], Awaitable[web.StreamResponse]]
FIRST_CONNECT = "the /meta/connect after a handshake"
_FORWARDED_HEADERS = ("Authorization", "Content-Type", "Cookie")


class CometdProxy:
    """A CometD endpoint that forwards requests to ``target``, except for those that an action answers.

    ``url`` is its instance URL. ``requests`` has the first message of each request, ``answered`` the bodies of the
    org's responses. ``begun`` and ``acted`` count started and completed actions.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._actions: list[tuple[str, Action]] = []
        self._session: aiohttp.ClientSession | None = None
        self._changed = asyncio.Event()
        self._fresh = False
        self.url = ""
        self.requests: list[Message] = []
        self.answered: list[bytes] = []
        self.begun = 0
        self.acted = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, target: str) -> AsyncIterator[CometdProxy]:
        proxy = cls(target)
        app = web.Application(client_max_size=2**20)
        app.router.add_post("/{path:.*}", proxy._serve)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        proxy.url = f"http://localhost:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as proxy._session:
            try:
                yield proxy
            finally:
                await runner.cleanup()

    def next(self, channel: str, action: Action, times: int = 1) -> None:
        """Answer the next ``times`` requests on a meta channel with ``action``.

        ``/meta/connect`` excludes the first one after a handshake, which is :data:`FIRST_CONNECT`.
        """
        self._actions += [(channel, action)] * times

    async def until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        """Wait until ``condition`` is true. It is evaluated after each request and after each response."""
        async with asyncio.timeout(seconds):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def on(self, channel: str) -> list[Message]:
        """Return the first messages of all requests on ``channel``."""
        return [message for message in self.requests if message["channel"] == channel]

    async def forward(self, request: web.Request, messages: list[Message]) -> tuple[aiohttp.ClientResponse, bytes]:
        """Send a request to the org and return its response and the body."""
        assert self._session is not None
        headers = {name: request.headers[name] for name in _FORWARDED_HEADERS if name in request.headers}
        body = json.dumps(messages)
        async with self._session.post(self._target + request.path, data=body, headers=headers) as response:
            answer = await response.read()
        self.answered.append(answer)
        return response, answer

    async def forward_unchanged(self, request: web.Request, messages: list[Message]) -> web.Response:
        """Forward a request and return the org's response unchanged."""
        response, body = await self.forward(request, messages)
        return with_body(response, body)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        messages = json.loads(await request.text())
        messages = messages if isinstance(messages, list) else [messages]
        self.requests.append(messages[0])
        action = self._action(messages[0])
        self.begun += action is not None
        self._changed.set()
        try:
            if action is None:
                return await self.forward_unchanged(request, messages)
            return await action(self, request, messages)
        finally:
            self.acted += action is not None
            self._changed.set()

    def _action(self, message: Message) -> Action | None:
        channel = message["channel"]
        if channel == "/meta/handshake":
            self._fresh = True
        elif channel == "/meta/connect" and self._fresh:
            self._fresh = False
            channel = FIRST_CONNECT
        for index, (wanted, _) in enumerate(self._actions):
            if wanted == channel:
                return self._actions.pop(index)[1]
        return None


def with_body(response: aiohttp.ClientResponse, body: bytes) -> web.Response:
    """Return a copy of the org's response with another body."""
    answer = web.Response(status=response.status, body=body, content_type=response.content_type)
    for cookie in response.headers.getall("Set-Cookie", []):
        answer.headers.add("Set-Cookie", cookie)
    return answer


def drop() -> Action:
    """Close the connection without forwarding the request."""

    async def act(proxy: CometdProxy, request: web.Request, messages: list[Message]) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    return act


def lose(arriving: int = 0, happens: Callable[[], Any] = lambda: None) -> Action:
    """Forward a request, and close the connection during the response.

    :param arriving: number of bytes of the body that are sent before.
    :param happens: called before the request is forwarded, for example to publish events that the response contains.
    """

    async def act(proxy: CometdProxy, request: web.Request, messages: list[Message]) -> web.StreamResponse:
        await asyncio.to_thread(happens)
        response, body = await proxy.forward(request, messages)
        assert request.transport is not None
        if arriving:
            begun = web.StreamResponse(headers={"Content-Type": response.content_type})
            begun.content_length = len(body)
            await begun.prepare(request)
            await begun.write(body[:arriving])
            await asyncio.sleep(0.05)  # so that the client reads these bytes before it sees the end of the connection
        request.transport.abort()
        return web.Response()

    return act


def hang() -> Action:
    """Never respond."""

    async def act(proxy: CometdProxy, request: web.Request, messages: list[Message]) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    return act


def answer(status: int, body: str | bytes, content_type: str = "text/html") -> Action:
    """Return this HTTP response without forwarding the request."""

    async def act(proxy: CometdProxy, request: web.Request, messages: list[Message]) -> web.StreamResponse:
        return web.Response(status=status, body=body, content_type=content_type)

    return act


def reply(*, status: int = 200, **fields: Any) -> Action:
    """Return a Bayeux reply with these fields without forwarding the request."""

    async def act(proxy: CometdProxy, request: web.Request, messages: list[Message]) -> web.StreamResponse:
        echoed = {key: messages[0][key] for key in ("channel", "id", "subscription") if key in messages[0]}
        return web.json_response([{**echoed, "successful": True, **fields}], status=status)

    return act


def call_before_forwarding(happens: Callable[[], Any]) -> Action:
    """Call ``happens`` in another thread, then forward the request."""

    async def act(proxy: CometdProxy, request: web.Request, messages: list[Message]) -> web.StreamResponse:
        await asyncio.to_thread(happens)
        return await proxy.forward_unchanged(request, messages)

    return act


def rewrite(change: Callable[[list[Message]], list[Message]]) -> Action:
    """Forward a request, and change the messages of the org's response."""

    async def act(proxy: CometdProxy, request: web.Request, messages: list[Message]) -> web.StreamResponse:
        response, body = await proxy.forward(request, messages)
        return with_body(response, json.dumps(change(json.loads(body))).encode())

    return act


def trickle(size: int) -> Action:
    """Forward a request, and send the body of the org's response in parts of ``size`` bytes."""

    async def act(proxy: CometdProxy, request: web.Request, messages: list[Message]) -> web.StreamResponse:
        response, body = await proxy.forward(request, messages)
        begun = web.StreamResponse(headers={"Content-Type": response.content_type})
        await begun.prepare(request)
        for start in range(0, len(body), size):
            await begun.write(body[start : start + size])
            await asyncio.sleep(0)
        await begun.write_eof()
        return begun

    return act
