"""ManagedEventSubscription records through the Tooling API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aiohttp import web

from sfstream_localorg.errors import ApiError, not_found
from sfstream_localorg.managed.settings import OBJECT, ManagedSettings, check_full_name
from sfstream_localorg.managed.subscriptions import KEY_PREFIX, ManagedRecord
from sfstream_localorg.records.record_store import StoredRecord
from sfstream_localorg.rest.calls import Answer, Call, route
from sfstream_localorg.rest.tooling_body import body_of
from sfstream_localorg.rest.tooling_query import ToolingObject, tooling_entity

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

SUBSCRIPTION = ToolingObject(
    tooling_entity(
        OBJECT,
        KEY_PREFIX,
        **{"DeveloperName": "Text", "MasterLabel": "Text", "Language": "StaticEnum", "NamespacePrefix": "Text"},
        **{"ManageableState": "StaticEnum", "Version": "Text", "FullName": "Text", "Metadata": "Text"},
        **{"CreatedDate": "CreatedDate", "CreatedById": "EntityId"},
        **{"LastModifiedDate": "DateTime", "LastModifiedById": "EntityId"},
    ),
    first_version=60,
)


def routes(org: Org) -> list[web.RouteDef]:
    """Return the routes of the records."""
    one = f"/tooling/sobjects/{OBJECT}/{{record_id}}"
    return [
        route(org, "POST", f"/tooling/sobjects/{OBJECT}", _create),
        route(org, "GET", one, _get),
        route(org, "PATCH", one, _update),
        route(org, "DELETE", one, _delete),
    ]


def records(org: Org) -> Sequence[StoredRecord]:
    """Return all records in stored form, for queries."""
    return [stored_record(record, org.user_id) for record in org.managed]


async def _create(call: Call) -> Answer:
    SUBSCRIPTION.require(call)
    body = await body_of(call, OBJECT)
    name = check_full_name(body.get("FullName"))
    record = call.org.managed.create(name, settings_of(call.org, body, name, call.version))
    call.org.wake_streams()
    return 201, {"id": record.id, "success": True, "errors": [], "warnings": [], "infos": []}


async def _get(call: Call) -> Answer:
    return 200, SUBSCRIPTION.shown(stored_record(_record(call), call.org.user_id), base=call.base)


async def _update(call: Call) -> Answer:
    record = _record(call)
    body = await body_of(call, OBJECT)
    if body.get("FullName", record.developer_name) != record.developer_name:
        message = "Unable to create/update fields: FullName. The name of a managed event subscription can't change."
        raise ApiError("INVALID_FIELD_FOR_INSERT_UPDATE", message, fields=("FullName",))
    if "Metadata" in body:
        settings = settings_of(call.org, body, record.developer_name, call.version)
        call.org.managed.update(record, settings)
        call.org.wake_streams()
    return 204, None


async def _delete(call: Call) -> Answer:
    call.org.managed.delete(_record(call))
    call.org.wake_streams()
    return 204, None


def settings_of(org: Org, body: dict[str, Any], full_name: str, version: str) -> ManagedSettings:
    """Return the settings in the body of a request.

    :raises ApiError: if Salesforce would refuse them.
    """
    return ManagedSettings.from_metadata(
        body.get("Metadata"),
        full_name=full_name,
        version=version,
        is_topic=lambda name: org.topics.get(name) is not None,
    )


def _record(call: Call) -> ManagedRecord:
    SUBSCRIPTION.require(call)
    record = call.org.managed.get(call.record_id())
    if record is None:
        raise not_found()
    return record


def stored_record(record: ManagedRecord, user_id: str) -> StoredRecord:
    """Return a record in stored form, for queries."""
    created, changed = int(record.created_at * 1000), int(record.changed_at * 1000)
    content = {
        "DeveloperName": record.developer_name,
        "MasterLabel": record.settings.label,
        "Language": "en_US",
        "ManageableState": "unmanaged",
        "Version": record.settings.version,
        "FullName": record.developer_name,
        "Metadata": record.settings.as_metadata(),
        "CreatedDate": created,
        "CreatedById": user_id,
        "LastModifiedDate": changed,
        "LastModifiedById": user_id,
    }
    return StoredRecord(record.id, OBJECT, content, changed)
