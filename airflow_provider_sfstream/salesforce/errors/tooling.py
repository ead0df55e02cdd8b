"""Mapping of errors of Salesforce's REST and Tooling APIs to errors of this package.

The response to a refused request is a list of ``{"errorCode", "message"}``. The code decides first, the HTTP status
second: faults with different remedies share a status. Source: "Status Codes and Error Responses" of the REST API guide,
"ManagedEventSubscription" of the Tooling API guide. Errors of custom channels are not documented: Salesforce was
observed to return ``DUPLICATE_DEVELOPER_NAME`` for a duplicate name; the others are assumed to be the same.

Pure: no HTTP; statuses are numbers.
"""

from __future__ import annotations

import re

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
from airflow_provider_sfstream.salesforce.errors.pubsub import Rule

_AGAIN = "A retry is safe: no change is applied twice."
_REPORT = "A retry cannot succeed: check the arguments, and report the error if they are correct. Nothing was changed."

_SESSION = Rule(SessionExpiredError, "the session is no longer valid", "Log in again. Nothing was changed.")
_DENIED = Rule(
    AccessDeniedError,
    "the user lacks a permission",
    "Grant the user the permission 'API Enabled', and 'View Setup and Configuration' to read, 'Customize Application' "
    "to create, change or delete. Nothing was changed.",
)
_UNAVAILABLE = Rule(ServiceUnavailableError, "the service is temporarily unavailable", _AGAIN)
_TRANSPORT = Rule(
    ServiceUnavailableError,
    "the connection failed",
    f"{_AGAIN} If it always fails: check the connection's instance or login host, the network and its proxy.",
)
_THROTTLED = Rule(ThrottledError, "the org requires fewer or slower requests", "Retry after a pause.")
_REJECTED = Rule(RequestRejectedError, "Salesforce rejected the request", _REPORT)
_WRONG_VALUE = Rule(
    ConfigurationError, "Salesforce does not accept a value", "Correct the value that it names. Nothing was changed."
)
_EXISTS = Rule(
    AlreadyExistsError,
    "another record of the org already has this name",
    "Choose another developer name, or use the existing record. Nothing was changed.",
)
_NO_VERSION = Rule(
    ConfigurationError,
    "the org's address does not serve this resource or API version",
    "Check `version` in the Extra of the connection (60.0 or above, and already released by Salesforce), and "
    "its instance or login host. Nothing was changed.",
)
_NO_TYPE = Rule(
    ConfigurationError,
    "this API version or the org's edition does not have these records, or they are hidden from the user",
    "Set `version` in the Extra of the connection to 60.0 or above; the Performance, Unlimited, Enterprise and "
    "Developer editions have them. The user needs 'View Setup and Configuration'. Nothing was changed.",
)
_GONE = Rule(
    TopicNotFoundError,
    "it does not exist, or is hidden from this user",
    "Check its developer name or ID, and the connection's org. Nothing was changed.",
)

_BY_CODE: dict[str, Rule] = {
    "INVALID_SESSION_ID": _SESSION,
    "INVALID_AUTH_HEADER": _SESSION,
    "INSUFFICIENT_ACCESS": _DENIED,
    "INSUFFICIENT_ACCESS_OR_READONLY": _DENIED,
    "INSUFFICIENT_ACCESS_ON_CROSS_REFERENCE_ENTITY": _DENIED,
    "API_DISABLED_FOR_ORG": _DENIED,
    "API_CURRENTLY_DISABLED": _DENIED,
    "FUNCTIONALITY_NOT_ENABLED": _DENIED,
    "DUPLICATE_DEVELOPER_NAME": _EXISTS,
    "DUPLICATE_VALUE": _EXISTS,
    "INVALID_INPUT": _WRONG_VALUE,
    "FIELD_INTEGRITY_EXCEPTION": _WRONG_VALUE,
    "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST": _WRONG_VALUE,
    "REQUIRED_FIELD_MISSING": _WRONG_VALUE,
    "STRING_TOO_LONG": _WRONG_VALUE,
    "MALFORMED_ID": _WRONG_VALUE,
    "INVALID_QUERY_FILTER_OPERATOR": _WRONG_VALUE,
    "INVALID_TYPE": _NO_TYPE,
    "UNSUPPORTED_API_VERSION": _NO_VERSION,
    "ENTITY_IS_DELETED": _GONE,
    "REQUEST_LIMIT_EXCEEDED": Rule(
        QuotaExceededError,
        "the org's allocation of API requests of the last 24 hours is used up",
        "Wait until it refills, or buy more; an immediate retry cannot succeed. Nothing was changed.",
    ),
    "LIMIT_EXCEEDED": Rule(
        QuotaExceededError,
        "the org has the maximum number (200 managed event subscriptions)",
        "Delete unused ones. Nothing was changed.",
    ),
    "SERVER_UNAVAILABLE": _UNAVAILABLE,
    "UNABLE_TO_LOCK_ROW": _UNAVAILABLE,
    "UNKNOWN_EXCEPTION": _UNAVAILABLE,
}

_BY_STATUS: dict[int, Rule] = {
    401: _SESSION,
    403: _DENIED,
    410: _NO_VERSION,
    420: _THROTTLED,
    429: _THROTTLED,
}

_TLS = Rule(
    ConfigurationError,
    "TLS with the org failed",
    "Check tls_ca: it must contain the certificate authority of the org, or of a proxy on the way. Nothing was sent.",
)
_TLS_FAULT = re.compile(r"certificate verify failed|CertificateError|SSLError|wrong version number", re.IGNORECASE)
_NOT_SALESFORCE = Rule(
    ConfigurationError,
    "the response is not from Salesforce's API",
    "Check the connection's instance or login host, and any proxy on the way.",
)


def error_from_response(
    status: int | None, code: str | None, message: str | None, *, what: str, names_record: bool
) -> SalesforceStreamError:
    """Return the error for a request that failed, ready to raise.

    :param status: HTTP status; ``None`` if the response is missing or incomplete.
    :param code: the first ``errorCode`` of the response, if it has one.
    :param message: the ``message`` of that error, or the network's error text.
    :param what: the subject of the request, with which the error begins.
    :param names_record: whether the URL names a record, so that "not found" is about that record.
    """
    rule = _rule(status, code or "", message or "", names_record)
    return rule.report_response(what, status, code, message)


def _rule(status: int | None, code: str, message: str, names_record: bool) -> Rule:
    if code == "REQUEST_LIMIT_EXCEEDED" and "concurrent" in message.lower():
        return _THROTTLED  # the same code for too many requests at the same time
    if code in _BY_CODE:
        return _BY_CODE[code]
    if status is None:
        return _TLS if _TLS_FAULT.search(message) else _TRANSPORT
    if status == 404:
        return _GONE if names_record else _NO_VERSION
    if status < 400:
        return _NOT_SALESFORCE
    return _BY_STATUS.get(status, _REJECTED if status < 500 else _UNAVAILABLE)
