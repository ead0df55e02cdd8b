"""Batches of Bulk API 1. Adding a batch writes its records or runs its query."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from sfstream_localorg.errors import ApiError
from sfstream_localorg.records.fields import COMPOUND_TYPES
from sfstream_localorg.records.sobjects import Operation
from sfstream_localorg.rest.async_jobs import AsyncError, AsyncJob, AsyncJobs, Batch, chunks, result_of
from sfstream_localorg.rest.bulk_rows import operations_of
from sfstream_localorg.rest.calls import Call
from sfstream_localorg.rest.query import query_record_json
from sfstream_localorg.rest.query_results import query_result

QUERIES = ("query", "queryAll")
_CHUNK = 200
_MOST_RECORDS = 10_000
_QUERY_PAGE = 50_000


def records_of(text: str) -> list[dict[str, Any]]:
    """Parse the records in the request of a batch.

    :raises AsyncError: if the request is not an array of objects, is empty, or has too many records.
    """
    try:
        records = json.loads(text)
    except ValueError as error:
        raise AsyncError("InvalidBatch", f"Unable to parse Batch: {error}") from None
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise AsyncError("InvalidBatch", "Unable to parse Batch: it is no array of objects")
    if not records:
        raise AsyncError("InvalidBatch", "Records not found in batch.")
    if len(records) > _MOST_RECORDS:
        raise AsyncError("ExceededQuota", f"A batch has at most {_MOST_RECORDS} records")
    return records


async def process(call: Call, job: AsyncJob, batch: Batch) -> None:
    """Write the records of a batch in chunks. Other requests are processed between two chunks.

    :raises AsyncError: if the object of the job does not exist.
    """
    if job.entity is None:
        raise AsyncError("InvalidJob", f"Unable to find object: {job.object}")
    sobjects, origin = call.org.sobjects, call.origin_of("bulkapi")
    for chunk in chunks(batch.request, _CHUNK):
        parts = operations_of(sobjects, job.entity, job.operation, job.external_id, list(chunk))
        operations = [part for part in parts if isinstance(part, Operation)]
        done = iter(sobjects.commit(operations, user_id=job.user_id, origin=origin, all_or_none=False))
        results = [part if isinstance(part, ApiError) else next(done) for part in parts]
        if job.operation == "hardDelete":
            sobjects.remove([result for result in results if isinstance(result, str)])
        batch.results += [
            result_of(result, created=isinstance(part, Operation) and part.type == "CREATE")
            for part, result in zip(parts, results, strict=True)
        ]
        await asyncio.sleep(0)
    batch.processed = len(batch.results)
    batch.failed = sum(not result["success"] for result in batch.results)


def run_query(call: Call, jobs: AsyncJobs, job: AsyncJob, batch: Batch) -> None:
    """Run the query of a batch. An invalid query fails the batch."""
    try:
        found = query_result(call.org, batch.request, include_deleted=job.operation == "queryAll")
        if not found.query.fields or any(field.kind in COMPOUND_TYPES for field in found.query.fields):
            raise ApiError("FEATURENOTENABLED", "Aggregates and compound fields are not supported in Bulk queries")
    except ApiError as error:
        batch.outcome = "Failed"
        batch.message = f"InvalidBatch : Failed to process query: {error.code}: {error.message}"
        return
    records = [query_record_json(call, found, record) for record in found.records]
    batch.processed = len(records)
    batch.results = [list(page) for page in chunks(records, _QUERY_PAGE)] or [[]]
    batch.result_ids = [jobs.new_result_id() for _ in batch.results]
