"""Tooling API: records and queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from sfstream_localorg.rest import tooling_channels, tooling_managed, tooling_objects
from sfstream_localorg.rest.calls import Answer, Call, route
from sfstream_localorg.rest.query_columns import query_columns
from sfstream_localorg.rest.tooling_channels import CHANNEL, MEMBER
from sfstream_localorg.rest.tooling_managed import SUBSCRIPTION
from sfstream_localorg.rest.tooling_objects import CUSTOM_OBJECT
from sfstream_localorg.rest.tooling_query import answer_query, parsed_query

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

_OBJECTS = (SUBSCRIPTION, CHANNEL, MEMBER, CUSTOM_OBJECT)


def routes(org: Org) -> list[web.RouteDef]:
    """Return the routes under ``tooling``."""
    return [
        route(org, "GET", "/tooling/query", _query),
        *tooling_managed.routes(org),
        *tooling_channels.routes(org),
        *tooling_objects.routes(org),
    ]


async def _query(call: Call) -> Answer:
    objects = [one for one in _OBJECTS if one.is_in(call.version) and call.org.knobs.view_setup]
    records = {
        SUBSCRIPTION.entity.name: lambda: tooling_managed.records(call.org),
        CHANNEL.entity.name: lambda: tooling_channels.channels(call.org.channels),
        MEMBER.entity.name: lambda: tooling_channels.members(call.org.channels),
        CUSTOM_OBJECT.entity.name: lambda: tooling_objects.records(call.org),
    }
    text = call.request.query.get("q", "")
    if call.request.query.get("columns", "").lower() == "true":
        return 200, query_columns(parsed_query(text, objects), own=True)
    return 200, answer_query(text, objects, records, base=call.base)
