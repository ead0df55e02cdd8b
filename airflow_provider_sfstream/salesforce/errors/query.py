"""Mapping of Salesforce's errors of queries, describe calls and query jobs to errors of this package.

The ``errorCode`` decides first, the HTTP status second. Sources: "Status Codes and Error Responses" of the REST API
guide, "Bulk API 2.0 Errors" of the Bulk API 2.0 guide. None of these requests changes the org.

Pure: no HTTP; statuses are numbers.
"""

from __future__ import annotations

from airflow_provider_sfstream.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    QuotaExceededError,
    RequestRejectedError,
    SalesforceStreamError,
    ServiceUnavailableError,
    SessionExpiredError,
    ThrottledError,
)
from airflow_provider_sfstream.salesforce.errors.pubsub import Rule

_AGAIN = "Run the task again: it starts from the beginning. The replica is unchanged."

_SESSION = Rule(SessionExpiredError, "the session is no longer valid, also after a new login", _AGAIN)
_DENIED = Rule(
    AccessDeniedError,
    "the user lacks a permission",
    "Grant the user the permission 'API Enabled', and 'View All' for the object. The replica is unchanged.",
)
_HIDDEN = Rule(
    AccessDeniedError,
    "the object does not exist in the org, or is hidden from the user",
    "Grant the user the permission 'View All' for the object, or exclude its table. The replica is unchanged.",
)
_TOO_LONG = Rule(
    ServiceUnavailableError,
    "the query exceeded Salesforce's time limit",
    f"{_AGAIN} If it happens again, lower bulk_threshold, so that the Bulk API is used.",
)
_CHANGED = Rule(ServiceUnavailableError, "a field of the object became unavailable while records were fetched", _AGAIN)
_CURSOR = Rule(ServiceUnavailableError, "Salesforce discarded the remaining pages of the query", _AGAIN)
_UNAVAILABLE = Rule(ServiceUnavailableError, "the service is temporarily unavailable", _AGAIN)
_THROTTLED = Rule(ThrottledError, "the org requires fewer concurrent requests", "Run the task again after a pause.")
_TRANSPORT = Rule(
    ServiceUnavailableError,
    "the connection failed",
    f"{_AGAIN} If it always fails: check the connection's instance or login host, the network and its proxy.",
)
_REJECTED = Rule(
    RequestRejectedError,
    "Salesforce rejected the request",
    "A retry cannot succeed; report the error. The replica is unchanged.",
)
_NO_BULK = Rule(
    RequestRejectedError,
    "the Bulk API does not serve this object",
    "Set bulk_threshold above its number of records, so that the REST API is used. The replica is unchanged.",
)
_NO_VERSION = Rule(
    ConfigurationError,
    "the org's address does not serve this resource or API version",
    "Check `version` in the Extra of the connection, and its instance or login host. The replica is unchanged.",
)
_NOT_SALESFORCE = Rule(
    ConfigurationError,
    "the response is not from Salesforce's API",
    "Check the connection's instance or login host, and any proxy on the way. The replica is unchanged.",
)
TLS = Rule(
    ConfigurationError,
    "the TLS certificate was not accepted",
    "tls_ca must contain the certificate authority of the org, or of a proxy on the way. Nothing was sent.",
)

_BY_CODE: dict[str, Rule] = {
    "INVALID_SESSION_ID": _SESSION,
    "INVALID_AUTH_HEADER": _SESSION,
    "INSUFFICIENT_ACCESS": _DENIED,
    "API_DISABLED_FOR_ORG": _DENIED,
    "API_CURRENTLY_DISABLED": _DENIED,
    "FUNCTIONALITY_NOT_ENABLED": _DENIED,
    "FEATURENOTENABLED": _DENIED,
    "INVALID_TYPE": _HIDDEN,
    "INVALIDENTITY": _NO_BULK,
    "QUERY_TIMEOUT": _TOO_LONG,
    "INVALID_FIELD": _CHANGED,
    "INVALID_QUERY_LOCATOR": _CURSOR,
    "REQUEST_LIMIT_EXCEEDED": Rule(
        QuotaExceededError,
        "the org's allocation of API requests of the last 24 hours is used up",
        "Wait until it refills, or buy more; an immediate retry cannot succeed. The replica is unchanged.",
    ),
    "EXCEEDEDQUOTA": Rule(
        QuotaExceededError,
        "the org's allocation of query jobs of the last 24 hours is used up",
        "Wait until it refills; an immediate retry cannot succeed. The replica is unchanged.",
    ),
    "SERVER_UNAVAILABLE": _UNAVAILABLE,
    "UNKNOWN_EXCEPTION": _UNAVAILABLE,
    "UNSUPPORTED_API_VERSION": _NO_VERSION,
}


def query_error(status: int | None, code: str | None, message: str | None, *, what: str) -> SalesforceStreamError:
    """Return the error for a request that failed, ready to raise.

    :param status: HTTP status; ``None`` if the response is missing or incomplete.
    :param code: the first ``errorCode`` of the response, if it has one.
    :param message: the ``message`` of that error, or the network's error text.
    :param what: beginning of the error: the object, the requested data and the progress.
    """
    return _rule(status, code or "", message or "").report_response(what, status, code, message)


def job_error(message: str, *, what: str) -> SalesforceStreamError:
    """Return the error for a query job that failed in the org.

    :param message: its ``errorMessage``.
    """
    is_temporary = any(sign in message.upper() for sign in ("TIMEOUT", "TIMED OUT", "INTERNAL", "UNAVAILABLE"))
    return (_UNAVAILABLE if is_temporary else _REJECTED).report_response(what, None, None, message)


def _rule(status: int | None, code: str, message: str) -> Rule:
    if code == "REQUEST_LIMIT_EXCEEDED" and "concurrent" in message.lower():
        return _THROTTLED  # the same code for too many requests at the same time
    if code in _BY_CODE:
        return _BY_CODE[code]
    if status is None:
        return _TRANSPORT
    if status < 400:
        return _NOT_SALESFORCE
    by_status = {401: _SESSION, 403: _DENIED, 404: _HIDDEN if code else _NO_VERSION, 429: _THROTTLED}
    return by_status.get(status, _REJECTED if status < 500 else _UNAVAILABLE)
