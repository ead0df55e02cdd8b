"""Jobs, batches and errors of Bulk API 1. Jobs are in memory only."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sfstream_localorg.errors import ApiError
from sfstream_localorg.identifiers import numbered
from sfstream_localorg.records.entity import Entity

_MOST_JOBS = 100
_TIMES = dict.fromkeys(("totalProcessingTime", "apiActiveProcessingTime", "apexProcessingTime"), 0)


class AsyncError(Exception):
    """Refusal of a request with ``exceptionCode`` and ``exceptionMessage``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclass
class Batch:
    """A batch: its request, its state, and its results.

    ``results`` has one result per record of an ingest batch, or the pages of records of a query.
    """

    id: str
    job_id: str
    created: str
    request: Any
    state: str = "Queued"
    outcome: str = "Completed"
    message: str | None = None
    processed: int = 0
    failed: int = 0
    results: list[Any] = field(default_factory=list)
    result_ids: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the ``batchInfo`` of the batch. Counts are zero until it shows its final state."""
        ended = self.state == self.outcome
        return {
            "id": self.id,
            "jobId": self.job_id,
            "state": self.state,
            "stateMessage": self.message if ended else None,
            "createdDate": self.created,
            "systemModstamp": self.created,
            "numberRecordsProcessed": self.processed if ended else 0,
            "numberRecordsFailed": self.failed if ended else 0,
            **_TIMES,
        }


@dataclass
class AsyncJob:
    """A job. ``entity`` may be ``None`` for a query job."""

    id: str
    operation: str
    object: str
    entity: Entity | None
    external_id: str | None
    version: str
    user_id: str
    created: str
    concurrency: str
    state: str = "Open"
    batches: dict[str, Batch] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the ``jobInfo`` of the job."""
        states = [batch.state for batch in self.batches.values()]
        infos = [batch.as_dict() for batch in self.batches.values()]
        return {
            "id": self.id,
            "operation": self.operation,
            "object": self.object,
            "createdById": self.user_id,
            "createdDate": self.created,
            "systemModstamp": self.created,
            "state": self.state,
            "externalIdFieldName": self.external_id,
            "concurrencyMode": self.concurrency,
            "contentType": "JSON",
            "assignmentRuleId": None,
            "fastPathEnabled": False,
            "numberBatchesQueued": states.count("Queued"),
            "numberBatchesInProgress": states.count("InProgress"),
            "numberBatchesCompleted": states.count("Completed"),
            "numberBatchesFailed": states.count("Failed"),
            "numberBatchesTotal": len(states),
            "numberRecordsProcessed": sum(info["numberRecordsProcessed"] for info in infos),
            "numberRecordsFailed": sum(info["numberRecordsFailed"] for info in infos),
            "numberRetries": 0,
            "apiVersion": float(self.version),
            **_TIMES,
        }


class AsyncJobs:
    """Jobs of one org, at most the newest 100."""

    def __init__(self, numbers: itertools.count[int]) -> None:
        self._jobs: OrderedDict[str, AsyncJob] = OrderedDict()
        self._numbers = numbers
        self._batch_numbers = itertools.count(1)
        self._result_numbers = itertools.count(1)

    def new_id(self) -> str:
        """Generate the ID of a job."""
        return numbered("750", next(self._numbers))

    def new_batch_id(self) -> str:
        """Generate the ID of a batch."""
        return numbered("751", next(self._batch_numbers))

    def new_result_id(self) -> str:
        """Generate the ID of a page of query results."""
        return numbered("752", next(self._result_numbers))

    def add(self, job: AsyncJob) -> None:
        """Add a job, and remove the oldest job above the maximum."""
        self._jobs[job.id] = job
        if len(self._jobs) > _MOST_JOBS:
            self._jobs.popitem(last=False)

    def find(self, job_id: str) -> AsyncJob:
        """Return a job.

        :raises AsyncError: if the ID is unknown.
        """
        if job_id not in self._jobs:
            raise AsyncError("InvalidJob", f"Unable to find job with ID: {job_id}")
        return self._jobs[job_id]

    def batch(self, job_id: str, batch_id: str) -> Batch:
        """Return a batch of a job.

        :raises AsyncError: if an ID is unknown.
        """
        batches = self.find(job_id).batches
        if batch_id not in batches:
            raise AsyncError("InvalidBatch", f"Unable to find batch with ID: {batch_id}")
        return batches[batch_id]


def result_of(done: str | ApiError, *, created: bool) -> dict[str, Any]:
    """Return the result of one record of an ingest batch."""
    if isinstance(done, str):
        return {"success": True, "created": created, "id": done, "errors": []}
    error = {"message": done.message, "fields": list(done.fields), "statusCode": done.code}
    return {"success": False, "created": False, "id": None, "errors": [error | {"extendedErrorDetails": None}]}


def chunks(records: Sequence[Any], size: int) -> list[Sequence[Any]]:
    """Split records into lists of at most ``size``."""
    return [records[start : start + size] for start in range(0, len(records), size)]
