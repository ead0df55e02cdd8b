"""Bulk API 2.0 query jobs, whose results are pages of CSV.

A job sees the records as they were when it was made. It is ``UploadComplete`` when it is made, ``InProgress`` at the
first look and ``JobComplete`` from the second on, so that clients have to wait as they do at Salesforce. Jobs are kept
in memory. Source: "Query Jobs" of the Bulk API 2.0 guide.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aiohttp import web

from sfstream_localorg.errors import ApiError, not_found
from sfstream_localorg.identifiers import numbered
from sfstream_localorg.records.fields import COMPOUND_TYPES
from sfstream_localorg.records.soql import Query
from sfstream_localorg.rest.calls import BASE, Answer, Call, call_of, route
from sfstream_localorg.rest.query_results import QueryResult, query_result

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

FIRST_VERSION = 47
_MOST_JOBS = 100
_PAGE = 50_000
_DELIMITERS = {"COMMA": ",", "PIPE": "|", "SEMICOLON": ";", "TAB": "\t", "CARET": "^", "BACKQUOTE": "`"}
_LINE_ENDINGS = {"LF": "\n", "CRLF": "\r\n"}


@dataclass
class _Job:
    id: str
    operation: str
    result: QueryResult
    delimiter: str
    line_ending: str
    version: str
    user_id: str
    created: str
    state: str = "UploadComplete"

    def as_dict(self) -> dict[str, Any]:
        """Return the job as Salesforce describes it."""
        description = {
            "id": self.id,
            "operation": self.operation,
            "object": self.result.query.entity.name,
            "createdById": self.user_id,
            "createdDate": self.created,
            "systemModstamp": self.created,
            "state": self.state,
            "concurrencyMode": "Parallel",
            "contentType": "CSV",
            "apiVersion": float(self.version),
            "lineEnding": self.line_ending,
            "columnDelimiter": self.delimiter,
        }
        if self.state == "JobComplete":
            description |= {"jobType": "V2Query", "numberRecordsProcessed": len(self.result.records), "retries": 0}
        return description

    def page(self, start: int, end: int) -> str:
        """Return records as CSV: a line of names, every value quoted, an empty one for null."""
        text = io.StringIO()
        writer = csv.writer(
            text,
            delimiter=_DELIMITERS[self.delimiter],
            lineterminator=_LINE_ENDINGS[self.line_ending],
            quoting=csv.QUOTE_ALL,
        )
        writer.writerow(self.result.query.columns)
        for record in self.result.records[start:end]:
            writer.writerow([_text(field.shown(record, self.result.parents)) for field in self.result.query.fields])
        return text.getvalue()


def routes(org: Org) -> list[web.RouteDef]:
    """Return the routes under ``jobs/query``."""
    jobs = _Jobs()
    one = "/jobs/query/{job_id}"

    async def results(request: web.Request) -> web.Response:
        try:
            return jobs.results(call_of(org, request))
        except ApiError as error:
            return web.json_response([error.as_error()], status=error.status)

    return [
        route(org, "POST", "/jobs/query", jobs.create),
        route(org, "GET", "/jobs/query", jobs.all),
        web.get(f"{BASE}{one}/results{{slash:/?}}", results),
        route(org, "GET", one, jobs.get),
        route(org, "PATCH", one, jobs.abort),
        route(org, "DELETE", one, jobs.delete),
    ]


class _Jobs:
    def __init__(self) -> None:
        self._jobs: OrderedDict[str, _Job] = OrderedDict()
        self._numbers = itertools.count(1)

    async def create(self, call: Call) -> Answer:
        body = await call.body()
        operation = _one_of(body, "operation", ("query", "queryAll"), None)
        _one_of(body, "contentType", ("CSV",), "CSV")
        text = str(body.get("query") or "")
        result = query_result(call.org, text, include_deleted=operation == "queryAll")
        _check(result.query)
        job = _Job(
            numbered("750", next(self._numbers)),
            operation,
            result,
            _one_of(body, "columnDelimiter", tuple(_DELIMITERS), "COMMA"),
            _one_of(body, "lineEnding", tuple(_LINE_ENDINGS), "LF"),
            call.version,
            call.session.user_id,
            f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.000+0000}",
        )
        self._jobs[job.id] = job
        if len(self._jobs) > _MOST_JOBS:
            self._jobs.popitem(last=False)
        return 200, job.as_dict()

    async def all(self, call: Call) -> Answer:
        return 200, {"done": True, "records": [job.as_dict() for job in self._jobs.values()], "nextRecordsUrl": None}

    async def get(self, call: Call) -> Answer:
        job = self._job(call)
        job.state = {"UploadComplete": "InProgress", "InProgress": "JobComplete"}.get(job.state, job.state)
        return 200, job.as_dict()

    async def abort(self, call: Call) -> Answer:
        job = self._job(call)
        _one_of(await call.body(), "state", ("Aborted",), None)
        if job.state == "JobComplete":
            raise ApiError("INVALIDJOBSTATE", "Aborting already Completed Job not allowed")
        job.state = "Aborted"
        return 200, job.as_dict()

    async def delete(self, call: Call) -> Answer:
        job = self._job(call)
        if job.state not in ("JobComplete", "Aborted", "Failed"):
            raise ApiError("INVALIDJOBSTATE", "Job cannot be deleted while it is running")
        del self._jobs[job.id]
        return 204, None

    def results(self, call: Call) -> web.Response:
        """Return one page of a job's results.

        :raises ApiError: if there is no such job, it has none, or the locator is not one of its own.
        """
        job = self._job(call)
        if job.state != "JobComplete":
            raise ApiError("INVALIDJOBSTATE", "The job has no results yet, or none at all")
        start, total = _number(call.request.query.get("locator", "0"), "locator"), len(job.result.records)
        end = min(start + _number(call.request.query.get("maxRecords", str(_PAGE)), "maxRecords"), total)
        headers = {
            "Sforce-NumberOfRecords": str(max(end - start, 0)),
            "Sforce-Locator": str(end) if end < total else "null",
        }
        return web.Response(text=job.page(start, end), content_type="text/csv", charset="UTF-8", headers=headers)

    def _job(self, call: Call) -> _Job:
        if int(call.version.partition(".")[0]) < FIRST_VERSION:
            raise not_found()
        job = self._jobs.get(call.request.match_info["job_id"])
        if job is None:
            raise not_found()
        return job


def _check(query: Query) -> None:
    """Refuse what a query job cannot answer: aggregates, compound fields and ``OFFSET``."""
    compound = [field.name for field in query.fields if field.kind in COMPOUND_TYPES and field.column != "Name"]
    if not query.fields or compound or query.offset:
        problem = f"Selecting compound data not supported in Bulk Query: {compound[0]}" if compound else "Not supported"
        raise ApiError("API_ERROR", problem)


def _one_of(body: dict[str, Any], name: str, choices: tuple[str, ...], default: str | None) -> str:
    value = body.get(name, default)
    if value not in choices:
        raise ApiError("INVALIDJOB", f"{name} {value!r} is not one of {', '.join(choices)}")
    return str(value)


def _number(text: str, name: str) -> int:
    if not text.isdigit():
        raise ApiError("INVALID_QUERY_LOCATOR" if name == "locator" else "API_ERROR", f"invalid {name}: {text}")
    return int(text)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
