"""The tables of docs/reference/errors.md, generated from the package's error tables."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_sfstream.salesforce.auth import login
from airflow_provider_sfstream.salesforce.errors import pubsub as errors
from airflow_provider_sfstream.salesforce.errors import rest as rest_errors
from airflow_provider_sfstream.salesforce.errors import rules
from airflow_provider_sfstream.salesforce.errors import streaming as streaming_errors
from airflow_provider_sfstream.salesforce.errors.rules import Rule

Reported = Iterable[tuple[str, Rule]]


def guide_tables() -> dict[str, list[str]]:
    """Return the rows of each table by its heading."""
    return {
        "Pub/Sub API": _rows(_pubsub()),
        "Streaming API": _rows(_streaming()),
        "Managed event subscriptions, over the Tooling API": _rows(_tooling()),
        "Refreshing a replica, over REST and the Bulk API 2.0": _rows(_queries()),
        "Logging in": [f"| `{part}` | {remedy} |" for part, remedy in login._REMEDIES],
    }


def _rows(reported: Reported) -> list[str]:
    """Return one row for each rule, with all reported errors that it applies to."""
    by_rule: dict[Rule, list[str]] = {}
    for what, rule in reported:
        by_rule.setdefault(rule, []).append(what)
    return [
        f"| {rule.happened} | {', '.join(names)} | `{rule.error.__name__}` | {rule.remedy} |"
        for rule, names in by_rule.items()
    ]


def _pubsub() -> Reported:
    yield from ((f"`{code}`", rule) for code, rule in errors._BY_CODE.items())
    yield from ((f"{status}", rule) for status, rule in errors._BY_STATUS.items())
    yield from ((f"{status} with `{text}` in its text", rule) for status, text, rule in errors._BY_DETAILS)
    yield "any other status", rules.TRANSPORT
    yield from ((f"`{text}` in the result of an event", rule) for text, rule in errors._BY_RESULT)
    yield "any other error in the result of an event", errors._REFUSED


def _streaming() -> Reported:
    texts = ((text.replace("|", "` or `").replace("(n.t` or ` not)", "n't"), rule) for text, rule in _streaming_texts())
    yield from ((f"`{text}`", rule) for text, rule in texts)
    yield from ((f"code {code}", rule) for code, rule in streaming_errors._BY_CODE.items())
    yield from ((f"HTTP {status}", rule) for status, rule in streaming_errors._BY_STATUS.items())
    yield "any other code or status 4xx", rules.REJECTED
    yield "anything else", rules.UNAVAILABLE
    yield "no response", rules.TRANSPORT
    yield "no response, and TLS failed", rules.TLS


def _streaming_texts() -> Reported:
    return ((text.replace(" .*", " ... ").replace("  ", " "), rule) for text, rule in streaming_errors._BY_TEXT)


def _tooling() -> Reported:
    table = rest_errors.SETTINGS
    yield from ((f"`{code}`", rule) for code, rule in table.by_code.items())
    yield "`REQUEST_LIMIT_EXCEEDED` with `concurrent` in its message", rest_errors.THROTTLED
    yield "HTTP 404", rest_errors.NO_VERSION
    yield "HTTP 404 for the address of a record", rest_errors.GONE
    yield from ((f"HTTP {status}", rule) for status, rule in table.by_status.items())
    yield from _others()


def _queries() -> Reported:
    table = rest_errors.RECORDS
    yield from ((f"`{code}`", rule) for code, rule in table.by_code.items())
    yield "`REQUEST_LIMIT_EXCEEDED` with `concurrent` in its message", rest_errors.THROTTLED
    yield "HTTP 404 without a code", rest_errors.FETCH_NO_VERSION
    yield from _others()


def _others() -> Reported:
    yield "any other HTTP 4xx", rest_errors.REJECTED
    yield "any other HTTP 5xx", rest_errors.UNAVAILABLE
    yield "no response", rest_errors.TRANSPORT
    yield "no response, and TLS failed", rules.TLS
    yield "a response that is not from the API", rest_errors.NOT_SALESFORCE
