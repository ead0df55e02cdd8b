"""The tables of docs/reference/errors.md, generated from the package's error tables."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_sfstream.salesforce.auth import login
from airflow_provider_sfstream.salesforce.errors import pubsub as errors
from airflow_provider_sfstream.salesforce.errors import query as query_errors
from airflow_provider_sfstream.salesforce.errors import streaming as streaming_errors
from airflow_provider_sfstream.salesforce.errors import tooling as tooling_errors
from airflow_provider_sfstream.salesforce.errors.pubsub import Rule

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
    yield "any other status", errors._TRANSPORT
    yield from ((f"`{text}` in the result of an event", rule) for text, rule in errors._BY_RESULT)
    yield "any other error in the result of an event", errors._REFUSED


def _streaming() -> Reported:
    texts = ((text.replace("|", "` or `").replace("(n.t` or ` not)", "n't"), rule) for text, rule in _streaming_texts())
    yield from ((f"`{text}`", rule) for text, rule in texts)
    yield from ((f"code {code}", rule) for code, rule in streaming_errors._BY_CODE.items())
    yield from ((f"HTTP {status}", rule) for status, rule in streaming_errors._BY_STATUS.items())
    yield "any other code or status 4xx", streaming_errors._REJECTED
    yield "anything else", streaming_errors._UNAVAILABLE
    yield "no response", streaming_errors._TRANSPORT
    yield "no response, and TLS failed", streaming_errors._TLS


def _streaming_texts() -> Reported:
    return ((text.replace(" .*", " ... ").replace("  ", " "), rule) for text, rule in streaming_errors._BY_TEXT)


def _tooling() -> Reported:
    yield from ((f"`{code}`", rule) for code, rule in tooling_errors._BY_CODE.items())
    yield "`REQUEST_LIMIT_EXCEEDED` with `concurrent` in its message", tooling_errors._THROTTLED
    yield "HTTP 404", tooling_errors._NO_VERSION
    yield "HTTP 404 for the address of a record", tooling_errors._GONE
    yield from ((f"HTTP {status}", rule) for status, rule in tooling_errors._BY_STATUS.items())
    yield "any other HTTP 4xx", tooling_errors._REJECTED
    yield "any other HTTP 5xx", tooling_errors._UNAVAILABLE
    yield "no response", tooling_errors._TRANSPORT
    yield "no response, and TLS failed", tooling_errors._TLS
    yield "a response that is not from the API", tooling_errors._NOT_SALESFORCE


def _queries() -> Reported:
    yield from ((f"`{code}`", rule) for code, rule in query_errors._BY_CODE.items())
    yield "`REQUEST_LIMIT_EXCEEDED` with `concurrent` in its message", query_errors._THROTTLED
    yield "HTTP 404 without a code", query_errors._NO_VERSION
    yield "any other HTTP 4xx", query_errors._REJECTED
    yield "any other HTTP 5xx", query_errors._UNAVAILABLE
    yield "no response", query_errors._TRANSPORT
    yield "no response, and TLS failed", query_errors.TLS
    yield "a response that is not from the API", query_errors._NOT_SALESFORCE
