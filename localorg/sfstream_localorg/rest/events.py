"""Event schemas over REST, and publishing of platform events through the endpoints of records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aiohttp import web

from sfstream_localorg.errors import ApiError, not_found
from sfstream_localorg.identifiers import derived
from sfstream_localorg.rest.calls import Answer, Call, route

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

_SYSTEM_FIELDS = frozenset({"CreatedDate", "CreatedById"})
_TEXT_IN_JSON = ("DateTime", "DateOnly", "TimeOnly")


def routes(org: Org) -> list[web.RouteDef]:
    """Return the routes of event schemas."""
    return [
        route(org, "GET", "/sobjects/{entity}/eventSchema", _latest_schema),
        route(org, "GET", "/event/eventSchema/{schema_id}", _schema),
    ]


def is_platform_event(call: Call) -> bool:
    """Return whether the path names a platform event instead of an entity."""
    return call.org.topics.get(f"/event/{call.request.match_info['entity']}") is not None


async def publish(call: Call) -> Answer:
    """Publish the body as one platform event. The message of the response is the event's UUID, as at Salesforce.

    :raises ApiError: for the reasons of :func:`publish_event`.
    """
    return 201, publish_event(call, call.request.match_info["entity"], await call.body())


def publish_event(call: Call, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Publish one platform event; return the response for it.

    :raises ApiError: if a field is unknown or a system field, a value has the wrong type, the event is too large, or
        the hourly allocation is used up. Nothing was published.
    """
    topic = call.org.topics.get(f"/event/{name}")
    if topic is None or not topic.can_publish:
        raise not_found()
    _check_names(name, values, call.org.schemas.latest(name), call)
    try:
        event = call.org.platform_event(topic, {k: v for k, v in values.items() if k != "attributes"})
    except ValueError as error:
        raise ApiError("JSON_PARSER_ERROR", f"Cannot deserialize the event: {error}") from None
    largest = call.org.knobs.event_bytes
    if len(event.payload) > largest:
        raise ApiError("LIMIT_EXCEEDED", f"The event message size exceeds the maximum of {largest} bytes.")
    if call.org.publications.left() == 0:
        raise ApiError("LIMIT_EXCEEDED", "You have exceeded the event publishing limit for your org.", status=403)
    call.org.publications.use(1)
    call.org.bus.publish([event])
    event_id = event.event_id or ""
    enqueued = {"statusCode": "OPERATION_ENQUEUED", "message": event_id, "fields": []}
    return {"id": derived("e00", event_id), "success": True, "errors": [enqueued]}


def _check_names(name: str, values: Mapping[str, Any], schema_id: str | None, call: Call) -> None:
    known = {field["name"] for field in call.org.schemas.parsed(schema_id or "")["fields"]} | {"attributes"}
    for field in values:
        if field not in known:
            raise ApiError("INVALID_FIELD", f"No such column '{field}' on sobject of type {name}")
        if field in _SYSTEM_FIELDS:
            message = f"Unable to create/update fields: {field}."
            raise ApiError("INVALID_FIELD_FOR_INSERT_UPDATE", message, fields=(field,))


async def _latest_schema(call: Call) -> Answer:
    return _schema_answer(call, call.org.schemas.latest(call.request.match_info["entity"]))


async def _schema(call: Call) -> Answer:
    return _schema_answer(call, call.request.match_info["schema_id"])


def _schema_answer(call: Call, schema_id: str | None) -> Answer:
    text = call.org.schemas.get(schema_id) if schema_id else None
    if text is None:
        raise not_found()
    schema = json.loads(text)
    payload_format = call.request.query.get("payloadFormat", "EXPANDED").upper()
    if payload_format == "COMPACT":
        return 200, schema
    if payload_format == "EXPANDED":
        return 200, expanded(schema)
    raise ApiError("INVALID_QUERY_PARAM", f"payloadFormat must be EXPANDED or COMPACT, not {payload_format}")


def expanded(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of the Streaming API's message: the payload in its envelope, with dates as text."""
    payload = {
        "type": "record",
        "name": "Payload",
        "doc": "",
        "fields": [_json_field(field) for field in schema["fields"]],
    }
    event = {"type": "record", "name": "Event", "fields": [{"name": "replayId", "type": "long"}]}
    data = [
        {"name": "schema", "type": "string"},
        {"name": "payload", "type": payload},
        {"name": "event", "type": event},
    ]
    return {
        "type": "record",
        "name": schema["name"],
        "namespace": schema["namespace"],
        "fields": [
            {"name": "data", "type": {"type": "record", "name": "Data", "namespace": "", "fields": data}},
            {"name": "channel", "type": "string"},
        ],
        "uuid": schema["uuid"],
    }


def _json_field(field: Mapping[str, Any]) -> dict[str, Any]:
    if not any(kind in field.get("doc", "").split(":") for kind in _TEXT_IN_JSON):
        return dict(field)
    nullable = isinstance(field["type"], list)
    return {**field, "type": ["null", "string"] if nullable else "string"}
