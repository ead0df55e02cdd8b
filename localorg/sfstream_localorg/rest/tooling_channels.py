"""PlatformEventChannel and PlatformEventChannelMember records through the Tooling API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiohttp import web

from sfstream_localorg.bus.topics import TopicDefinition
from sfstream_localorg.channels.records import (
    CHANNEL_PREFIX,
    MEMBER_PREFIX,
    ChannelRecords,
    MemberRecord,
    entity_of,
    id_of,
    name_of,
    type_of,
)
from sfstream_localorg.channels.settings import channel_of, check_name, member_of
from sfstream_localorg.errors import ApiError, not_found
from sfstream_localorg.records.record_store import StoredRecord
from sfstream_localorg.rest.calls import Answer, Call, route
from sfstream_localorg.rest.tooling_body import body_of
from sfstream_localorg.rest.tooling_query import ToolingObject, tooling_entity

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

_COMMON = {"Language": "StaticEnum", "NamespacePrefix": "Text", "ManageableState": "StaticEnum"}
_COMMON |= {"DeveloperName": "Text", "MasterLabel": "Text", "FullName": "Text", "Metadata": "Text"}
CHANNEL = ToolingObject(
    tooling_entity("PlatformEventChannel", CHANNEL_PREFIX, ChannelType="StaticEnum", **_COMMON), first_version=47
)
MEMBER = ToolingObject(
    tooling_entity(
        "PlatformEventChannelMember",
        MEMBER_PREFIX,
        EventChannel="Text",
        SelectedEntity="Text",
        FilterExpression="Text",
        **_COMMON,
    ),
    first_version=47,
)


def routes(org: Org) -> list[web.RouteDef]:
    """Return the routes of the records."""
    channels, members = (f"/tooling/sobjects/{one.entity.name}" for one in (CHANNEL, MEMBER))
    return [
        route(org, "POST", channels, _create_channel),
        route(org, "GET", f"{channels}/{{record_id}}", _get_channel),
        route(org, "PATCH", f"{channels}/{{record_id}}", _update_channel),
        route(org, "DELETE", f"{channels}/{{record_id}}", _delete_channel),
        route(org, "POST", members, _create_member),
        route(org, "GET", f"{members}/{{record_id}}", _get_member),
        route(org, "PATCH", f"{members}/{{record_id}}", _update_member),
        route(org, "DELETE", f"{members}/{{record_id}}", _delete_member),
    ]


def channels(records: ChannelRecords) -> Sequence[StoredRecord]:
    """Return all channels in stored form, for queries."""
    return [_stored_channel(channel) for channel in records.channels()]


def members(records: ChannelRecords) -> Sequence[StoredRecord]:
    """Return all members in stored form, for queries."""
    return [_stored_member(member) for member in records.members()]


async def _create_channel(call: Call) -> Answer:
    body = await _body(call, CHANNEL)
    channel_type, label = channel_of(body)
    name = check_name(body.get("FullName"), suffix="__chn")
    return _created(id_of(call.org.channels.create_channel(name, channel_type, label)))


async def _get_channel(call: Call) -> Answer:
    return 200, CHANNEL.shown(_stored_channel(_channel(call)), base=call.base)


async def _update_channel(call: Call) -> Answer:
    channel = _channel(call)
    body = await _body(call, CHANNEL)
    _check_same_name(body.get("FullName"), name_of(channel))
    call.org.channels.change_channel(channel, *channel_of(body))
    return 204, None


async def _delete_channel(call: Call) -> Answer:
    call.org.channels.delete_channel(_channel(call))
    call.org.wake_streams()
    return 204, None


async def _create_member(call: Call) -> Answer:
    body = await _body(call, MEMBER)
    settings = member_of(body, call.version)
    member = call.org.channels.create_member(check_name(body.get("FullName")), *settings)
    return _created(member.id)


async def _get_member(call: Call) -> Answer:
    return 200, MEMBER.shown(_stored_member(_member(call)), base=call.base)


async def _update_member(call: Call) -> Answer:
    member = _member(call)
    body = await _body(call, MEMBER)
    _check_same_name(body.get("FullName"), member.selection.developer_name)
    call.org.channels.change_member(member, *member_of(body, call.version))
    call.org.wake_streams()
    return 204, None


async def _delete_member(call: Call) -> Answer:
    call.org.channels.delete_member(_member(call))
    call.org.wake_streams()
    return 204, None


def _created(record_id: str) -> Answer:
    return 201, {"id": record_id, "success": True, "errors": [], "warnings": [], "infos": []}


async def _body(call: Call, kind: ToolingObject) -> dict[str, object]:
    kind.require(call)
    return await body_of(call, kind.entity.name)


def _channel(call: Call) -> TopicDefinition:
    CHANNEL.require(call)
    found = [one for one in call.org.channels.channels() if id_of(one) == call.record_id()]
    if not found:
        raise not_found()
    return found[0]


def _member(call: Call) -> MemberRecord:
    MEMBER.require(call)
    found = [one for one in call.org.channels.members() if one.id == call.record_id()]
    if not found:
        raise not_found()
    return found[0]


def _check_same_name(given: object, name: str) -> None:
    if given not in (None, name):
        message = "Unable to create/update fields: FullName. The name can't change."
        raise ApiError("INVALID_FIELD_FOR_INSERT_UPDATE", message, fields=("FullName",))


def _stored_channel(channel: TopicDefinition) -> StoredRecord:
    label = channel.label or name_of(channel).removesuffix("__chn")
    content = {
        **_common_fields(name_of(channel).removesuffix("__chn"), name_of(channel), label),
        "ChannelType": type_of(channel),
        "Metadata": {"channelType": type_of(channel), "label": label},
    }
    return StoredRecord(id_of(channel), CHANNEL.entity.name, content, 0)


def _stored_member(member: MemberRecord) -> StoredRecord:
    selection = member.selection
    metadata = {
        "enrichedFields": [{"name": name} for name in selection.enriched_fields],
        "eventChannel": name_of(member.channel),
        "filterExpression": selection.filter_expression or None,
        "selectedEntity": entity_of(member),
    }
    content = {
        **_common_fields(selection.developer_name, selection.developer_name, selection.developer_name),
        "EventChannel": id_of(member.channel),
        "SelectedEntity": entity_of(member),
        "FilterExpression": selection.filter_expression or None,
        "Metadata": metadata,
    }
    return StoredRecord(member.id, MEMBER.entity.name, content, 0)


def _common_fields(developer_name: str, full_name: str, label: str) -> dict[str, str]:
    names = {"DeveloperName": developer_name, "FullName": full_name, "MasterLabel": label}
    return {**names, "Language": "en_US", "ManageableState": "unmanaged"}
