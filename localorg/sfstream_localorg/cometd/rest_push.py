"""``/sobjects/StreamingChannel/{id}/push``: publish to generic channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from sfstream_localorg.cometd.publishing import generic_event
from sfstream_localorg.errors import ApiError, not_found
from sfstream_localorg.rest.calls import Answer, Call, route

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

_PATH = "/sobjects/StreamingChannel/{record_id}/push"
_LONGEST_PAYLOAD = 3000
"""Maximum length of a text payload in characters."""


def routes(org: Org) -> list[web.RouteDef]:
    """Return the routes: push events, and list the online users."""
    return [route(org, "POST", _PATH, _push), route(org, "GET", _PATH, _describe)]


async def _push(call: Call) -> Answer:
    """Publish ``{"pushEvents": [{"payload": ..., "userIds": []}]}``, all or none.

    :raises ApiError: if the channel does not exist, or the body does not have this form.
    """
    channel = _channel(call)
    given = (await call.body()).get("pushEvents")
    if not isinstance(given, list) or not given or not all(isinstance(one, dict) and "payload" in one for one in given):
        raise ApiError("JSON_PARSER_ERROR", "'pushEvents' must be a list of objects with a 'payload'")
    for one in given:
        if isinstance(one["payload"], str) and len(one["payload"]) > _LONGEST_PAYLOAD:
            raise ApiError("INVALID_FIELD", f"The payload exceeds {_LONGEST_PAYLOAD} characters")
    user = call.session.user_id
    reached = [one for one in given if _is_for(one, user)]
    call.org.bus.publish([generic_event(call.org, channel, one["payload"]) for one in reached])
    return 200, [_result(call, channel, one, user) for one in given]


async def _describe(call: Call) -> Answer:
    channel = _channel(call)
    online = [call.session.user_id] if call.org.cometd.listeners(channel) else []
    return 200, {"OnlineUserIds": online, "ChannelName": channel}


def _channel(call: Call) -> str:
    name = call.org.streaming_channels.generic_channel(call.record_id())
    if name is None:
        raise not_found()
    return name


def _is_for(event: dict[str, Any], user: str) -> bool:
    users = event.get("userIds") or []
    return not users or user[:15] in {str(one)[:15] for one in users}


def _result(call: Call, channel: str, event: dict[str, Any], user: str) -> dict[str, Any]:
    """Return the result of one event. As at Salesforce, the count of listeners is -1 for an event without users."""
    users = event.get("userIds") or []
    listeners = call.org.cometd.listeners(channel)
    if not users:
        return {"fanoutCount": -1, "userOnlineStatus": {}}
    online = {str(one): bool(listeners) and str(one)[:15] == user[:15] for one in users}
    return {"fanoutCount": sum(online.values()), "userOnlineStatus": online}
