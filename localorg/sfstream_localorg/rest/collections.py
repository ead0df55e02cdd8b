"""sObject collections: up to 200 records in one request and one transaction (``/composite/sobjects``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aiohttp import web

from sfstream_localorg.errors import ApiError
from sfstream_localorg.records.change_events import ChangeType
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.sobjects import Operation, rolled_back
from sfstream_localorg.rest.calls import Answer, Call, record_id, route

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

_MOST_RECORDS = 200


def routes(org: Org) -> list[web.RouteDef]:
    """Return the routes of collections."""
    path = "/composite/sobjects"
    return [route(org, "POST", path, _create), route(org, "PATCH", path, _update), route(org, "DELETE", path, _delete)]


async def _create(call: Call) -> Answer:
    return await _write(call, "CREATE")


async def _update(call: Call) -> Answer:
    return await _write(call, "UPDATE")


async def _write(call: Call, change_type: ChangeType) -> Answer:
    body = await call.body()
    records = body.get("records")
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise ApiError("JSON_PARSER_ERROR", "'records' must be a list of JSON objects")
    operations = [_operation(call, change_type, record) for record in records]
    return _commit(call, operations, all_or_none=body.get("allOrNone") is True)


async def _delete(call: Call) -> Answer:
    query = call.request.query
    operations = [_deletion(call, text) for text in query.get("ids", "").split(",") if text]
    return _commit(call, operations, all_or_none=query.get("allOrNone", "false").lower() == "true")


def _operation(call: Call, change_type: ChangeType, record: dict[str, Any]) -> Operation | ApiError:
    try:
        entity = _entity(call, (record.get("attributes") or {}).get("type"))
        values = {name: value for name, value in record.items() if name.lower() not in ("attributes", "id")}
        if change_type == "CREATE":
            return Operation(change_type, entity, None, values)
        given = next((str(value) for name, value in record.items() if name.lower() == "id"), "")
        if not given:
            raise ApiError("MISSING_ARGUMENT", "Id not specified in an update call")
        return Operation(change_type, entity, record_id(given), values)
    except ApiError as error:
        return error


def _deletion(call: Call, text: str) -> Operation | ApiError:
    try:
        identifier = record_id(text)
    except ApiError as error:
        return error
    entity = call.org.sobjects.entities.of_record(identifier)
    return Operation("DELETE", entity, identifier) if entity else ApiError("INVALID_ID_FIELD", f"invalid id {text}")


def _entity(call: Call, name: object) -> Entity:
    entity = call.org.sobjects.entities.get(name) if isinstance(name, str) else None
    if entity is None:
        raise ApiError("INVALID_TYPE", f"sObject type '{name}' is not supported.")
    return entity


def _commit(call: Call, parts: Sequence[Operation | ApiError], *, all_or_none: bool) -> Answer:
    if not 1 <= len(parts) <= _MOST_RECORDS:
        message = f"record limit reached. cannot submit more than {_MOST_RECORDS} records into this call, nor none"
        raise ApiError("EXCEEDED_ID_LIMIT", message)
    operations = [part for part in parts if isinstance(part, Operation)]
    results: list[str | ApiError]
    if all_or_none and len(operations) < len(parts):
        results = [rolled_back() for _ in operations]
    else:
        results = call.org.sobjects.commit(
            operations, user_id=call.session.user_id, origin=call.origin, all_or_none=all_or_none
        )
    done = iter(results)
    answers = [part if isinstance(part, ApiError) else next(done) for part in parts]
    return 200, [_result(answer) for answer in answers]


def _result(answer: str | ApiError) -> dict[str, Any]:
    return answer.as_result() if isinstance(answer, ApiError) else {"id": answer, "success": True, "errors": []}
