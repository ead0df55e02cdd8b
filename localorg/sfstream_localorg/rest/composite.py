"""``/composite``: up to 25 independent requests in one.

A later request may use ``@{name.path}`` for a value of the response to an earlier one. ``allOrNone``, which at
Salesforce rolls back all requests if one fails, is refused.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from aiohttp import ClientSession, web

from sfstream_localorg.errors import ApiError
from sfstream_localorg.rest.calls import Answer, Call, route

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

_MOST_REQUESTS = 25
_REFERENCE = re.compile(r"@\{(\w+)((?:\.\w+|\[\d+\])*)\}")


def routes(org: Org) -> list[web.RouteDef]:
    """Return the route of composite requests."""
    return [route(org, "POST", "/composite", _composite)]


async def _composite(call: Call) -> Answer:
    body = await call.body()
    parts = body.get("compositeRequest")
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise ApiError("JSON_PARSER_ERROR", "'compositeRequest' must be a list of JSON objects")
    if not 1 <= len(parts) <= _MOST_REQUESTS:
        raise ApiError("LIMIT_EXCEEDED", f"a composite request has 1 to {_MOST_REQUESTS} requests, not {len(parts)}")
    if body.get("allOrNone") is True:
        raise ApiError("NOT_MODELLED", "allOrNone of a composite request is not modelled by the local org.")
    answers: dict[str, Any] = {}
    responses = []
    headers = {"Authorization": call.request.headers.get("Authorization", "")}
    async with ClientSession(headers=headers) as session:
        for part in parts:
            response = await _answer(call.org.instance_url, session, part, answers)
            answers[str(part.get("referenceId"))] = response["body"]
            responses.append(response)
    return 200, {"compositeResponse": responses}


async def _answer(
    instance_url: str, session: ClientSession, part: dict[str, Any], answers: dict[str, Any]
) -> dict[str, Any]:
    reference = str(part.get("referenceId"))
    try:
        url = _filled(str(part.get("url")), answers)
        body = _filled(json.dumps(part.get("body")), answers)
    except (KeyError, IndexError, TypeError):
        error = ApiError("PROCESSING_HALTED", "Invalid reference specified. No value found for a reference.")
        return {"body": [error.as_error()], "httpHeaders": {}, "httpStatusCode": 400, "referenceId": reference}
    sent = None if part.get("body") is None else json.loads(body)
    async with session.request(str(part.get("method")), f"{instance_url}{url}", json=sent) as response:
        text = await response.text()
        answer = json.loads(text) if text else None
        made = answer.get("id") if response.status == 201 and isinstance(answer, dict) else None
        headers = {"Location": f"{url}/{made}"} if made else {}
        return {"body": answer, "httpHeaders": headers, "httpStatusCode": response.status, "referenceId": reference}


def _filled(text: str, answers: dict[str, Any]) -> str:
    """Replace references like ``@{order.records[0].Id}`` with values of earlier responses."""

    def value(found: re.Match[str]) -> str:
        at = answers[found[1]]
        for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", found[2]):
            at = at[int(index)] if index else at[name]
        return str(at)

    return _REFERENCE.sub(value, text)
