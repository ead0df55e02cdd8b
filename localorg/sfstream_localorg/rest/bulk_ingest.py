"""Bulk API 2.0 ingest jobs: CSV that inserts, updates, upserts or deletes records.

A job is ``Open`` until it is closed. The request that closes it also processes its rows, 200 per transaction as at
Salesforce. The response shows ``UploadComplete``, the first status request ``InProgress``, the second the final state,
so that clients have to wait as at Salesforce. Not modelled: creating a job and uploading its data in one multipart
request, and relationships in column names. Source: "Bulk API 2.0 Ingest".
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

from sfstream_localorg.errors import ApiError
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.sobjects import Operation
from sfstream_localorg.records.upserts import external_id_column
from sfstream_localorg.rest.bulk_jobs import Job, Jobs, csv_format, moment, one_of
from sfstream_localorg.rest.bulk_rows import OPERATIONS, RowReader
from sfstream_localorg.rest.calls import Answer, Call, respond, route

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

FIRST_VERSION = 41
_CHUNK = 200
_ENDED = ("JobComplete", "Failed", "Aborted")

Row = Sequence[str]


@dataclass
class _IngestJob(Job):
    """An ingest job. ``outcome`` is its final state, empty before; ``text`` is the upload, ``None`` before it."""

    entity: Entity
    external_id: str | None
    text: str | None = None
    outcome: str = ""
    error: str = ""
    header: list[str] = field(default_factory=list)
    successful: list[tuple[str, bool, Row]] = field(default_factory=list)
    failed: list[tuple[str, str, Row]] = field(default_factory=list)
    unprocessed: list[Row] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        description = super().as_dict() | {"jobType": "V2Ingest"}
        if self.external_id:
            description["externalIdFieldName"] = self.external_id
        if self.state == "Open":
            description["contentUrl"] = f"services/data/v{self.version}/jobs/ingest/{self.id}/batches"
        return description

    def as_info(self) -> dict[str, Any]:
        """Return the job with its progress. All processing times are zero."""
        ended = self.state in _ENDED
        info = self.as_dict() | {
            "numberRecordsProcessed": len(self.successful) + len(self.failed) if ended else 0,
            "numberRecordsFailed": len(self.failed) if ended else 0,
            **dict.fromkeys(("retries", "totalProcessingTime", "apiActiveProcessingTime", "apexProcessingTime"), 0),
        }
        return info | {"errorMessage": self.error} if self.state == "Failed" else info


def routes(org: Org, numbers: Iterator[int]) -> list[web.RouteDef]:
    """Return the routes under ``jobs/ingest``.

    :param numbers: counter for the ids of jobs.
    """
    jobs = _IngestJobs(numbers)
    one = "/jobs/ingest/{job_id}"
    return [
        route(org, "POST", "/jobs/ingest", jobs.create),
        route(org, "GET", "/jobs/ingest", jobs.jobs.all),
        route(org, "PUT", one + "/batches", jobs.upload),
        respond(org, "GET", one + "/{kind:successfulResults|failedResults|unprocessedrecords}", jobs.results),
        route(org, "GET", one, jobs.get),
        route(org, "PATCH", one, jobs.change),
        route(org, "DELETE", one, jobs.delete),
    ]


class _IngestJobs:
    def __init__(self, numbers: Iterator[int]) -> None:
        self.jobs: Jobs[_IngestJob] = Jobs(numbers, FIRST_VERSION)

    async def create(self, call: Call) -> Answer:
        self.jobs.check_version(call)
        body = await call.body()
        if body.get("operation") == "hardDelete" and not call.org.knobs.bulk_hard_delete:
            needed = "special user profile permission, please contact your system administrator"
            message = f"hardDelete operation requires {needed}"
            raise ApiError("FEATURENOTENABLED", message)
        operation = one_of(body, "operation", OPERATIONS, None)
        entity = _entity(call, str(body.get("object")))
        job = _IngestJob(
            self.jobs.new_id(),
            operation,
            entity.name,
            csv_format(body),
            call.version,
            call.session.user_id,
            moment(),
            "Open",
            entity,
            _external_id(entity, str(body.get("externalIdFieldName") or "")) if operation == "upsert" else None,
        )
        self.jobs.keep(job)
        return 200, job.as_dict()

    async def upload(self, call: Call) -> Answer:
        job = self.jobs.find(call)
        data = await call.request.read()
        if job.state != "Open":
            raise ApiError("INVALIDJOBSTATE", f"Data can be uploaded to an open job only, and this one is {job.state}")
        if job.text is not None:
            message = (
                f"Found multiple contents for job: <{job.id}>, please 'Close' / 'Abort' / 'Delete' the current Job "
                "then create a new Job and make sure you only do 'PUT' once on a given Job."
            )
            raise ApiError("INVALIDJOBSTATE", message)
        try:
            job.text = data.decode()
        except UnicodeDecodeError as error:
            raise ApiError("INVALIDBATCH", f"The data is not UTF-8: {error}. Nothing was uploaded.") from None
        return 201, None

    async def get(self, call: Call) -> Answer:
        job = self.jobs.find(call)
        if job.state == "InProgress" and job.outcome:
            job.state = job.outcome
        elif job.state == "UploadComplete":
            job.state = "InProgress"
        return 200, job.as_info()

    async def change(self, call: Call) -> Answer:
        job = self.jobs.find(call)
        state = one_of(await call.body(), "state", ("UploadComplete", "Aborted"), None)
        if job.state in _ENDED:
            raise ApiError("INVALIDJOBSTATE", f"The job has ended already: {job.state}")
        if state == "Aborted":
            _abort(job)
            return 200, job.as_dict()
        if job.state != "Open":
            raise ApiError("INVALIDJOBSTATE", f"Only an open job can be closed, and this one is {job.state}")
        if job.text is None:
            message = "No data was uploaded; closing such a job is not modelled by the local org"
            raise ApiError("INVALIDJOBSTATE", message)
        job.state = state
        answer = job.as_dict()
        await _process(call, job)
        return 200, answer

    async def delete(self, call: Call) -> Answer:
        return self.jobs.forget(self.jobs.find(call), ("UploadComplete", *_ENDED))

    async def results(self, call: Call) -> web.Response:
        """Return one of the three result files of a job.

        :raises ApiError: if the job does not exist or has not ended.
        """
        job = self.jobs.find(call)
        if job.state not in _ENDED:
            raise ApiError("INVALIDJOBSTATE", f"The job has no results yet: it is {job.state}")
        kind = call.request.match_info["kind"]
        if kind == "successfulResults":
            names, rows = ["sf__Id", "sf__Created"], [[one, is_new, *row] for one, is_new, row in job.successful]
        elif kind == "failedResults":
            names, rows = ["sf__Id", "sf__Error"], [[one, error, *row] for one, error, row in job.failed]
        else:
            names, rows = [], [list(row) for row in job.unprocessed]
        text = job.format.write([*names, *job.header], rows) if names or job.header else ""
        return web.Response(text=text, content_type="text/csv", charset="UTF-8")


async def _process(call: Call, job: _IngestJob) -> None:
    """Process the rows of a job in chunks. Other requests run between two chunks, and one may abort the job."""
    try:
        job.header, rows = job.format.read(job.text or "")
        job.unprocessed = list(rows)
        reader = RowReader(job.entity, job.operation, job.external_id, job.header)
    except ValueError as error:
        job.outcome, job.error = "Failed", str(error)
        return
    for start in range(0, len(rows), _CHUNK):
        if job.state == "Aborted":
            return
        _process_chunk(call, job, reader, rows[start : start + _CHUNK])
        job.unprocessed = list(rows[start + _CHUNK :])
        await asyncio.sleep(0)
    job.outcome = "JobComplete"


def _process_chunk(call: Call, job: _IngestJob, reader: RowReader, rows: Sequence[Row]) -> None:
    parts = reader.operations(call.org.sobjects, rows)
    operations = [part for part in parts if isinstance(part, Operation)]
    done = iter(
        call.org.sobjects.commit(operations, user_id=job.user_id, origin=call.origin_of("bulkapi"), all_or_none=False)
    )
    for row, part in zip(rows, parts, strict=True):
        result = part if isinstance(part, ApiError) else next(done)
        if isinstance(result, ApiError):
            fields = f"{','.join(result.fields)} " if result.fields else ""
            job.failed.append((reader.record_id(row), f"{result.code}:{result.message}:{fields}--", row))
        else:
            job.successful.append((result, isinstance(part, Operation) and part.type == "CREATE", row))
    if job.operation == "hardDelete":
        call.org.sobjects.remove([record_id for record_id, _, _ in job.successful])


def _abort(job: _IngestJob) -> None:
    """Abort a job. Processed rows are not undone; all rows of an open job are unprocessed."""
    if job.state == "Open" and job.text is not None:
        try:
            job.header, rows = job.format.read(job.text)
        except ValueError:
            rows = []  # the upload is not valid CSV, so it has no unprocessed rows
        job.unprocessed = list(rows)
    job.state = "Aborted"


def _entity(call: Call, name: str) -> Entity:
    entity = call.org.sobjects.entities.get(name)
    if entity is None:
        raise ApiError("INVALIDJOB", f"InvalidJob : Unable to find object: {name}")
    if not entity.has_change_events:
        raise ApiError("INVALIDENTITY", f"Entity '{entity.name}' is not supported by the Bulk API.")
    return entity


def _external_id(entity: Entity, name: str) -> str:
    if not name:
        problem = f"External ID was blank for {entity.name}. An External ID must be specified for upsert."
        raise ApiError("INVALIDJOB", f"InvalidJob : {problem}")
    try:
        return external_id_column(entity, name)
    except ApiError:
        problem = f"Field name provided, {name} does not match an External ID, Salesforce Id, or indexed field for"
        raise ApiError("INVALIDJOB", f"InvalidJob : {problem} {entity.name}") from None
