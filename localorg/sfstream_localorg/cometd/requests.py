"""Read a CometD request: its version, size and Bayeux messages."""

from __future__ import annotations

import json
import re

from aiohttp import web

from sfstream_localorg.cometd import replies
from sfstream_localorg.cometd.replies import Message

FIRST_VERSION = 37
LARGEST_BODY = 32_768
"""Maximum size of a request in bytes."""
_URI_FORMAT = "URI format: '/cometd/66.0'"


class RefusedError(Exception):
    """Refusal of a whole request, with an HTTP status and Salesforce's text."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status
        self.error = error

    def as_message(self) -> Message:
        """Return the error as a Bayeux message."""
        return {
            "channel": replies.HANDSHAKE,
            "error": self.error,
            "successful": False,
            "advice": dict(replies.ADVICE_NONE),
        }


async def read_messages(request: web.Request) -> list[Message]:
    """Return the messages of a request; the body is a JSON array of messages, or one message.

    :raises RefusedError: for a wrong version or method, or a body that is too large or not a list of messages.
    """
    _check_version(request.match_info["rest"])
    if request.method != "POST":
        raise RefusedError(405, "405::Method not allowed")
    try:
        document = json.loads(await _body(request))
    except ValueError:
        raise RefusedError(400, "400::The request is not JSON") from None
    messages = document if isinstance(document, list) else [document]
    if not messages or not all(isinstance(message, dict) for message in messages):
        raise RefusedError(400, "400::The request is not a list of Bayeux messages")
    if any(not isinstance(message.get(key) or {}, dict) for message in messages for key in ("ext", "advice")):
        raise RefusedError(400, "400::The ext or advice field of a Bayeux message is not an object")
    return messages


async def _body(request: web.Request) -> bytes:
    body = b""
    if (request.content_length or 0) <= LARGEST_BODY:
        while len(body) <= LARGEST_BODY and (more := await request.content.read(LARGEST_BODY + 1 - len(body))):
            body += more
        if len(body) <= LARGEST_BODY:
            return body
    raise RefusedError(413, "413::Maximum Request Size Exceeded")


def _check_version(path: str) -> None:
    version = path.strip("/").partition("/")[0]
    match = re.fullmatch(r"([0-9]{1,3})\.0", version)
    if not version:
        raise RefusedError(400, f"400::API version in the URI is mandatory. {_URI_FORMAT}")
    if match is None or int(match[1]) < FIRST_VERSION:
        supported = f"Only API versions '{FIRST_VERSION}.0' and later are supported."
        raise RefusedError(400, f"400::Unsupported API version. {supported} {_URI_FORMAT}")
