"""``POST /cometd/{version}``: HTTP endpoint of the Streaming API."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiohttp import web

from sfstream_localorg.cometd import faults, replies
from sfstream_localorg.cometd.bayeux import Bayeux, Caller
from sfstream_localorg.cometd.connects import ConnectionGoneError, Connects
from sfstream_localorg.cometd.delivery import Delivery
from sfstream_localorg.cometd.payloads import to_json
from sfstream_localorg.cometd.replies import BayeuxError, Message
from sfstream_localorg.cometd.requests import RefusedError, read_messages
from sfstream_localorg.cometd.responses import COOKIE, HEADERS, Answer, close, write, write_damaged
from sfstream_localorg.login.sessions import bearer_token

if TYPE_CHECKING:
    from sfstream_localorg.org import Org
    from sfstream_localorg.request_log import Request

_DAMAGES = (faults.LOSE, faults.TRUNCATE, faults.BROKEN_MESSAGE)
_HTML = "<html><head><title>Service Unavailable</title></head><body><h1>{status}</h1></body></html>"
_CONNECTION_CHECK_SECONDS = 0.05


def routes(org: Org) -> list[web.RouteDef]:
    """Return the routes; the version, a slash and a message type after it are optional."""
    endpoint = Endpoint(org)
    return [web.route("*", "/cometd{rest:(?:/.*)?}", endpoint.serve)]


class Endpoint:
    """Request handler of one org."""

    def __init__(self, org: Org) -> None:
        self._org = org
        self._faults = org.faults.cometd
        self._bayeux = Bayeux(org)
        self._connects = Connects(org, self._bayeux)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Process all messages of a request; ``/meta/connect`` last, since it may be held."""
        try:
            messages = await read_messages(request)
        except RefusedError as error:
            return web.Response(status=error.status, body=to_json([error.as_message()]).encode(), headers=HEADERS)
        log = [self._begin(message) for message in messages]
        broken = await self._apply_request_faults(request, messages, log)
        if broken is not None:
            return broken
        caller = Caller(bearer_token(request.headers.get("Authorization")), request.cookies.get(COOKIE))
        noted = sorted(zip(messages, log, strict=True), key=lambda pair: pair[0].get("channel") == replies.CONNECT)
        answer = Answer([])
        connect: tuple[Message, Request] | None = None
        for message, entry in noted:
            if message.get("channel") == replies.CONNECT:
                connect = (message, entry)
            else:
                self._answer(message, caller, entry, answer)
        answer.set_cookie = caller.set_cookie
        if connect is not None:
            return await self._serve_connect(request, *connect, caller, answer)
        return await self._respond(request, answer, messages[-1], has_events=True)

    def _begin(self, message: Message) -> Request:
        detail = {"client_id": message.get("clientId"), "subscription": message.get("subscription")}
        if message.get("channel") == replies.SUBSCRIBE:
            detail["replay"] = (message.get("ext") or {}).get("replay")
        kept = {name: value for name, value in detail.items() if value is not None}
        return self._org.request_log.begin("cometd", str(message.get("channel")), **kept)

    async def _apply_request_faults(
        self, request: web.Request, messages: list[Message], log: list[Request]
    ) -> web.StreamResponse | None:
        """Apply the faults that replace the whole response, and return it; ``None`` if none applies."""
        for message, entry in zip(messages, log, strict=True):
            if self._take_fault(faults.REVOKE, message) is not None:
                self._org.sessions.revoke(bearer_token(request.headers.get("Authorization")) or "")
            if self._take_fault(faults.DROP, message) is not None:
                entry.outcome = "dropped"
                return close(request)
            if self._take_fault(faults.BLACK_HOLE, message) is not None:
                entry.outcome = "black hole"
                while not _is_gone(request):  # noqa: ASYNC110 - aiohttp has no event for a closed connection
                    await asyncio.sleep(_CONNECTION_CHECK_SECONDS)
                return web.Response()
            http = self._take_fault(faults.HTTP, message)
            if http is not None:
                entry.outcome = str(http["status"])
                return _http_error(http)
        return None

    def _answer(self, message: Message, caller: Caller, entry: Request, answer: Answer) -> None:
        """Add the reply to a message, and after a subscribe the first events if a fault requests them."""
        try:
            self._apply_refusal_fault(message)
            reply = self._with_advice_fault(message, self._bayeux.answer(message, caller))
        except BayeuxError as error:
            entry.outcome = error.failure_reason or error.error
            answer.replies += [*error.before, replies.refusal(message, error)]
            return
        entry.outcome = "OK"
        entry.detail["client_id"] = reply.get("clientId")
        answer.replies.append(reply)
        if self._take_fault(faults.EVENTS_IN_SUBSCRIBE, message) is not None:
            session = self._bayeux.session(message, caller)
            delivery = Delivery(self._org, session, self._org.deliveries.left())
            answer.chunks = delivery.chunks()

    async def _serve_connect(
        self, request: web.Request, message: Message, entry: Request, caller: Caller, answer: Answer
    ) -> web.StreamResponse:
        entry.detail["events"] = 0
        try:
            self._apply_refusal_fault(message)
            served = await self._connects.answer(message, caller, lambda: _is_gone(request))
        except BayeuxError as error:
            entry.outcome = error.failure_reason or error.error
            answer.replies += [*error.before, replies.refusal(message, error)]
            return await self._respond(request, answer, message, has_events=False)
        except ConnectionGoneError:
            entry.outcome = "CANCELLED" if _is_gone(request) else "dropped"
            return close(request)
        answer.chunks, answer.last = served.chunks, self._with_advice_fault(message, served.reply)
        try:
            entry.outcome = "OK"
            return await self._respond(request, answer, message, has_events=served.has_events)
        except ConnectionError:
            entry.outcome = "CANCELLED"
            raise
        finally:
            entry.detail["events"] = answer.sent
            served.done()

    async def _respond(
        self, request: web.Request, answer: Answer, message: Message, *, has_events: bool
    ) -> web.StreamResponse:
        if has_events or message.get("channel") != replies.CONNECT:
            for damage in _DAMAGES:
                parameters = self._take_fault(damage, message)
                if parameters is not None:
                    return await write_damaged(request, answer, damage, parameters)
        return await write(request, answer)

    def _apply_refusal_fault(self, message: Message) -> None:
        """Apply the fault that refuses messages.

        :raises BayeuxError: if the fault applies to this message.
        """
        fault = self._take_fault(faults.FAIL, message)
        if fault is not None:
            reason = fault["failure_reason"] or (None if fault["error"] else replies.TOO_BUSY)
            error = fault["error"] or replies.OVERLOADED.get(str(message.get("channel")), "503::Service unavailable")
            raise BayeuxError(error, advice=fault["advice"], failure_reason=reason)

    def _with_advice_fault(self, message: Message, reply: Message) -> Message:
        fault = self._take_fault(faults.ADVICE, message)
        return reply if fault is None else {**reply, "advice": {**reply.get("advice", {}), **fault["advice"]}}

    def _take_fault(self, name: str, message: Message) -> dict[str, Any] | None:
        """Return the parameters of a fault that applies to a message, ``None`` if there is none."""
        subscription = message.get("subscription")
        names = [subscription] if isinstance(subscription, str) else []
        session = self._org.cometd.get(message.get("clientId"))
        if not names and session is not None:
            names = list(session.subscriptions)
        return self._faults.take(name, str(message.get("channel")), {one.partition("?")[0] for one in names})


def _is_gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def _http_error(parameters: dict[str, Any]) -> web.Response:
    """Return the error of a web server or a proxy: an HTML page for 503, one line for other statuses."""
    status, text = parameters["status"], parameters["text"]
    if text is None and status == 503:
        return web.Response(status=status, text=_HTML.format(status=status), content_type="text/html")
    return web.Response(status=status, text="Internal Server Error" if text is None else str(text))
