"""Rules of all error tables: each known response has its error, whose message has the cause and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import (
    ConfigurationError,
    SalesforceStreamError,
    ServiceUnavailableError,
    SessionExpiredError,
    ThrottledError,
)
from airflow_provider_sfstream.salesforce.errors.pubsub import CODE_PREFIX, error_from
from airflow_provider_sfstream.salesforce.errors.rest import error_from_response, query_error
from airflow_provider_sfstream.salesforce.errors.streaming import error_from_reply, error_from_status
from tests.support import error_cases

SUBJECT = "/event/A__e"
RETRIED = ServiceUnavailableError | SessionExpiredError


@dataclass(frozen=True)
class Table:
    """An error table and its cases.

    ``report`` creates the error for a case and a text; ``named`` returns the parts of the case that the error's message
    must contain.
    """

    name: str
    cases: error_cases.Cases
    report: Callable[[Any, str], SalesforceStreamError]
    named: Callable[[Any], list[str]]


def http(case: tuple[int | None, str | None]) -> list[str]:
    status, code = case
    return ([] if status is None else [f"HTTP {status}"]) + ([] if code is None else [code])


TABLES = [
    Table(
        "pubsub_codes",
        error_cases.PUBSUB_CODES,
        lambda code, text: error_from(CODE_PREFIX + code, "INTERNAL", text, topic=SUBJECT),
        lambda code: [code],
    ),
    Table(
        "pubsub_statuses",
        error_cases.PUBSUB_STATUSES,
        lambda case, text: error_from(None, case[0], f"{case[1] or ''} {text}", topic=SUBJECT),
        lambda case: [part for part in case if part],
    ),
    Table(
        "streaming_replies",
        error_cases.STREAMING_REPLIES,
        lambda reply, text: error_from_reply(f"{reply} {text}", topic=SUBJECT),
        lambda reply: [reply[:40]],
    ),
    Table(
        "streaming_statuses",
        error_cases.STREAMING_STATUSES,
        lambda status, text: error_from_status(status, text, topic=SUBJECT),
        lambda status: http((status, None)),
    ),
    Table(
        "tooling",
        error_cases.TOOLING,
        lambda case, text: error_from_response(case[0], case[1], text, what=SUBJECT),
        http,
    ),
    Table(
        "queries",
        error_cases.QUERIES,
        lambda case, text: query_error(case[0], case[1], text, what=SUBJECT),
        lambda case: http(case),
    ),
]

every_table = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        pytest.param(table, expected, id=f"{table.name}-{expected.__name__}")
        for table in TABLES
        for expected in table.cases
    ],
)
def test_each_response_has_its_error(table: Table, expected: type[SalesforceStreamError]) -> None:
    for case in table.cases[expected]:
        error = table.report(case, "Some text")
        assert type(error) is expected, case
        assert error.retriable is issubclass(expected, RETRIED), case
        assert error.invalidates_token is issubclass(expected, SessionExpiredError), case
        text = str(error).replace('"', "'")
        assert text.startswith(f"{SUBJECT}: "), text
        assert len(text.split(". ")) >= 2, f"the remedy is missing: {text}"
        for part in (*table.named(case), "Some text"):
            assert part in text, case


@every_table
def test_long_text_is_truncated_by_each_table(table: Table) -> None:
    for case, *_ in table.cases.values():
        assert len(str(table.report(case, "x" * 100_000))) < 2_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ConnectError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", ConfigurationError),
        ("ConnectError: [SSL: WRONG_VERSION_NUMBER] wrong version number", ConfigurationError),
        (
            "ClientConnectorCertificateError: Cannot connect to host x:443 ssl:True [SSLCertVerificationError: (1, "
            "'[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate')]",
            ConfigurationError,
        ),
        (
            "ClientConnectorSSLError: Cannot connect to host x:443 ssl:default [[SSL: WRONG_VERSION_NUMBER] wrong "
            "version]",
            ConfigurationError,
        ),
        ("ConnectError: [Errno 111] Connection refused", ServiceUnavailableError),
        ("ReadTimeout: timed out", ServiceUnavailableError),
    ],
)
def test_network_fault_is_retriable_and_invalid_certificate_is_not(
    text: str, expected: type[SalesforceStreamError]
) -> None:
    for error in (
        error_from(None, "UNAVAILABLE", text, topic=SUBJECT),
        error_from_status(None, text, topic=SUBJECT),
        error_from_response(None, None, text, what=SUBJECT),
    ):
        assert type(error) is expected
        assert expected is ServiceUnavailableError or "tls_ca" in str(error)


def test_limit_of_concurrent_requests_is_a_throttled_error() -> None:
    for text in ("ConcurrentRequests Limit exceeded.", "ConcurrentPerOrgLongTxn Limit exceeded."):
        for error in (
            error_from_response(403, "REQUEST_LIMIT_EXCEEDED", text, what=SUBJECT),
            query_error(403, "REQUEST_LIMIT_EXCEEDED", text, what=SUBJECT),
        ):
            assert type(error) is ThrottledError
