"""REST API under ``/services/data``: versions, records, collections, queries, bulk jobs and event schemas."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from aiohttp import web

from sfstream_localorg.admin import entities as entity_admin
from sfstream_localorg.bus.allocations import Allocation
from sfstream_localorg.cometd import rest_push
from sfstream_localorg.errors import not_found
from sfstream_localorg.login.oauth import base_url
from sfstream_localorg.rest import async_bulk, bulk_ingest, bulk_query, composite, external_ids, tooling
from sfstream_localorg.rest import collections as rest_collections
from sfstream_localorg.rest import events as rest_events
from sfstream_localorg.rest import query as rest_query
from sfstream_localorg.rest import records as rest_records
from sfstream_localorg.rest.calls import FIRST_VERSION, LAST_VERSION, Answer, Call, route

if TYPE_CHECKING:
    from sfstream_localorg.org import Org


_DEFAULT_LIMITS = {
    "DailyDeliveredPlatformEvents": 50_000,
    "DailyDurableGenericStreamingApiEvents": 50_000,
    "DailyDurableStreamingApiEvents": 50_000,
    "HourlyPublishedPlatformEvents": 50_000,
    "MonthlyPlatformEvents": 1_500_000,
}
"""Limits to show without a quota. They are not enforced."""


def routes(org: Org) -> list[web.RouteDef]:
    """Return the routes of the REST API. The response for an unknown path is Salesforce's 404."""
    job_numbers = itertools.count(1)
    return [
        web.get("/services/data", _versions),
        web.get("/services/data/", _versions),
        route(org, "GET", "", _resources),
        route(org, "GET", "/limits", _limits),
        *rest_events.routes(org),
        *rest_push.routes(org),
        *rest_records.routes(org),
        *external_ids.routes(org),
        *composite.routes(org),
        *rest_collections.routes(org),
        *rest_query.routes(org),
        *bulk_query.routes(org, job_numbers),
        *bulk_ingest.routes(org, job_numbers),
        *async_bulk.routes(org, job_numbers),
        *tooling.routes(org),
        *entity_admin.routes(org),
        web.route("*", "/services/data/{rest:.*}", _not_found),
    ]


async def _versions(request: web.Request) -> web.Response:
    return web.json_response(
        [
            {"label": f"API {number}", "url": f"/services/data/v{number}.0", "version": f"{number}.0"}
            for number in range(FIRST_VERSION, LAST_VERSION + 1)
        ]
    )


async def _resources(call: Call) -> Answer:
    names = ("sobjects", "query", "queryAll", "composite", "event", "jobs", "limits", "tooling")
    identity = f"{base_url(call.org, call.request)}/id/{call.session.org_id}/{call.session.user_id}"
    return 200, {**{name: f"{call.base}/{name}" for name in names}, "identity": identity}


async def _limits(call: Call) -> Answer:
    """Return the counted limits, with the actual numbers of calls, publications and deliveries."""
    counted = {
        "DailyApiRequests": call.org.api_requests,
        "DailyDeliveredPlatformEvents": call.org.deliveries,
        "DailyDurableGenericStreamingApiEvents": call.org.streaming_deliveries["/u/"],
        "DailyDurableStreamingApiEvents": call.org.streaming_deliveries["/topic/"],
        "HourlyPublishedPlatformEvents": call.org.publications,
        "MonthlyPlatformEvents": call.org.monthly_deliveries,
    }
    return 200, {name: _allocation_json(name, allocation) for name, allocation in counted.items()}


def _allocation_json(name: str, allocation: Allocation) -> dict[str, int]:
    left, limit = allocation.left(), allocation.limit()
    most = _DEFAULT_LIMITS[name] if limit is None else limit
    return {"Max": most, "Remaining": max(0, most - allocation.used) if left is None else left}


async def _not_found(request: web.Request) -> web.Response:
    error = not_found()
    return web.json_response([error.as_error()], status=error.status)
