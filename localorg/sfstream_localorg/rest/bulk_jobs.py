"""Common parts of query and ingest jobs of Bulk API 2.0. Jobs are in memory only."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from sfstream_localorg.errors import ApiError, not_found
from sfstream_localorg.identifiers import numbered
from sfstream_localorg.rest.bulk_csv import DELIMITERS, LINE_ENDINGS, CsvFormat
from sfstream_localorg.rest.calls import Answer, Call

_MOST_JOBS = 100


@dataclass
class Job:
    """A job: its request, its user, and its state."""

    id: str
    operation: str
    object: str
    format: CsvFormat
    version: str
    user_id: str
    created: str
    state: str

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that the responses of all jobs have."""
        return {
            "id": self.id,
            "operation": self.operation,
            "object": self.object,
            "createdById": self.user_id,
            "createdDate": self.created,
            "systemModstamp": self.created,
            "state": self.state,
            "concurrencyMode": "Parallel",
            "contentType": "CSV",
            "apiVersion": float(self.version),
            "lineEnding": self.format.line_ending,
            "columnDelimiter": self.format.delimiter,
        }


J = TypeVar("J", bound=Job)


class Jobs(Generic[J]):
    """Jobs of one kind, at most the newest 100.

    :param numbers: counter for ids, common to both kinds.
    :param first_version: the first API version with this kind of job.
    """

    def __init__(self, numbers: Iterator[int], first_version: int) -> None:
        self._jobs: OrderedDict[str, J] = OrderedDict()
        self._numbers = numbers
        self._first_version = first_version

    def new_id(self) -> str:
        """Generate the id of a job."""
        return numbered("750", next(self._numbers))

    def keep(self, job: J) -> None:
        """Add a job, and remove the oldest job above the maximum."""
        self._jobs[job.id] = job
        if len(self._jobs) > _MOST_JOBS:
            self._jobs.popitem(last=False)

    def find(self, call: Call) -> J:
        """Return the job in the path.

        :raises ApiError: ``NOT_FOUND``.
        """
        self.check_version(call)
        job = self._jobs.get(call.request.match_info["job_id"])
        if job is None:
            raise not_found()
        return job

    def check_version(self, call: Call) -> None:
        """Check that the API version of a call has this kind of job.

        :raises ApiError: ``NOT_FOUND``.
        """
        if int(call.version.partition(".")[0]) < self._first_version:
            raise not_found()

    async def all(self, call: Call) -> Answer:
        """Return all jobs."""
        self.check_version(call)
        return 200, {"done": True, "records": [job.as_dict() for job in self._jobs.values()], "nextRecordsUrl": None}

    def forget(self, job: J, states: tuple[str, ...]) -> Answer:
        """Delete a job that is in one of these states.

        :raises ApiError: ``INVALIDJOBSTATE`` if it is in another state.
        """
        if job.state not in states:
            raise ApiError("INVALIDJOBSTATE", "Job cannot be deleted while it is running")
        del self._jobs[job.id]
        return 204, None


def csv_format(body: dict[str, Any]) -> CsvFormat:
    """Return the CSV format in a job request.

    :raises ApiError: ``INVALIDJOB``.
    """
    one_of(body, "contentType", ("CSV",), "CSV")
    return CsvFormat(
        one_of(body, "columnDelimiter", tuple(DELIMITERS), "COMMA"),
        one_of(body, "lineEnding", tuple(LINE_ENDINGS), "LF"),
    )


def one_of(body: dict[str, Any], name: str, choices: tuple[str, ...], default: str | None) -> str:
    """Return a validated value of a request's body.

    :raises ApiError: ``INVALIDJOB`` if the value is not one of the choices.
    """
    value = body.get(name, default)
    if value not in choices:
        raise ApiError("INVALIDJOB", f"{name} {value!r} is not one of {', '.join(choices)}")
    return str(value)


def moment() -> str:
    """Return the current time in the format of job responses."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.000+0000}"
