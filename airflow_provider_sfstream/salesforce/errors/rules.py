"""Rules of error tables: meaning of a reported code, status or text, and the rules that both event APIs share.

The error tables are pure: they import neither HTTP nor gRPC; statuses are names or numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from airflow_provider_sfstream.exceptions import (
    ConfigurationError,
    QuotaExceededError,
    ReplayIdLostError,
    RequestRejectedError,
    SalesforceStreamError,
    ServiceUnavailableError,
    SessionExpiredError,
    ThrottledError,
)
from airflow_provider_sfstream.redaction import quoted


class Rule(NamedTuple):
    """Meaning of a code or text: the error class, the cause and the remedy."""

    error: type[SalesforceStreamError]
    happened: str
    remedy: str

    def report(self, subject: str, reported: Iterable[str]) -> SalesforceStreamError:
        """Return the error; its message begins with the subject and contains the reported details."""
        return self.error(f"{subject}: {self.happened} ({', '.join(reported)}). {self.remedy}")

    def report_response(
        self, subject: str, status: int | None, code: str | None, message: str | None
    ) -> SalesforceStreamError:
        """Return the error for an HTTP response, or for a missing one (``status`` is ``None``)."""
        text = quoted(message) if message and message.strip() else None
        reported = [detail for detail in (None if status is None else f"HTTP {status}", code, text) if detail]
        return self.report(subject, reported or ["no answer"])


def by_code(codes: Mapping[Rule, str]) -> dict[str, Rule]:
    """Return the rule of each code, from the codes of each rule, separated by spaces."""
    return {code: rule for rule, text in codes.items() for code in text.split()}


TLS_FAULT = re.compile(r"certificate verify failed|CertificateError|SSLError|wrong version number", re.IGNORECASE)
"""Text of a network error that is about TLS."""
TLS = Rule(
    ConfigurationError,
    "TLS with the org failed",
    "Check tls_ca: it must contain the certificate authority of the org, or of a proxy on the way. Nothing was sent.",
)

RESUME = "Nothing that was received is lost: resume from the last replay ID."
REPORT = "A retry cannot succeed: check the arguments, and report the error if they are correct."
REPLAY_REMEDY = (
    "Events after the stored position may be lost. Nothing was moved. on_invalid_replay='earliest' continues with the "
    "oldest retained event, 'latest' with new ones; both record a gap."
)
UNAVAILABLE = Rule(ServiceUnavailableError, "the service is temporarily unavailable", RESUME)
TRANSPORT = Rule(ServiceUnavailableError, "the connection failed", RESUME)
REJECTED = Rule(RequestRejectedError, "Salesforce rejected the request", REPORT)
SESSION = Rule(
    SessionExpiredError, "the session is no longer valid", "Log in again and resume from the last replay ID."
)
THROTTLED = Rule(ThrottledError, "the service requires fewer or slower requests", "Resume after a pause.")
REPLAY_LOST = Rule(
    ReplayIdLostError, "the replay ID is malformed, unknown, aged out, or the stream was reset", REPLAY_REMEDY
)
DELIVERIES_USED_UP = Rule(
    QuotaExceededError,
    "the org's event delivery allocation of the last 24 hours is used up",
    "Wait until it refills, or buy more; an immediate retry cannot succeed. Retained events remain available.",
)
