"""Request bodies of the Tooling API."""

from __future__ import annotations

from typing import Any

from sfstream_localorg.errors import ApiError
from sfstream_localorg.rest.calls import Call


async def body_of(call: Call, name: str) -> dict[str, Any]:
    """Return the JSON object of a request, with a record's ``FullName`` and ``Metadata``.

    :param name: name of the object type, for the error message.
    :raises ApiError: if the body is not a JSON object, or has other elements.
    """
    body = await call.body()
    if unknown := set(body) - {"FullName", "Metadata", "attributes"}:
        raise ApiError("INVALID_FIELD", f"No such column '{min(unknown)}' on sobject of type {name}")
    return body
