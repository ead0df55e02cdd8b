"""The bodies of requests for records of the Tooling API."""

from __future__ import annotations

from typing import Any

from sfstream_localorg.errors import ApiError
from sfstream_localorg.rest.calls import Call


async def body_of(call: Call, name: str) -> dict[str, Any]:
    """Return the JSON object of a request: a record's ``FullName`` and ``Metadata``.

    :param name: of the object.
    :raises ApiError: if it is none, or has anything else.
    """
    body = await call.body()
    if unknown := set(body) - {"FullName", "Metadata", "attributes"}:
        raise ApiError("INVALID_FIELD", f"No such column '{min(unknown)}' on sobject of type {name}")
    return body
