"""``/admin/entities``: add fields, publish gap events in place of changes, publish overflow events and events for all
records. Not part of Salesforce."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from sfstream_localorg.records.computed_fields import ComputedField
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.fields import Field

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

_ALL_RECORDS_CHANGE_TYPES = ("UPDATE", "GAP_CREATE", "GAP_UPDATE", "GAP_DELETE", "GAP_UNDELETE")

Control = Callable[[web.Request, dict[str, Any]], Awaitable[Any]]


def routes(org: Org) -> list[web.RouteDef]:
    """Return the routes. A request that cannot be carried out changes nothing; its response is 400."""
    controls = _EntityControls(org)
    return [
        web.get("/admin/entities", _json_handler(controls.show)),
        web.put("/admin/entities/{entity}", _json_handler(controls.define)),
        web.post("/admin/entities/{entity}/fields", _json_handler(controls.add_field)),
        web.post("/admin/entities/{entity}/gaps", _json_handler(controls.set_gaps)),
        web.post("/admin/entities/{entity}/overflow", _json_handler(controls.overflow)),
        web.post("/admin/entities/{entity}/all_records", _json_handler(controls.all_records)),
    ]


def _json_handler(control: Control) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        try:
            text = await request.text()
            return web.json_response(await control(request, dict(json.loads(text)) if text else {}))
        except KeyError as error:
            return web.json_response({"error": f"{error.args[0]!r} is missing"}, status=400)
        except (ValueError, TypeError) as error:
            return web.json_response({"error": str(error)}, status=400)

    return handle


class _EntityControls:
    def __init__(self, org: Org) -> None:
        self._org = org

    async def show(self, request: web.Request, body: dict[str, Any]) -> Any:
        """Return the topic, newest schema id, fields and gap percentage of each entity."""
        return {"entities": [self._as_dict(entity) for entity in self._org.sobjects.entities.captured()]}

    async def define(self, request: web.Request, body: dict[str, Any]) -> Any:
        """Create a custom object with ``fields``, or add the missing fields to an existing object."""
        name = request.match_info["entity"]
        self._org.define_object(name, body.get("fields") or [])
        return self._as_dict(self._entity(request))

    async def add_field(self, request: web.Request, body: dict[str, Any]) -> Any:
        """Add a custom field (``{"name": "Colour__c", "type": "Text"}``); later events have a new schema id.

        With ``"externalId": true``, records can be upserted by the field. ``referenceTo`` is the object of a lookup.
        With ``formula``, or with ``summaryOperation`` and its arguments, the field is computed: no event carries it.
        """
        entity, computed = self._entity(request), ComputedField.from_request(body)
        if computed is not None:
            self._org.sobjects.entities.add_computed_field(entity.name, computed)
            return {"schema_id": self._org.schemas.latest(entity.event_name)}
        field = Field.from_request(body)
        return {"schema_id": self._org.sobjects.entities.add_field(entity.name, field)}

    async def set_gaps(self, request: web.Request, body: dict[str, Any]) -> Any:
        """Replace ``percent`` of the entity's later change events with GAP events; 0 stops it.

        ``seed``, a whole number, makes the random choice repeatable, for all entities.
        """
        entity, percent, seed = self._entity(request), body["percent"], body.get("seed")
        if isinstance(percent, bool) or not isinstance(percent, int | float) or not 0 <= percent <= 100:
            raise ValueError(f"percent={percent!r} must be a number from 0 to 100")
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
            raise ValueError(f"seed={seed!r} must be a whole number")
        self._org.sobjects.lose_changes(entity, float(percent), seed)
        return self._as_dict(entity)

    async def overflow(self, request: web.Request, body: dict[str, Any]) -> Any:
        """Publish a GAP_OVERFLOW event."""
        replay_id = self._org.sobjects.overflow(self._entity(request), user_id=self._org.user_id)
        return {"replay_id": replay_id.hex()}

    async def all_records(self, request: web.Request, body: dict[str, Any]) -> Any:
        """Publish one event about all records (``001*``); ``change_type`` is ``UPDATE`` or that of a gap event."""
        change_type = body.get("change_type", "UPDATE")
        if change_type not in _ALL_RECORDS_CHANGE_TYPES:
            raise ValueError(f"change_type={change_type!r} must be one of {', '.join(_ALL_RECORDS_CHANGE_TYPES)}")
        replay_id = self._org.sobjects.all_changed(self._entity(request), change_type, user_id=self._org.user_id)
        return {"replay_id": replay_id.hex()}

    def _entity(self, request: web.Request) -> Entity:
        name = request.match_info["entity"]
        entity = self._org.sobjects.entities.get(name)
        if entity is None or not entity.has_change_events:
            raise ValueError(f"there is no entity {name!r}")
        return entity

    def _as_dict(self, entity: Entity) -> dict[str, Any]:
        return {
            "name": entity.name,
            "topic": entity.topic,
            "schema_id": self._org.schemas.latest(entity.event_name),
            "fields": [{"name": field.name, "type": field.type} for field in entity.fields],
            "gap_percent": self._org.sobjects.gap_percent.get(entity.name, 0.0),
        }
