"""Mapping of errors of Salesforce's REST APIs to errors of this package: requests of settings, and of records.

The response to a refused request is a list of ``{"errorCode", "message"}``. The code decides first, the HTTP status
second: faults with different remedies share a status. Sources: "Status Codes and Error Responses" of the REST API
guide, "ManagedEventSubscription" of the Tooling API guide, "Bulk API 2.0 Errors" of the Bulk API 2.0 guide. Errors of
custom channels are not documented: Salesforce was observed to return ``DUPLICATE_DEVELOPER_NAME`` for a duplicate name;
the others are assumed to be the same.
"""

from __future__ import annotations

from typing import NamedTuple

from airflow_provider_sfstream.exceptions import (
    AccessDeniedError,
    AlreadyExistsError,
    ConfigurationError,
    QuotaExceededError,
    RequestRejectedError,
    SalesforceStreamError,
    ServiceUnavailableError,
    SessionExpiredError,
    ThrottledError,
    TopicNotFoundError,
)
from airflow_provider_sfstream.salesforce.errors.rules import TLS, TLS_FAULT, Rule, by_code


class Table(NamedTuple):
    """Rules of one kind of requests, by code and by HTTP status."""

    by_code: dict[str, Rule]
    by_status: dict[int, Rule]

    def rule(self, status: int | None, code: str, message: str, not_found: Rule) -> Rule:
        """Return the rule of a failed request.

        :param not_found: rule of HTTP 404 without a known code.
        """
        if code == "REQUEST_LIMIT_EXCEEDED" and "concurrent" in message.lower():
            return THROTTLED  # the same code for too many requests at the same time
        if code in self.by_code:
            return self.by_code[code]
        if status is None:
            return TLS if TLS_FAULT.search(message) else TRANSPORT
        if status < 400:
            return NOT_SALESFORCE
        if status == 404:
            return not_found
        return self.by_status.get(status, REJECTED if status < 500 else UNAVAILABLE)


_AGAIN = "A retry is safe: no change is applied twice."
_SESSION = Rule(SessionExpiredError, "the session is no longer valid", "Log in again. Nothing was changed.")
_DENIED = Rule(
    AccessDeniedError,
    "the user lacks a permission",
    "Grant the user the permission 'API Enabled', and 'View Setup and Configuration' to read, 'Customize Application' "
    "to create, change or delete. Nothing was changed.",
)
_WRONG_VALUE = Rule(
    ConfigurationError, "Salesforce does not accept a value", "Correct the value that it names. Nothing was changed."
)
_EXISTS = Rule(
    AlreadyExistsError,
    "another record of the org already has this name",
    "Choose another developer name, or use the existing record. Nothing was changed.",
)
_NO_TYPE = Rule(
    ConfigurationError,
    "this API version or the org's edition does not have these records, or they are hidden from the user",
    "Set `version` in the Extra of the connection to 60.0 or above; the Performance, Unlimited, Enterprise and "
    "Developer editions have them. The user needs 'View Setup and Configuration'. Nothing was changed.",
)
_REQUESTS_USED_UP = Rule(
    QuotaExceededError,
    "the org's allocation of API requests of the last 24 hours is used up",
    "Wait until it refills, or buy more; an immediate retry cannot succeed. Nothing was changed.",
)
_MOST_RECORDS = Rule(
    QuotaExceededError,
    "the org has the maximum number (200 managed event subscriptions)",
    "Delete unused ones. Nothing was changed.",
)
UNAVAILABLE = Rule(ServiceUnavailableError, "the service is temporarily unavailable", _AGAIN)
REJECTED = Rule(
    RequestRejectedError,
    "Salesforce rejected the request",
    "A retry cannot succeed: check the arguments, and report the error if they are correct. Nothing was changed.",
)
TRANSPORT = Rule(
    ServiceUnavailableError,
    "the connection failed",
    f"{_AGAIN} If it always fails: check the connection's instance or login host, the network and its proxy.",
)
NOT_SALESFORCE = Rule(
    ConfigurationError,
    "the response is not from Salesforce's API",
    "Check the connection's instance or login host, and any proxy on the way.",
)
THROTTLED = Rule(ThrottledError, "the org requires fewer or slower requests", "Retry after a pause.")
NO_VERSION = Rule(
    ConfigurationError,
    "the org's address does not serve this resource or API version",
    "Check `version` in the Extra of the connection (60.0 or above, and already released by Salesforce), and "
    "its instance or login host. Nothing was changed.",
)
GONE = Rule(
    TopicNotFoundError,
    "it does not exist, or is hidden from this user",
    "Check its developer name or ID, and the connection's org. Nothing was changed.",
)

