"""Records by external ID: read, upsert and delete (``/sobjects/{Entity}/{Field}/{value}``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from sfstream_localorg.errors import ApiError, not_found
from sfstream_localorg.records.record_store import StoredRecord
from sfstream_localorg.records.sobjects import Operation
from sfstream_localorg.records.upserts import external_id_column, matching, upserts
from sfstream_localorg.rest.calls import Answer, Call, record_id, route
from sfstream_localorg.rest.records import attributes, record_json

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

_FIRST_VERSION_WITH_CREATED = 46
"""First API version with ``created`` in the response to an upsert."""


def routes(org: Org) -> list[web.RouteDef]:
    """Return the routes of external IDs."""
    one = "/sobjects/{entity}/{field}/{value}"
    return [
        route(org, "GET", one, _get),
        route(org, "PATCH", one, _upsert),
        route(org, "DELETE", one, _delete),
        route(org, "POST", "/sobjects/{entity}/{field:[Ii][Dd]}", _insert),
    ]


async def _get(call: Call) -> Answer:
    found = _matching(call)
    return (
        _multiple_choices(call, found)
        if len(found) > 1
        else (200, record_json(call, call.entity(), _single_record(call, found)))
    )


async def _upsert(call: Call) -> Answer:
    entity, column = call.entity(), _column(call)
    values = await call.body()
    if any(name.lower() == column.lower() for name in values):
        message = f"The {column} field should not be specified in the sobject data."
        raise ApiError("INVALID_FIELD", message, fields=(column,))
    found = _matching(call)
    if len(found) > 1:
        return _multiple_choices(call, found)
    value = call.request.match_info["value"]
    (operation,) = upserts(call.org.sobjects, entity, column, [{**values, column: value}])
    return _write_answer(call, operation)


async def _insert(call: Call) -> Answer:
    """Upsert by ``Id`` without a value: create a record."""
    return _write_answer(call, Operation("CREATE", call.entity(), None, await call.body()))


async def _delete(call: Call) -> Answer:
    found = _matching(call)
    if len(found) > 1:
        return _multiple_choices(call, found)
    operation = Operation("DELETE", call.entity(), _single_record(call, found).id)
    _commit(call, operation)
    return 204, None


def _write_answer(call: Call, operation: Operation | ApiError) -> Answer:
    if isinstance(operation, ApiError):
        raise operation
    is_new = operation.type == "CREATE"
    answer = {"id": _commit(call, operation), "success": True, "errors": []}
    if int(call.version.partition(".")[0]) >= _FIRST_VERSION_WITH_CREATED:
        return (201 if is_new else 200), {**answer, "created": is_new}
    return (201, answer) if is_new else (204, None)


def _commit(call: Call, operation: Operation) -> str:
    (result,) = call.org.sobjects.commit([operation], user_id=call.session.user_id, origin=call.origin)
    if isinstance(result, ApiError):
        raise result
    return result


def _column(call: Call) -> str:
    return external_id_column(call.entity(), call.request.match_info["field"])


def _matching(call: Call) -> list[StoredRecord]:
    entity, column, value = call.entity(), _column(call), call.request.match_info["value"]
    if column == "Id":
        return [call.org.sobjects.get(entity, record_id(value))]
    return matching(call.org.sobjects, entity, column, value)


def _single_record(call: Call, found: list[StoredRecord]) -> StoredRecord:
    if not found:
        raise not_found()
    # Read again, because the search does not return computed fields.
    return call.org.sobjects.get(call.entity(), found[0].id)


def _multiple_choices(call: Call, found: list[StoredRecord]) -> Answer:
    """Return status 300 with the URLs of the records that have the external ID; nothing was changed."""
    return 300, [attributes(call, call.entity(), record.id)["url"] for record in found]
