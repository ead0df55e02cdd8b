"""The Tooling API: ManagedEventSubscription records, and queries of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from sfstream_localorg.errors import ApiError, not_found
from sfstream_localorg.managed.settings import OBJECT, ManagedSettings, check_full_name
from sfstream_localorg.managed.subscriptions import ManagedRecord
from sfstream_localorg.rest.calls import Answer, Call, route
from sfstream_localorg.rest.tooling_query import columns_of, run, shown

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

FIRST_VERSION = 60
"""The first API version that has ManagedEventSubscription."""


def routes(org: Org) -> list[web.RouteDef]:
    """Return the routes under ``tooling``."""
    one = f"/tooling/sobjects/{OBJECT}/{{record_id}}"
    return [
        route(org, "GET", "/tooling/query", _query),
        route(org, "POST", f"/tooling/sobjects/{OBJECT}", _create),
        route(org, "GET", one, _get),
        route(org, "PATCH", one, _update),
        route(org, "DELETE", one, _delete),
    ]


async def _query(call: Call) -> Answer:
    records = list(call.org.managed) if _has_object(call) else None
    return 200, run(call.request.query.get("q", ""), records, base=call.base, user_id=call.org.user_id)


async def _create(call: Call) -> Answer:
    _require_object(call)
    body = await _body(call)
    name = check_full_name(body.get("FullName"))
    record = call.org.managed.create(name, settings_of(call.org, body, name, call.version))
    call.org.wake_streams()
    return 201, {"id": record.id, "success": True, "errors": [], "warnings": [], "infos": []}


async def _get(call: Call) -> Answer:
    record = _record(call)
    return 200, shown(record, columns_of(), base=call.base, user_id=call.org.user_id)


async def _update(call: Call) -> Answer:
    record = _record(call)
    body = await _body(call)
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
    """Return the settings in a request's body.

    :raises ApiError: if Salesforce would refuse them.
    """
    return ManagedSettings.from_metadata(
        body.get("Metadata"),
        full_name=full_name,
        version=version,
        is_topic=lambda name: org.topics.get(name) is not None,
    )


async def _body(call: Call) -> dict[str, Any]:
    body = await call.body()
    if unknown := set(body) - {"FullName", "Metadata", "attributes"}:
        raise ApiError("INVALID_FIELD", f"No such column '{min(unknown)}' on sobject of type {OBJECT}")
    return body


def _record(call: Call) -> ManagedRecord:
    _require_object(call)
    record = call.org.managed.get(call.record_id())
    if record is None:
        raise not_found()
    return record


def _has_object(call: Call) -> bool:
    return int(call.version.partition(".")[0]) >= FIRST_VERSION


def _require_object(call: Call) -> None:
    if not _has_object(call):
        raise not_found()
