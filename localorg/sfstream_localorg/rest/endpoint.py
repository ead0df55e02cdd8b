"""The REST API under ``/services/data``: versions, records, collections, queries, bulk jobs and event schemas."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from aiohttp import web

from sfstream_localorg.admin import entities as entity_admin
from sfstream_localorg.cometd import rest_push
from sfstream_localorg.errors import not_found
from sfstream_localorg.rest import bulk_ingest, bulk_query, external_ids, tooling
from sfstream_localorg.rest import collections as rest_collections
from sfstream_localorg.rest import events as rest_events
from sfstream_localorg.rest import query as rest_query
from sfstream_localorg.rest import records as rest_records
from sfstream_localorg.rest.calls import FIRST_VERSION, LAST_VERSION, Answer, Call, route

if TYPE_CHECKING:
    from sfstream_localorg.org import Org


def routes(org: Org) -> list[web.RouteDef]:
    """Return the routes of the REST API; what it does not have answers 404 in Salesforce's form."""
    job_numbers = itertools.count(1)
    return [
        web.get("/services/data", _versions),
        web.get("/services/data/", _versions),
        route(org, "GET", "", _resources),
        *rest_events.routes(org),
        *rest_push.routes(org),
        *rest_records.routes(org),
        *external_ids.routes(org),
        *rest_collections.routes(org),
        *rest_query.routes(org),
        *bulk_query.routes(org, job_numbers),
        *bulk_ingest.routes(org, job_numbers),
        *tooling.routes(org),
        *entity_admin.routes(org),
        web.route("*", "/services/data/{rest:.*}", _nothing),
    ]


async def _versions(request: web.Request) -> web.Response:
    return web.json_response(
        [
            {"label": f"API {number}", "url": f"/services/data/v{number}.0", "version": f"{number}.0"}
            for number in range(FIRST_VERSION, LAST_VERSION + 1)
        ]
    )


async def _resources(call: Call) -> Answer:
    return 200, {
        name: f"{call.base}/{name}"
        for name in ("sobjects", "query", "queryAll", "composite", "event", "jobs", "tooling")
    }


async def _nothing(request: web.Request) -> web.Response:
    error = not_found()
    return web.json_response([error.as_error()], status=error.status)
