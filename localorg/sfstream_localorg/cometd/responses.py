"""Writer of HTTP responses, undamaged or damaged by a fault."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from sfstream_localorg.cometd import faults
from sfstream_localorg.cometd.payloads import to_json
from sfstream_localorg.cometd.replies import Message

HEADERS = {"Content-Type": "application/json;charset=UTF-8"}
COOKIE = "BAYEUX_BROWSER"
_BROKEN = {"json": b'{"data":{"event":{"replayId":', "shape": b'{"data":17,"channel":"/unexpected"}'}


@dataclass
class Answer:
    """Response to a request: replies, then chunks of event messages, then the reply of the ``/meta/connect``.

    ``sent`` counts the events as they are written.
    """

    replies: list[Message]
    chunks: Iterator[list[bytes]] = field(default_factory=lambda: iter(()))
    last: Message | None = None
    set_cookie: str | None = field(default=None, repr=False)
    sent: int = 0

    def parts(self) -> Iterator[bytes]:
        """Yield the parts of the body, a JSON array."""
        head = ",".join(to_json(one) for one in self.replies)
        separator = "," if head else ""
        yield f"[{head}".encode()
        for chunk in self.chunks:
            if not chunk:
                continue
            self.sent += len(chunk)
            yield separator.encode() + b",".join(chunk)
            separator = ","
        yield (separator + to_json(self.last) if self.last is not None else "").encode() + b"]"


async def write(request: web.Request, answer: Answer) -> web.StreamResponse:
    """Write a response chunk by chunk, so that only a few hundred events are in memory."""
    response = _response(web.StreamResponse(headers=HEADERS), answer)
    await response.prepare(request)
    for part in answer.parts():
        await response.write(part)
        await asyncio.sleep(0)  # a fast reader must not block other tasks
    await response.write_eof()
    return response


async def write_damaged(
    request: web.Request, answer: Answer, fault: str, parameters: dict[str, Any]
) -> web.StreamResponse:
    """Write a response that a fault damages. Its events always count as delivered to the session."""
    body = b"".join(_with_broken_message(answer, parameters) if fault == faults.BROKEN_MESSAGE else answer.parts())
    if fault == faults.BROKEN_MESSAGE:
        return _response(web.Response(body=body, headers=HEADERS), answer)
    cut = body[: int(len(body) * parameters["part"])]
    if fault == faults.TRUNCATE:
        return _response(web.Response(body=cut, headers=HEADERS), answer)
    if cut:
        response = _response(web.StreamResponse(headers={**HEADERS, "Content-Length": str(len(body))}), answer)
        await response.prepare(request)
        await response.write(cut)
    return close(request)


def close(request: web.Request) -> web.StreamResponse:
    """Close the connection of a request. The client does not receive the returned response."""
    if request.transport is not None:
        request.transport.close()
    return web.Response()


def _with_broken_message(answer: Answer, parameters: dict[str, Any]) -> Iterator[bytes]:
    """Yield the body with a broken message in place of the middle message of the first chunk."""
    first = next(answer.chunks, [])
    if first:
        first[len(first) // 2] = _BROKEN[parameters["kind"]]
    answer.chunks = iter([first, *answer.chunks])
    yield from answer.parts()


def _response(response: web.StreamResponse, answer: Answer) -> web.StreamResponse:
    if answer.set_cookie is not None:
        response.set_cookie(COOKIE, answer.set_cookie, httponly=True, path="/")
    return response
