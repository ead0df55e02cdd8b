"""Error tables of queries and of the Tooling API: documented codes, statuses and messages."""

from __future__ import annotations

import pytest

from airflow_provider_sfstream import exceptions as errors
from airflow_provider_sfstream.salesforce.errors.rest import error_from_response, job_error


@pytest.mark.parametrize("code", ["NOT_FOUND", "ENTITY_IS_DELETED", "INVALID_CROSS_REFERENCE_KEY", None])
def test_not_found_is_topic_not_found_if_the_url_names_a_record(code: str | None) -> None:
    error = error_from_response(404, code, None, what="Orders", names_record=True)
    assert type(error) is errors.TopicNotFoundError


def test_remedies_name_permission_and_version() -> None:
    denied = error_from_response(403, "INSUFFICIENT_ACCESS", "no", what="Orders")
    assert "Customize Application" in str(denied)
    assert "View Setup and Configuration" in str(denied)
    for status, code in ((400, "INVALID_TYPE"), (404, "NOT_FOUND")):
        assert "60.0" in str(error_from_response(status, code, "no", what="Orders"))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("InternalServerError : Retry your request", errors.ServiceUnavailableError),
        ("QUERY_TIMEOUT: took too long", errors.ServiceUnavailableError),
        ("InvalidBatch : Failed to process query: FUNCTIONALITY_NOT_ENABLED", errors.RequestRejectedError),
    ],
)
def test_failed_query_job_has_its_error(message: str, expected: type[errors.SalesforceStreamError]) -> None:
    error = job_error(message, what="Account")
    assert type(error) is expected
    assert message in str(error)
