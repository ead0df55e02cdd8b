"""The error table of the REST and Tooling API: documented codes, the statuses behind them, and what messages say."""

from __future__ import annotations

import pytest

from airflow_provider_sfstream import exceptions as errors
from airflow_provider_sfstream.protocol.tooling_errors import error_from_response

BY_CODE = {
    errors.SessionExpiredError: [
        (401, "INVALID_SESSION_ID"),
        (403, "INVALID_SESSION_ID"),
        (401, "INVALID_AUTH_HEADER"),
    ],
    errors.AccessDeniedError: [
        (403, "INSUFFICIENT_ACCESS"),
        (400, "INSUFFICIENT_ACCESS_OR_READONLY"),
        (403, "API_DISABLED_FOR_ORG"),
        (403, "FUNCTIONALITY_NOT_ENABLED"),
        (403, "SOMETHING_ELSE"),
    ],
    errors.AlreadyExistsError: [(400, "DUPLICATE_DEVELOPER_NAME"), (400, "DUPLICATE_VALUE")],
    errors.ConfigurationError: [
        (400, "INVALID_INPUT"),
        (400, "FIELD_INTEGRITY_EXCEPTION"),
        (400, "REQUIRED_FIELD_MISSING"),
        (400, "MALFORMED_ID"),
        (400, "INVALID_TYPE"),
        (404, "UNSUPPORTED_API_VERSION"),
        (404, "NOT_FOUND"),
        (410, None),
        (302, None),
        (200, None),
    ],
    errors.QuotaExceededError: [(403, "REQUEST_LIMIT_EXCEEDED"), (400, "LIMIT_EXCEEDED")],
    errors.ThrottledError: [(429, None), (420, None)],
    errors.ServiceUnavailableError: [
        (503, "SERVER_UNAVAILABLE"),
        (400, "UNABLE_TO_LOCK_ROW"),
        (500, "UNKNOWN_EXCEPTION"),
        (500, None),
        (503, None),
        (None, None),
    ],
    errors.RequestRejectedError: [(400, "MALFORMED_QUERY"), (400, "INVALID_FIELD"), (405, None), (400, None)],
}


@pytest.mark.parametrize(
    ("expected", "status", "code"), [(error, *case) for error, cases in BY_CODE.items() for case in cases]
)
def test_every_answer_has_its_error(
    expected: type[errors.SalesforceStreamError], status: int | None, code: str | None
) -> None:
    error = error_from_response(status, code, "Some text", what="Orders", names_record=False)
    assert type(error) is expected
    assert error.retriable is issubclass(expected, errors.ServiceUnavailableError | errors.SessionExpiredError)
    text = str(error)
    assert text.startswith("Orders: ")
    assert "'Some text'" in text
    for reported in (code, status and f"HTTP {status}"):
        assert reported is None or str(reported) in text
    assert len(text.split(". ")) >= 2, "it says what to do"


@pytest.mark.parametrize("code", ["NOT_FOUND", "ENTITY_IS_DELETED", "INVALID_CROSS_REFERENCE_KEY", None])
def test_not_found_is_about_the_record_where_the_address_names_one(code: str | None) -> None:
    error = error_from_response(404, code, None, what="Orders", names_record=True)
    assert type(error) is errors.TopicNotFoundError


def test_remedies_name_permission_and_version() -> None:
    denied = error_from_response(403, "INSUFFICIENT_ACCESS", "no", what="Orders", names_record=False)
    assert "Customize Application" in str(denied)
    assert "View Setup and Configuration" in str(denied)
    for status, code in ((400, "INVALID_TYPE"), (404, "NOT_FOUND")):
        assert "60.0" in str(error_from_response(status, code, "no", what="Orders", names_record=False))


def test_too_many_requests_at_the_same_time_may_pass() -> None:
    text = "ConcurrentPerOrgLongTxn Limit exceeded."
    error = error_from_response(403, "REQUEST_LIMIT_EXCEEDED", text, what="Orders", names_record=False)
    assert type(error) is errors.ThrottledError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ConnectError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", errors.ConfigurationError),
        ("ConnectError: [SSL: WRONG_VERSION_NUMBER] wrong version number", errors.ConfigurationError),
        ("ConnectError: [Errno 111] Connection refused", errors.ServiceUnavailableError),
        ("ReadTimeout: timed out", errors.ServiceUnavailableError),
    ],
)
def test_a_network_fault_may_pass_and_a_wrong_certificate_does_not(
    text: str, expected: type[errors.SalesforceStreamError]
) -> None:
    assert type(error_from_response(None, None, text, what="Orders", names_record=False)) is expected


def test_a_page_is_quoted_in_part() -> None:
    error = error_from_response(503, None, "<html>" + "x" * 10_000, what="Orders", names_record=False)
    assert len(str(error)) < 1_000
