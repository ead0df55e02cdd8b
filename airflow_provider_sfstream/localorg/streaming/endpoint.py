"""``POST /cometd/{version}``: the HTTP side of the Streaming API."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from aiohttp import web

from airflow_provider_sfstream.localorg.sessions import bearer_token
from airflow_provider_sfstream.localorg.streaming import replies
from airflow_provider_sfstream.localorg.streaming.bayeux import COOKIE, Bayeux, Caller
from airflow_provider_sfstream.localorg.streaming.connects import ConnectAnswer, ConnectionGoneError, Connects
from airflow_provider_sfstream.localorg.streaming.payloads import to_json
from airflow_provider_sfstream.localorg.streaming.replies import BayeuxError, Message

if TYPE_CHECKING:
    from airflow_provider_sfstream.localorg.org import Org

FIRST_VERSION = 37
LARGEST_BODY = 32_768
"""Bytes of one request."""
_URI_FORMAT = "URI format: '/cometd/66.0'"
_JSON = {"Content-Type": "application/json;charset=UTF-8"}


class RefusedError(Exception):
    """The request is refused as a whole, with an HTTP status and Salesforce's text."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status
        self.error = error


def routes(org: Org) -> list[web.RouteDef]:
    """Return the routes: with or without a version, a slash, and a message type behind it."""
    endpoint = Endpoint(org)
    return [web.route("*", "/cometd{rest:(?:/.*)?}", endpoint.serve)]


class Endpoint:
    """Serves requests for one org."""

    def __init__(self, org: Org) -> None:
        self._org = org
        self._bayeux = Bayeux(org)
        self._connects = Connects(org, self._bayeux)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer all messages of a request; ``/meta/connect`` last, since it may be held."""
        try:
            messages = await _messages(request)
        except RefusedError as error:
            return web.Response(status=error.status, body=to_json([_refused(error)]).encode(), headers=_JSON)
        caller = Caller(bearer_token(request.headers.get("Authorization")), request.cookies.get(COOKIE))
        answers = [self._answer(message, caller) for message in messages if message.get("channel") != replies.CONNECT]
        connects = [message for message in messages if message.get("channel") == replies.CONNECT]
        if not connects:
            return _response(answers, caller)
        return await self._serve_connect(request, connects[-1], caller, answers)

    def _answer(self, message: Message, caller: Caller) -> Message:
        entry = self._org.request_log.begin("cometd", str(message.get("channel")), **_detail(message))
        try:
            answer = self._bayeux.answer(message, caller)
        except BayeuxError as error:
            entry.outcome = error.failure_reason or error.error
            return replies.refusal(message, error)
        entry.outcome = "OK"
        entry.detail["client_id"] = answer.get("clientId")
        return answer

    async def _serve_connect(
        self, request: web.Request, message: Message, caller: Caller, answers: list[Message]
    ) -> web.StreamResponse:
        entry = self._org.request_log.begin("cometd", replies.CONNECT, events=0, **_detail(message))

        def is_gone() -> bool:
            return request.transport is None or request.transport.is_closing()

        try:
            answer = await self._connects.answer(message, caller, is_gone)
        except BayeuxError as error:
            entry.outcome = error.error
            return _response([*answers, replies.refusal(message, error)], caller)
        except ConnectionGoneError:
            entry.outcome = "CANCELLED"
            return web.Response()
        try:
            response = await _stream(request, answers, answer, entry.detail)
            entry.outcome = "OK"
        except ConnectionError:
            entry.outcome = "CANCELLED"
            raise
        finally:
            answer.done()
        return response


async def _stream(
    request: web.Request, answers: list[Message], answer: ConnectAnswer, detail: dict[str, Any]
) -> web.StreamResponse:
    """Write an answer as it is read from the bus: however many events there are, a few hundred are in memory."""
    response = web.StreamResponse(headers=_JSON)
    await response.prepare(request)
    before = "[" + "".join(to_json(one) + "," for one in answers)
    pending = before.encode()
    for chunk in answer.chunks:
        detail["events"] += len(chunk)
        await response.write(pending + b",".join(chunk))
        pending = b","
    await response.write_eof(pending + to_json(answer.reply).encode() + b"]")
    return response


async def _messages(request: web.Request) -> list[Message]:
    _check_version(request.match_info["rest"])
    if request.method != "POST":
        raise RefusedError(405, "405::Method not allowed")
    if (request.content_length or 0) > LARGEST_BODY:
        raise RefusedError(413, "413::Maximum Request Size Exceeded")
    body = await request.content.read(LARGEST_BODY + 1)
    while len(body) <= LARGEST_BODY and (more := await request.content.read(LARGEST_BODY + 1 - len(body))):
        body += more
    if len(body) > LARGEST_BODY:
        raise RefusedError(413, "413::Maximum Request Size Exceeded")
    try:
        document = json.loads(body)
    except ValueError:
        raise RefusedError(400, "400::The request is not JSON") from None
    messages = document if isinstance(document, list) else [document]
    if not messages or not all(isinstance(message, dict) for message in messages):
        raise RefusedError(400, "400::The request is not a list of Bayeux messages")
    return messages


def _check_version(path: str) -> None:
    version = path.strip("/").partition("/")[0]
    match = re.fullmatch(r"([0-9]{1,3})\.0", version)
    if not version:
        raise RefusedError(400, f"400::API version in the URI is mandatory. {_URI_FORMAT}")
    if match is None or int(match[1]) < FIRST_VERSION:
        supported = f"Only API versions '{FIRST_VERSION}.0' and later are supported."
        raise RefusedError(400, f"400::Unsupported API version. {supported} {_URI_FORMAT}")


def _refused(error: RefusedError) -> Message:
    return {"channel": replies.HANDSHAKE, "error": error.error, "successful": False, "advice": replies.ADVICE_NONE}


def _response(answers: list[Message], caller: Caller) -> web.Response:
    response = web.Response(body=to_json(answers).encode(), headers=_JSON)
    if caller.set_cookie is not None:
        response.set_cookie(COOKIE, caller.set_cookie, httponly=True, path="/")
    return response


def _detail(message: Message) -> dict[str, Any]:
    replay = (message.get("ext") or {}).get("replay") if message.get("channel") == replies.SUBSCRIBE else None
    detail = {"client_id": message.get("clientId"), "subscription": message.get("subscription"), "replay": replay}
    return {name: value for name, value in detail.items() if value is not None}
