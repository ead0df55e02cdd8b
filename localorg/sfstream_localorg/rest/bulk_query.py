"""Bulk API 2.0 query jobs, with results in pages of CSV.

The result of a job is computed when the job is created. Its state is ``UploadComplete`` at first, ``InProgress`` in the
first status response and ``JobComplete`` from the second on, so that clients have to wait as at Salesforce. Source:
"Query Jobs" of the Bulk API 2.0 guide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import web

from sfstream_localorg.errors import ApiError
from sfstream_localorg.records.fields import COMPOUND_TYPES
from sfstream_localorg.records.soql import Query
from sfstream_localorg.rest.bulk_jobs import Job, Jobs, csv_format, moment, one_of
from sfstream_localorg.rest.calls import Answer, Call, respond, route
from sfstream_localorg.rest.query_results import QueryResult, query_result

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

FIRST_VERSION = 47
_PAGE = 50_000


@dataclass
class _QueryJob(Job):
    result: QueryResult

    def as_dict(self) -> dict[str, Any]:
        description = super().as_dict()
        if self.state == "JobComplete":
            processed = len(self.result.records)
            description |= {"jobType": "V2Query", "numberRecordsProcessed": processed, "retries": 0}
        return description

    def page(self, start: int, end: int) -> str:
        """Return a range of records as CSV."""
        fields = self.result.query.fields
        return self.format.write(
            self.result.query.columns,
            (
                [field.shown(record, self.result.parents) for field in fields]
                for record in self.result.records[start:end]
            ),
        )


def routes(org: Org, numbers: Iterator[int]) -> list[web.RouteDef]:
    """Return the routes under ``jobs/query``.

    :param numbers: counter for the ids of jobs.
    """
    jobs = _QueryJobs(numbers)
    one = "/jobs/query/{job_id}"
    return [
        route(org, "POST", "/jobs/query", jobs.create),
        route(org, "GET", "/jobs/query", jobs.jobs.all),
        respond(org, "GET", one + "/results", jobs.results),
        route(org, "GET", one, jobs.get),
        route(org, "PATCH", one, jobs.abort),
        route(org, "DELETE", one, jobs.delete),
    ]


class _QueryJobs:
    def __init__(self, numbers: Iterator[int]) -> None:
        self.jobs: Jobs[_QueryJob] = Jobs(numbers, FIRST_VERSION)

    async def create(self, call: Call) -> Answer:
        self.jobs.check_version(call)
        body = await call.body()
        operation = one_of(body, "operation", ("query", "queryAll"), None)
        layout = csv_format(body)
        text = str(body.get("query") or "")
        result = query_result(call.org, text, include_deleted=operation == "queryAll")
        _check(result.query)
        job = _QueryJob(
            self.jobs.new_id(),
            operation,
            result.query.entity.name,
            layout,
            call.version,
            call.session.user_id,
            moment(),
            "UploadComplete",
            result,
        )
        self.jobs.keep(job)
        return 200, job.as_dict()

    async def get(self, call: Call) -> Answer:
        job = self.jobs.find(call)
        job.state = {"UploadComplete": "InProgress", "InProgress": "JobComplete"}.get(job.state, job.state)
        return 200, job.as_dict()

    async def abort(self, call: Call) -> Answer:
        job = self.jobs.find(call)
        one_of(await call.body(), "state", ("Aborted",), None)
        if job.state == "JobComplete":
            raise ApiError("INVALIDJOBSTATE", "Aborting already Completed Job not allowed")
        job.state = "Aborted"
        return 200, job.as_dict()

    async def delete(self, call: Call) -> Answer:
        return self.jobs.forget(self.jobs.find(call), ("JobComplete", "Aborted", "Failed"))

    async def results(self, call: Call) -> web.Response:
        """Return one page of a job's results.

        :raises ApiError: if the job does not exist or has no results yet, or the locator is invalid.
        """
        job = self.jobs.find(call)
        if job.state != "JobComplete":
            raise ApiError("INVALIDJOBSTATE", "The job has no results yet, or none at all")
        start, total = _number(call.request.query.get("locator", "0"), "locator"), len(job.result.records)
        end = min(start + _number(call.request.query.get("maxRecords", str(_PAGE)), "maxRecords"), total)
        headers = {
            "Sforce-NumberOfRecords": str(max(end - start, 0)),
            "Sforce-Locator": str(end) if end < total else "null",
        }
        return web.Response(text=job.page(start, end), content_type="text/csv", charset="UTF-8", headers=headers)


def _check(query: Query) -> None:
    """Refuse queries that are not supported by query jobs: aggregates, compound fields and ``OFFSET``."""
    compound = [field.name for field in query.fields if field.kind in COMPOUND_TYPES]
    if not query.fields or compound or query.offset:
        problem = f"Selecting compound data not supported in Bulk Query: {compound[0]}" if compound else "Not supported"
        raise ApiError("API_ERROR", problem)


def _number(text: str, name: str) -> int:
    if not text.isdigit():
        raise ApiError("INVALID_QUERY_LOCATOR" if name == "locator" else "API_ERROR", f"invalid {name}: {text}")
    return int(text)