SETTINGS = Table(
    by_code(
        {
            _SESSION: "INVALID_SESSION_ID INVALID_AUTH_HEADER",
            _DENIED: (
                "INSUFFICIENT_ACCESS INSUFFICIENT_ACCESS_OR_READONLY INSUFFICIENT_ACCESS_ON_CROSS_REFERENCE_ENTITY "
                "API_DISABLED_FOR_ORG API_CURRENTLY_DISABLED FUNCTIONALITY_NOT_ENABLED"
            ),
            _EXISTS: "DUPLICATE_DEVELOPER_NAME DUPLICATE_VALUE",
            _WRONG_VALUE: (
                "INVALID_INPUT FIELD_INTEGRITY_EXCEPTION INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST "
                "REQUIRED_FIELD_MISSING STRING_TOO_LONG MALFORMED_ID INVALID_QUERY_FILTER_OPERATOR"
            ),
            _NO_TYPE: "INVALID_TYPE",
            NO_VERSION: "UNSUPPORTED_API_VERSION",
            GONE: "ENTITY_IS_DELETED",
            _REQUESTS_USED_UP: "REQUEST_LIMIT_EXCEEDED",
            _MOST_RECORDS: "LIMIT_EXCEEDED",
            UNAVAILABLE: "SERVER_UNAVAILABLE UNABLE_TO_LOCK_ROW UNKNOWN_EXCEPTION",
        }
    ),
    {401: _SESSION, 403: _DENIED, 410: NO_VERSION, 420: THROTTLED, 429: THROTTLED},
)
"""Rules of requests for settings, definitions and allocations."""

_FETCH_AGAIN = "Run the task again: it starts from the beginning."
_FETCH_SESSION = Rule(SessionExpiredError, "the session is no longer valid, also after a new login", _FETCH_AGAIN)
_FETCH_DENIED = Rule(
    AccessDeniedError,
    "the user lacks a permission",
    "Grant the user the permission 'API Enabled', and 'View All' for the object.",
)
_FETCH_HIDDEN = Rule(
    AccessDeniedError,
    "the object does not exist in the org, or is hidden from the user",
    "Grant the user the permission 'View All' for the object, or exclude its table.",
)
_NO_BULK = Rule(
    RequestRejectedError,
    "the Bulk API does not serve this object",
    "Set bulk_threshold above its number of records, so that the REST API is used.",
)
_TOO_LONG = Rule(
    ServiceUnavailableError,
    "the query exceeded Salesforce's time limit",
    f"{_FETCH_AGAIN} If it happens again, lower bulk_threshold, so that the Bulk API is used.",
)
_CHANGED = Rule(
    ServiceUnavailableError, "a field of the object became unavailable while records were fetched", _FETCH_AGAIN
)
_CURSOR = Rule(ServiceUnavailableError, "Salesforce discarded the remaining pages of the query", _FETCH_AGAIN)
_FETCH_JOBS_USED_UP = Rule(
    QuotaExceededError,
    "the org's allocation of query jobs of the last 24 hours is used up",
    "Wait until it refills; an immediate retry cannot succeed.",
)
FETCH_NO_VERSION = Rule(
    ConfigurationError,
    "the org's address does not serve this resource or API version",
    "Check `version` in the Extra of the connection, and its instance or login host.",
)

RECORDS = Table(
    by_code(
        {
            _FETCH_SESSION: "INVALID_SESSION_ID INVALID_AUTH_HEADER",
            _FETCH_DENIED: (
                "INSUFFICIENT_ACCESS API_DISABLED_FOR_ORG API_CURRENTLY_DISABLED FUNCTIONALITY_NOT_ENABLED "
                "FEATURENOTENABLED"
            ),
            _FETCH_HIDDEN: "INVALID_TYPE",
            _NO_BULK: "INVALIDENTITY",
            _TOO_LONG: "QUERY_TIMEOUT",
            _CHANGED: "INVALID_FIELD",
            _CURSOR: "INVALID_QUERY_LOCATOR",
            _REQUESTS_USED_UP: "REQUEST_LIMIT_EXCEEDED",
            _FETCH_JOBS_USED_UP: "EXCEEDEDQUOTA",
            UNAVAILABLE: "SERVER_UNAVAILABLE UNKNOWN_EXCEPTION",
            FETCH_NO_VERSION: "UNSUPPORTED_API_VERSION",
        }
    ),
    {**SETTINGS.by_status, 401: _FETCH_SESSION, 403: _FETCH_DENIED, 410: FETCH_NO_VERSION},
)
"""Rules of queries, describe calls and query jobs, none of which changes the org."""


def error_from_response(
    status: int | None, code: str | None, message: str | None, *, what: str, names_record: bool = False
) -> SalesforceStreamError:
    """Return the error for a failed request of settings, ready to raise.

    :param status: HTTP status; ``None`` if the response is missing or incomplete.
    :param message: the ``message`` of the response's first error, or the network's error text.
    :param names_record: whether the URL names a record, so that "not found" is about that record.
    """
    rule = SETTINGS.rule(status, code or "", message or "", GONE if names_record else NO_VERSION)
    return rule.report_response(what, status, code, message)


def query_error(status: int | None, code: str | None, message: str | None, *, what: str) -> SalesforceStreamError:
    """Return the error for a failed request of records, ready to raise; arguments as above."""
    rule = RECORDS.rule(status, code or "", message or "", _FETCH_HIDDEN if code else FETCH_NO_VERSION)
    return _of_records(rule).report_response(what, status, code, message)


def job_error(message: str, *, what: str) -> SalesforceStreamError:
    """Return the error for a query job that failed in the org."""
    is_temporary = any(sign in message.upper() for sign in ("TIMEOUT", "TIMED OUT", "INTERNAL", "UNAVAILABLE"))
    rule = UNAVAILABLE if is_temporary else REJECTED
    return _of_records(rule).report_response(what, None, None, message)


def _of_records(rule: Rule) -> Rule:
    """Return a rule whose remedy states that a failed request of records has no effect on the replica."""
    return rule._replace(remedy=f"{rule.remedy} The replica is unchanged.")
