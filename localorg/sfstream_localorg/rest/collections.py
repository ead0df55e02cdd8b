"""sObject collections: up to 200 records in one request and one transaction (``/composite/sobjects``).

``/composite/sobjects/{Entity}`` reads up to 2,000 records, ``/composite/sobjects/{Entity}/{Field}`` upserts up to 200.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aiohttp import web

from sfstream_localorg.errors import ApiError
from sfstream_localorg.records.change_events import ChangeType
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.record_values import show
from sfstream_localorg.records.sobjects import Operation, rolled_back
from sfstream_localorg.records.soql import columns_of
from sfstream_localorg.records.upserts import external_id_column, upserts
from sfstream_localorg.rest.calls import Answer, Call, record_id, route
from sfstream_localorg.rest.events import publish_event
from sfstream_localorg.rest.records import attributes

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

_MOST_RECORDS = 200
_MOST_READ = 2_000


def routes(org: Org) -> list[web.RouteDef]:
    """Return the routes of collections."""
    path = "/composite/sobjects"
    return [
        route(org, "POST", path, _create),
        route(org, "PATCH", path, _update),
        route(org, "DELETE", path, _delete),
        route(org, "GET", path + "/{entity}", _read_by_url),
        route(org, "POST", path + "/{entity}", _read_by_body),
        route(org, "PATCH", path + "/{entity}/{field}", _upsert),
    ]


async def _create(call: Call) -> Answer:
    records, _ = await _records(call)
    names = [str((record.get("attributes") or {}).get("type")) for record in records]
    are_events = [call.org.topics.get(f"/event/{name}") is not None for name in names]
    if not any(are_events):
        return await _write(call, "CREATE")
    if not all(are_events):
        raise ApiError("INVALID_TYPE", "Records and platform events in one request are not modelled by the local org.")
    # Each event is published immediately, so ``allOrNone`` does not apply to events.
    return 200, [_publish_result(call, name, record) for name, record in zip(names, records, strict=True)]


def _publish_result(call: Call, name: str, record: dict[str, Any]) -> dict[str, Any]:
    try:
        return publish_event(call, name, record)
    except ApiError as error:
        return error.as_result()


async def _update(call: Call) -> Answer:
    return await _write(call, "UPDATE")


async def _write(call: Call, change_type: ChangeType) -> Answer:
    records, all_or_none = await _records(call)
    operations = [_operation(call, change_type, record) for record in records]
    results = _commit(call, operations, all_or_none=all_or_none)
    return 200, [_result(result) for result in results]


async def _upsert(call: Call) -> Answer:
    entity = call.entity()
    column = external_id_column(entity, call.request.match_info["field"])
    records, all_or_none = await _records(call)
    parts = upserts(call.org.sobjects, entity, column, [_check_type(entity, record) for record in records])
    results = _commit(call, parts, all_or_none=all_or_none)
    created = [isinstance(part, Operation) and part.type == "CREATE" for part in parts]
    return 200, [
        _result(result) | {"created": is_new and isinstance(result, str)}
        for result, is_new in zip(results, created, strict=True)
    ]


async def _records(call: Call) -> tuple[list[dict[str, Any]], bool]:
    """Return the records in a request's body, and ``allOrNone``."""
    body = await call.body()
    records = body.get("records")
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise ApiError("JSON_PARSER_ERROR", "'records' must be a list of JSON objects")
    return records, body.get("allOrNone") is True


async def _read_by_url(call: Call) -> Answer:
    query = call.request.query
    return _read(call, *([text for text in query.get(name, "").split(",") if text] for name in ("ids", "fields")))


async def _read_by_body(call: Call) -> Answer:
    body = await call.body()
    for name in ("ids", "fields"):
        if not isinstance(body.get(name), list) or not all(isinstance(text, str) for text in body[name]):
            raise ApiError("JSON_PARSER_ERROR", f"'{name}' must be a list of texts")
    return _read(call, body["ids"], body["fields"])


def _read(call: Call, ids: Sequence[str], fields: Sequence[str]) -> Answer:
    """Return one entry for each id: the record, or null if the entity has no record with this id."""
    entity = call.entity()
    if not ids or not fields:
        raise ApiError("MISSING_ARGUMENT", "both ids and fields must be specified")
    if len(ids) > _MOST_READ:
        raise ApiError("EXCEEDED_ID_LIMIT", f"record limit reached. cannot read more than {_MOST_READ} records")
    columns = columns_of(entity, ["Id", *(name for name in fields if name.lower() != "id")])
    records = {record.id: record for record in call.org.sobjects.all(entity)}
    found = [records.get(_id_or_none(text) or "") for text in ids]
    return 200, [
        record and {"attributes": attributes(call, entity, record.id), **show(entity, record, columns)}
        for record in found
    ]


def _id_or_none(text: str) -> str | None:
    try:
        return record_id(text)
    except ApiError:
        return None


def _check_type(entity: Entity, record: dict[str, Any]) -> dict[str, Any] | ApiError:
    name = (record.get("attributes") or {}).get("type")
    if str(name).lower() != entity.name.lower():
        return ApiError("INVALID_TYPE", f"the record's type is {name!r}, and the request is about {entity.name}")
    return record


async def _delete(call: Call) -> Answer:
    query = call.request.query
    operations = [_deletion(call, text) for text in query.get("ids", "").split(",") if text]
    results = _commit(call, operations, all_or_none=query.get("allOrNone", "false").lower() == "true")
    return 200, [_result(result) for result in results]


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


def _commit(call: Call, parts: Sequence[Operation | ApiError], *, all_or_none: bool) -> list[str | ApiError]:
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
    return [part if isinstance(part, ApiError) else next(done) for part in parts]


def _result(answer: str | ApiError) -> dict[str, Any]:
    return answer.as_result() if isinstance(answer, ApiError) else {"id": answer, "success": True, "errors": []}
