"""Mapping of errors of the Streaming API to errors of this package.

The ``error`` of a refused Bayeux message has the form ``code:arguments:text``, on Salesforce mostly ``400::Some text``.
The cause may be in ``ext.sfdc.failureReason`` beside a general ``error`` (a denied handshake, a busy server); it then
decides. Faults with different remedies share codes, so the text decides before the code. Source: "Streaming API Error
Codes" and "Handling Streaming API Errors" of the Streaming API guide.
"""

from __future__ import annotations

import re

from airflow_provider_sfstream.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    RequestRejectedError,
    SalesforceStreamError,
    ServiceUnavailableError,
    ThrottledError,
    TopicNotFoundError,
)
from airflow_provider_sfstream.redaction import quoted
from airflow_provider_sfstream.salesforce.errors import rules
from airflow_provider_sfstream.salesforce.errors.rules import Rule

_PERMISSION = "Grant the user access in Salesforce (permission set), then retry. Nothing was read or moved."
_VERSION = "Set `version` in the Extra of the connection to 37.0 or above, for example 66.0. Nothing was read."
_DENIED = Rule(AccessDeniedError, "the user has no access to it", _PERMISSION)
_SESSION_DISCARDED = Rule(
    ServiceUnavailableError,
    "Salesforce discarded the session of this client: it timed out, or its server stopped",
    rules.RESUME,
)
_UNKNOWN_TOPIC = Rule(
    TopicNotFoundError,
    "it does not exist, or is hidden from this user",
    "Check the name (upper and lower case matter), that the PushTopic, channel or event exists, and the user's "
    "permissions. Nothing was read or moved.",
)
_TOO_LARGE = Rule(RequestRejectedError, "the request is larger than the 32,768 bytes allowed", rules.REPORT)

_BY_TEXT: tuple[tuple[str, Rule], ...] = (
    ("replayid .*you provided was invalid", rules.REPLAY_LOST),
    ("authentication invalid|requires authentication", rules.SESSION),
    ("unknown client|not completed handshake", _SESSION_DISCARDED),
    ("total events daily limit", rules.DELIVERIES_USED_UP),
    (
        "concurrent user limit|subscription limit exceeded",
        Rule(ThrottledError, "too many clients are connected", "Stop some subscribers, or resume after a pause."),
    ),
    ("simultaneous connections per server", rules.THROTTLED),
    ("too busy", rules.UNAVAILABLE),
    (
        "api version",
        Rule(ConfigurationError, "Salesforce does not offer the Streaming API at this API version", _VERSION),
    ),
    (
        "query fields .*do not exist",
        Rule(
            RequestRejectedError,
            "the filter names a field that the PushTopic does not select",
            "Correct the filter after the '?' of the topic. Nothing was read or moved.",
        ),
    ),
    (
        "no .*cookie present|does not match the session",
        Rule(
            RequestRejectedError,
            "Salesforce did not receive the cookies that it had set",
            "Check for a proxy that removes or mixes cookies.",
        ),
    ),
    (
        "maximum channel limit",
        Rule(
            RequestRejectedError,
            "the generic channel does not exist, and the org has the maximum number of generic channels",
            "Replace an unused generic channel by this one.",
        ),
    ),
    (
        "view all data",
        Rule(AccessDeniedError, "the user lacks the permission to read these change events", _PERMISSION),
    ),
    ("does(n.t| not) exist|unknown channel|vary only by case", _UNKNOWN_TOPIC),
    ("maximum request size", _TOO_LARGE),
    (
        "create_denied",
        Rule(
            AccessDeniedError,
            "it does not exist, or the user has no access to it",
            f"Check the name (upper and lower case matter). {_PERMISSION}",
        ),
    ),
)
"""Regular expressions for a part of the lower-case text; the first match counts."""

_BY_CODE: dict[int, Rule] = {
    400: rules.REJECTED,
    401: rules.SESSION,
    402: _SESSION_DISCARDED,
    403: _DENIED,
    404: _UNKNOWN_TOPIC,
    413: _TOO_LARGE,
    429: rules.THROTTLED,
}

_BY_STATUS: dict[int, Rule] = {
    401: rules.SESSION,
    403: _DENIED,
    404: Rule(
        ConfigurationError,
        "the org's address has no CometD endpoint",
        "Check the connection's instance or login host, and its `version` (37.0 or above). Nothing was read.",
    ),
    413: _TOO_LARGE,
    420: rules.THROTTLED,
    429: rules.THROTTLED,
}

_ERROR = re.compile(r"(\d{3}):[^:]*:(.*)", re.DOTALL)


def error_from_reply(error: str | None, failure_reason: str | None = None, *, topic: str) -> SalesforceStreamError:
    """Return the error for a Bayeux reply with ``"successful": false``, ready to raise.

    :param failure_reason: its ``ext.sfdc.failureReason``, if present, which is more specific than ``error``.
    """
    reported = [text.strip() for text in (failure_reason, error) if isinstance(text, str) and text.strip()]
    rule = next((rule for rule in map(_rule, reported) if rule is not None), None)
    if rule is None:
        code = next((int(match[1]) for match in map(_ERROR.fullmatch, reported) if match), 0)
        rule = _BY_CODE.get(code, rules.REJECTED if 400 <= code < 500 else rules.UNAVAILABLE)
    return rule.report(topic, [quoted(text) for text in reported] or ["no reason reported"])


def error_from_status(status: int | None, text: str | None = None, *, topic: str) -> SalesforceStreamError:
    """Return the error for an HTTP request without a usable response, ready to raise.

    :param status: of the response; ``None`` if it is missing or incomplete.
    """
    rule = rules.TLS if status is None and rules.TLS_FAULT.search(text or "") else rules.TRANSPORT
    if status is not None and status >= 400:
        rule = _BY_STATUS.get(status, rules.REJECTED if status < 500 else rules.UNAVAILABLE)
    return rule.report_response(topic, status, None, text)


def _rule(text: str) -> Rule | None:
    lower = text.lower()
    return next((rule for part, rule in _BY_TEXT if re.search(part, lower, re.DOTALL)), None)
