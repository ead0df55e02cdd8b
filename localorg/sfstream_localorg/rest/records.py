"""sObject endpoints of single records, and describe.

``POST …/sobjects/{Entity}/{id}/undelete`` exists in the local org only: Salesforce undeletes over SOAP and Apex.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from sfstream_localorg.errors import ApiError, not_found
from sfstream_localorg.records.change_events import ChangeType
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.fields import FIELD_TYPES
from sfstream_localorg.records.record_store import StoredRecord
from sfstream_localorg.records.record_values import READ_ONLY, SYSTEM_COLUMNS, readable, show
from sfstream_localorg.records.references import references
from sfstream_localorg.records.sobjects import Operation
from sfstream_localorg.records.soql import columns_of
from sfstream_localorg.rest.calls import Answer, Call, route
from sfstream_localorg.rest.event_describe import event_fields, event_names, event_summary
from sfstream_localorg.rest.events import is_platform_event, publish
from sfstream_localorg.rest.own_records import OWN_ENTITIES, own_record

if TYPE_CHECKING:
    from sfstream_localorg.org import Org


def routes(org: Org) -> list[web.RouteDef]:
    """Return the routes under ``sobjects``."""
    one = "/sobjects/{entity}/{record_id}"
    return [
        route(org, "GET", "/sobjects", _describe_global),
        route(org, "GET", "/sobjects/{entity}/describe", _describe),
        route(org, "GET", "/sobjects/{entity}", _basic_describe),
        route(org, "GET", "/sobjects/{entity}/{what:updated|deleted}", _not_modelled),
        route(org, "GET", "/tooling/sobjects/{entity}/describe", _not_modelled),
        route(org, "POST", "/sobjects/{entity}", _create),
        route(org, "POST", one + "/undelete", _undelete),
        route(org, "GET", one, _get),
        route(org, "PATCH", one, _update),
        route(org, "DELETE", one, _delete),
    ]


async def _create(call: Call) -> Answer:
    if is_platform_event(call):
        return await publish(call)
    return 201, await _change(call, "CREATE")


async def _update(call: Call) -> Answer:
    await _change(call, "UPDATE", call.record_id())
    return 204, None


async def _delete(call: Call) -> Answer:
    await _change(call, "DELETE", call.record_id())
    return 204, None


async def _undelete(call: Call) -> Answer:
    return 200, await _change(call, "UNDELETE", call.record_id())


async def _change(call: Call, change_type: ChangeType, record_id: str | None = None) -> dict[str, Any]:
    entity = call.entity()
    values = await call.body() if change_type in ("CREATE", "UPDATE") else {}
    operation = Operation(change_type, entity, record_id, values)
    (result,) = call.org.sobjects.commit([operation], user_id=call.session.user_id, origin=call.origin)
    if isinstance(result, ApiError):
        raise result
    return {"id": result, "success": True, "errors": []}


async def _get(call: Call) -> Answer:
    entity = _readable_entity(call)
    if entity.name.lower() not in OWN_ENTITIES:
        return 200, record_json(call, entity, call.org.sobjects.get(entity, call.record_id()))
    record = own_record(call.org, entity)
    if record.id != call.record_id():
        raise not_found()
    return 200, record_json(call, entity, record)


def _readable_entity(call: Call) -> Entity:
    return OWN_ENTITIES.get(call.request.match_info["entity"].lower()) or call.entity()


def record_json(call: Call, entity: Entity, record: StoredRecord) -> dict[str, Any]:
    """Return a record in the REST form, with the columns in the request's ``fields``, or with all columns.

    :raises ApiError: ``INVALID_FIELD``.
    """
    wanted = [name for name in call.request.query.get("fields", "").split(",") if name] or ["FIELDS(ALL)"]
    columns = columns_of(entity, wanted)
    return {"attributes": attributes(call, entity, record.id), **show(entity, record, columns)}


def attributes(call: Call, entity: Entity, record_id: str) -> dict[str, str]:
    """Return the ``attributes`` of a record in REST: its type and URL."""
    return {"type": entity.name, "url": f"{call.base}/sobjects/{entity.name}/{record_id}"}


async def _describe_global(call: Call) -> Answer:
    entities = [_summary(call, entity) for entity in (*call.org.sobjects.entities, *OWN_ENTITIES.values())]
    events = [event_summary(call, name) for name in event_names(call)]
    return 200, {"encoding": "UTF-8", "maxBatchSize": 200, "sobjects": [*entities, *events]}


async def _basic_describe(call: Call) -> Answer:
    return 200, {"objectDescribe": _summary(call, _readable_entity(call)), "recentItems": []}


async def _describe(call: Call) -> Answer:
    event = call.request.match_info["entity"]
    if event in event_names(call):
        return 200, {**event_summary(call, event), "fields": event_fields(call, event)}
    entity = _readable_entity(call)
    fields = [_field(entity, name, kind) for name, kind in readable(entity).items()]
    return 200, {**_summary(call, entity), "fields": fields}


def _summary(call: Call, entity: Entity) -> dict[str, Any]:
    path = f"{call.base}/sobjects/{entity.name}"
    is_written = entity.name.lower() not in OWN_ENTITIES
    return {
        "name": entity.name,
        "label": entity.name.removesuffix("__c"),
        "keyPrefix": entity.key_prefix,
        "custom": entity.name.endswith("__c"),
        **dict.fromkeys(("queryable", "retrieveable"), True),
        **dict.fromkeys(("createable", "updateable", "deletable", "undeletable"), is_written),
        "urls": {"sobject": path, "describe": f"{path}/describe", "rowTemplate": f"{path}/{{ID}}"},
    }


def _field(entity: Entity, name: str, kind: str) -> dict[str, Any]:
    writable = name in entity.columns and name not in READ_ONLY and entity.name.lower() not in OWN_ENTITIES
    required = name in entity.required or name in SYSTEM_COLUMNS or kind == "Boolean"
    return {
        "name": name,
        "label": name.removesuffix("__c").replace("_", " "),
        "type": "id" if name == "Id" else _describe_type(kind),
        "custom": name.endswith(("__c", "__pc", "__s")),
        "createable": writable,
        "updateable": writable,
        "nillable": not required,
        "compoundFieldName": _compound_name(entity, name),
        "length": 18 if name == "Id" else _length(kind),
        "referenceTo": [one.target for one in references(entity).values() if one.column == name],
        "relationshipName": next((one.relationship for one in references(entity).values() if one.column == name), None),
        "picklistValues": [],  # picklists have no defined values here and accept any text
        "externalId": bool(name in entity.columns and _is_external_id(entity, name)),
        "calculated": name in entity.computed,
        "calculatedFormula": entity.computed[name].formula if name in entity.computed else None,
    }


async def _not_modelled(call: Call) -> Answer:
    what = f"{call.request.path.removeprefix(call.base)} is not modelled by the local org."
    raise ApiError("NOT_MODELLED", f"{what} Query by SystemModstamp, with queryAll for what was deleted.", status=501)


def _length(kind: str) -> int:
    """Return the maximum length of a field in characters, 0 if it is not a text."""
    if kind not in FIELD_TYPES or FIELD_TYPES[kind].avro != "string":
        return 0
    return {"EntityId": 18, "Phone": 40, "Email": 80}.get(kind, 32_768 if kind.endswith("Clob") else 255)


def _describe_type(kind: str) -> str:
    if kind in FIELD_TYPES:
        return FIELD_TYPES[kind].describe
    return kind.lower() if kind in ("Address", "Location") else "string"


def _is_external_id(entity: Entity, name: str) -> bool:
    return any(field.name == name and field.external_id for field in entity.fields)


def _compound_name(entity: Entity, name: str) -> str | None:
    column = entity.columns.get(name)
    return entity.fields[column.position - 1].name if column is not None and column.part is not None else None
