"""Bulk API 1 under ``/services/async``, with JSON only.

The request that adds a batch also processes it, 200 records per transaction. The response shows the state ``Queued``;
the first status request shows the final state. Not modelled: CSV, XML and ZIP, which are refused as features that the
org does not have, PK chunking, and relationships to other records by external IDs. Source: "Bulk API 2.0 and Bulk API
Developer Guide", Bulk API.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from aiohttp import web

from sfstream_localorg.errors import ApiError
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.upserts import external_id_column
from sfstream_localorg.rest.async_batches import QUERIES, process, records_of, run_query
from sfstream_localorg.rest.async_jobs import AsyncError, AsyncJob, AsyncJobs, Batch
from sfstream_localorg.rest.bulk_jobs import moment
from sfstream_localorg.rest.bulk_rows import OPERATIONS
from sfstream_localorg.rest.calls import FIRST_VERSION, LAST_VERSION, Call

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

_NAMESPACE = "http://www.force.com/2009/06/asyncapi/dataload"

Endpoint = Callable[[Call], Awaitable[tuple[int, Any]]]


def routes(org: Org, numbers: itertools.count[int]) -> list[web.RouteDef]:
    """Return the routes under ``/services/async``.

    :param numbers: counter for the IDs of jobs.
    """
    bulk = _AsyncBulk(AsyncJobs(numbers))
    job = "/job/{job_id}"
    batch = job + "/batch/{batch_id}"
    table: list[tuple[str, str, Endpoint]] = [
        ("POST", "/job", bulk.create),
        ("GET", job, bulk.get),
        ("POST", job, bulk.change),
        ("POST", job + "/batch", bulk.add_batch),
        ("GET", job + "/batch", bulk.batches),
        ("GET", batch, bulk.get_batch),
        ("GET", batch + "/request", bulk.request),
        ("GET", batch + "/result", bulk.results),
        ("GET", batch + "/result/{result_id}", bulk.result),
    ]
    return [_route(org, *one) for one in table]


def _route(org: Org, method: str, path: str, endpoint: Endpoint) -> web.RouteDef:
    async def handle(request: web.Request) -> web.Response:
        try:
            status, body = await endpoint(_call(org, request))
        except AsyncError as error:
            return _refusal(request, error)
        org.api_requests.use(1)
        return web.json_response(body, status=status)

    return web.route(method, "/services/async/{version}" + path + "{slash:/?}", handle)


def _call(org: Org, request: web.Request) -> Call:
    session = org.sessions.check(request.headers.get("X-SFDC-Session", ""))
    if session is None:
        raise AsyncError("InvalidSessionId", "Invalid session id")
    version = request.match_info["version"]
    number, _, minor = version.partition(".")
    if minor != "0" or not number.isdigit() or not FIRST_VERSION <= int(number) <= LAST_VERSION:
        raise AsyncError("InvalidVersion", f"Api version {version} is not supported")
    return Call(org, request, session, version)


def _refusal(request: web.Request, error: AsyncError) -> web.Response:
    if "xml" not in request.content_type:
        return web.json_response({"exceptionCode": error.code, "exceptionMessage": error.message}, status=400)
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?><error xmlns="{_NAMESPACE}"><exceptionCode>{error.code}'
        f"</exceptionCode><exceptionMessage>{escape(error.message)}</exceptionMessage></error>"
    )
    return web.Response(text=text, status=400, content_type="application/xml")


class _AsyncBulk:
    def __init__(self, jobs: AsyncJobs) -> None:
        self._jobs = jobs

    async def create(self, call: Call) -> tuple[int, Any]:
        body = await _object(call)
        if body.get("contentType", "XML") != "JSON":
            raise _only_json(str(body.get("contentType", "XML")))
        operation = str(body.get("operation"))
        if operation not in (*OPERATIONS, *QUERIES):
            raise AsyncError("InvalidJob", f"Unable to parse Job: operation {operation!r}")
        if operation == "hardDelete" and not call.org.knobs.bulk_hard_delete:
            needed = "special user profile permission, please contact your system administrator"
            raise AsyncError("FeatureNotEnabled", f"hardDelete operation requires {needed}")
        entity = _entity(call, str(body.get("object")), operation)
        job = AsyncJob(
            self._jobs.new_id(),
            operation,
            str(body.get("object")) if entity is None else entity.name,
            entity,
            _external_id(entity, body) if operation == "upsert" else None,
            call.version,
            call.session.user_id,
            moment(),
            "Serial" if body.get("concurrencyMode") in (1, "Serial") else "Parallel",
        )
        self._jobs.add(job)
        return 201, job.as_dict()

    async def get(self, call: Call) -> tuple[int, Any]:
        return 200, self._job(call).as_dict()

    async def change(self, call: Call) -> tuple[int, Any]:
        job, state = self._job(call), (await _object(call)).get("state")
        if state not in ("Closed", "Aborted"):
            raise AsyncError("InvalidJob", f"Unable to parse Job: state {state!r}")
        if job.state != "Open":
            raise AsyncError("InvalidJobState", f"The job is {job.state} already")
        job.state = state
        return 200, job.as_dict()

    async def add_batch(self, call: Call) -> tuple[int, Any]:
        job = self._job(call)
        if job.state != "Open":
            raise AsyncError("InvalidJobState", f"Batches are added to an open job only; it is {job.state}")
        text = await call.request.text()
        batch = Batch(self._jobs.new_batch_id(), job.id, moment(), None)
        if job.operation in QUERIES:
            batch.request = text
            run_query(call, self._jobs, job, batch)
        else:
            batch.request = records_of(text)
            await process(call, job, batch)
        job.batches[batch.id] = batch
        return 201, batch.as_dict()

    async def batches(self, call: Call) -> tuple[int, Any]:
        return 200, {"batchInfo": [batch.as_dict() for batch in self._job(call).batches.values()]}

    async def get_batch(self, call: Call) -> tuple[int, Any]:
        batch = self._batch(call)
        batch.state = batch.outcome
        return 200, batch.as_dict()

    async def request(self, call: Call) -> tuple[int, Any]:
        return 200, self._batch(call).request

    async def results(self, call: Call) -> tuple[int, Any]:
        batch = self._batch(call)
        if batch.state != "Completed":
            raise AsyncError("InvalidBatch", f"Batch not completed: it is {batch.state}")
        return 200, batch.result_ids or batch.results

    async def result(self, call: Call) -> tuple[int, Any]:
        batch, result_id = self._batch(call), call.request.match_info["result_id"]
        if result_id not in batch.result_ids:
            raise AsyncError("InvalidBatch", f"Unable to find result with ID: {result_id}")
        return 200, batch.results[batch.result_ids.index(result_id)]

    def _job(self, call: Call) -> AsyncJob:
        return self._jobs.find(call.request.match_info["job_id"])

    def _batch(self, call: Call) -> Batch:
        return self._jobs.batch(call.request.match_info["job_id"], call.request.match_info["batch_id"])


async def _object(call: Call) -> dict[str, Any]:
    """Parse the JSON object of a job request."""
    if "xml" in call.request.content_type:
        raise _only_json("XML")
    try:
        body = json.loads(await call.request.text())
    except ValueError as error:
        raise AsyncError("InvalidJob", f"Unable to parse Job: {error}") from None
    if not isinstance(body, dict):
        raise AsyncError("InvalidJob", "Unable to parse Job")
    return body


def _only_json(content_type: str) -> AsyncError:
    return AsyncError("FeatureNotEnabled", f"Content type {content_type} is not enabled for this org: use JSON")


def _entity(call: Call, name: str, operation: str) -> Entity | None:
    entity = call.org.sobjects.entities.get(name)
    if operation in QUERIES:
        return entity
    if entity is None:
        raise AsyncError("InvalidJob", f"Unable to find object: {name}")
    if not entity.has_change_events:
        raise AsyncError("InvalidEntity", f"Entity '{entity.name}' is not supported by the Bulk API.")
    return entity


def _external_id(entity: Entity | None, body: dict[str, Any]) -> str:
    name, of = str(body.get("externalIdFieldName") or ""), "" if entity is None else entity.name
    if entity is None or not name:
        raise AsyncError("InvalidJob", f"External ID was blank for {of}. An External ID must be specified for upsert.")
    try:
        return external_id_column(entity, name)
    except ApiError:
        problem = "does not match an External ID, Salesforce Id, or indexed field for"
        raise AsyncError("InvalidJob", f"Field name provided, {name} {problem} {of}") from None
