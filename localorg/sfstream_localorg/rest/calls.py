"""Common parts of REST endpoints under ``/services/data/v{version}``: session, version, body, errors."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import web

from sfstream_localorg.errors import ApiError, not_found
from sfstream_localorg.identifiers import to_18
from sfstream_localorg.login.sessions import Session, bearer_token
from sfstream_localorg.records.entity import Entity

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

FIRST_VERSION = 37
LAST_VERSION = 66
BASE = "/services/data/v{version}"

Answer = tuple[int, Any]
"""HTTP status and JSON body; ``None`` for an empty body."""


@dataclass(frozen=True)
class Call:
    """An authenticated request."""

    org: Org
    request: web.Request
    session: Session
    version: str

    @property
    def base(self) -> str:
        """Base path of the API version."""
        return f"/services/data/v{self.version}"

    @property
    def origin(self) -> str:
        """``changeOrigin`` of the change events that this call causes."""
        return self.origin_of("rest")

    def origin_of(self, api: str) -> str:
        """Return the ``changeOrigin`` for an API; it has the client's name from ``Sforce-Call-Options``, if any."""
        client = re.search(r"client=([^,;\s]+)", self.request.headers.get("Sforce-Call-Options", ""))
        return f"com/salesforce/api/{api}/{self.version}" + (f";client={client[1]}" if client else "")

    def entity(self) -> Entity:
        """Return the entity in the path.

        :raises ApiError: ``NOT_FOUND``.
        """
        entity = self.org.sobjects.entities.get(self.request.match_info["entity"])
        if entity is None:
            raise not_found()
        return entity

    def record_id(self) -> str:
        """Return the 18-character record id in the path.

        :raises ApiError: ``MALFORMED_ID``.
        """
        return record_id(self.request.match_info["record_id"])

    async def body(self) -> dict[str, Any]:
        """Return the JSON object in the request's body.

        :raises ApiError: ``JSON_PARSER_ERROR`` if the body is not a JSON object.
        """
        try:
            body = json.loads(await self.request.text())
        except ValueError as error:
            raise ApiError("JSON_PARSER_ERROR", f"The request body is not JSON: {error}") from None
        if not isinstance(body, dict):
            raise ApiError("JSON_PARSER_ERROR", "The HTTP entity body must be a JSON object")
        return body


Endpoint = Callable[[Call], Awaitable[Answer]]


def record_id(text: str) -> str:
    """Return a record id in its 18-character form.

    :raises ApiError: ``MALFORMED_ID``.
    """
    try:
        return to_18(text)
    except ValueError:
        raise ApiError("MALFORMED_ID", f"malformed id {text}") from None


def route(org: Org, method: str, path: str, endpoint: Endpoint) -> web.RouteDef:
    """Return the route of an endpoint below the API version; a slash at the end of the path is optional."""

    async def answer(call: Call) -> web.Response:
        status, body = await endpoint(call)
        return web.Response(status=status) if body is None else web.json_response(body, status=status)

    return respond(org, method, path, answer)


def respond(org: Org, method: str, path: str, endpoint: Callable[[Call], Awaitable[web.Response]]) -> web.RouteDef:
    """Return the route of an endpoint like :func:`route`, for responses that are not JSON."""

    async def handle(request: web.Request) -> web.Response:
        try:
            response = await endpoint(authenticated_call(org, request))
        except ApiError as error:
            response = web.json_response([error.as_error()], status=error.status)
        org.api_requests.use(1)
        response.headers["Sforce-Limit-Info"] = f"api-usage={org.api_requests.used}/{org.api_requests.limit()}"
        return response

    return web.route(method, BASE + path + "{slash:/?}", handle)


def authenticated_call(org: Org, request: web.Request) -> Call:
    """Authenticate a request.

    :raises ApiError: ``INVALID_SESSION_ID``, or ``NOT_FOUND`` for an unsupported API version.
    """
    session = org.sessions.check(bearer_token(request.headers.get("Authorization")))
    if session is None:
        raise ApiError("INVALID_SESSION_ID", "Session expired or invalid", status=401)
    version = request.match_info["version"]
    match = re.fullmatch(r"([0-9]{2,3})\.0", version)
    if match is None or not FIRST_VERSION <= int(match[1]) <= LAST_VERSION:
        raise not_found()
    return Call(org, request, session, version)
