"""The error table of queries, describes and query jobs."""

from __future__ import annotations

import pytest

from airflow_provider_sfstream import exceptions as errors
from airflow_provider_sfstream.salesforce.errors.query import job_error


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("InternalServerError : Retry your request", errors.ServiceUnavailableError),
        ("QUERY_TIMEOUT: took too long", errors.ServiceUnavailableError),
        ("InvalidBatch : Failed to process query: FUNCTIONALITY_NOT_ENABLED", errors.RequestRejectedError),
    ],
)
def test_a_job_that_failed(message: str, expected: type[errors.SalesforceStreamError]) -> None:
    error = job_error(message, what="Account")
    assert type(error) is expected
    assert message in str(error)
