"""The error table of queries, describes and query jobs."""

from __future__ import annotations

import pytest

from airflow_provider_sfstream import exceptions as errors
from airflow_provider_sfstream.protocol.query_errors import job_error, query_error

CASES: dict[type[errors.SalesforceStreamError], list[tuple[int | None, str | None]]] = {
    errors.SessionExpiredError: [(401, "INVALID_SESSION_ID"), (403, "INVALID_SESSION_ID"), (401, None)],
    errors.AccessDeniedError: [
        (400, "INVALID_TYPE"),
        (404, "NOT_FOUND"),
        (403, "API_DISABLED_FOR_ORG"),
        (403, "SOMETHING_ELSE"),
        (400, "FEATURENOTENABLED"),
    ],
    errors.QuotaExceededError: [(403, "REQUEST_LIMIT_EXCEEDED"), (400, "EXCEEDEDQUOTA")],
    errors.ThrottledError: [(429, None)],
    errors.ServiceUnavailableError: [
        (400, "QUERY_TIMEOUT"),
        (400, "INVALID_FIELD"),
        (400, "INVALID_QUERY_LOCATOR"),
        (500, "UNKNOWN_EXCEPTION"),
        (503, None),
        (None, None),
    ],
    errors.RequestRejectedError: [(400, "MALFORMED_QUERY"), (414, None), (400, "INVALIDENTITY")],
    errors.ConfigurationError: [(404, None), (200, None), (302, None), (404, "UNSUPPORTED_API_VERSION")],
}


@pytest.mark.parametrize(
    ("expected", "status", "code"), [(kind, *case) for kind, cases in CASES.items() for case in cases]
)
def test_every_answer_has_its_error(
    expected: type[errors.SalesforceStreamError], status: int | None, code: str | None
) -> None:
    error = query_error(status, code, "Some text", what="Account: its records, after 2000")
    assert type(error) is expected
    assert error.retriable is issubclass(expected, errors.ServiceUnavailableError | errors.SessionExpiredError)
    text = str(error)
    assert text.startswith("Account: its records, after 2000: ")
    assert "'Some text'" in text
    assert code is None or code in text


def test_the_same_code_for_the_requests_of_a_day_and_those_of_a_moment() -> None:
    error = query_error(403, "REQUEST_LIMIT_EXCEEDED", "ConcurrentRequests Limit exceeded.", what="Account")
    assert type(error) is errors.ThrottledError


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


def test_a_long_message_is_cut() -> None:
    assert len(str(query_error(400, None, "x" * 10_000, what="Account"))) < 1_000
