"""Faults that interrupt a stream on either API, and the expected errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airflow_provider_sfstream.exceptions import (
    QuotaExceededError,
    SalesforceStreamError,
    ServiceUnavailableError,
    SessionExpiredError,
    ThrottledError,
)
from tests.support.localorg import LocalOrg


@dataclass(frozen=True)
class Break:
    """A fault that interrupts a stream once, after about 300 events."""

    name: str
    error: type[SalesforceStreamError]
    fault: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def cause(self, org: LocalOrg, topic: str) -> None:
        org.fault(self.fault, topic=topic, times=1, **self.arguments)


def _dropped(name: str, expected: type[SalesforceStreamError], /, **ending: str) -> Break:
    return Break(name, expected, "drop_every", {"every": 300, **ending})


def _polled(name: str, expected: type[SalesforceStreamError], fault: str, /, **arguments: Any) -> Break:
    return Break(name, expected, fault, {"every": 4, **arguments})


PUBSUB_BREAKS = (
    _dropped("unavailable", ServiceUnavailableError, code="service.unavailable", status="INTERNAL"),
    _dropped("overflow", ThrottledError, code="subscription.fetch.overflow", status="RESOURCE_EXHAUSTED"),
    _dropped("limit", QuotaExceededError, code="subscription.limit.exceeded", status="RESOURCE_EXHAUSTED"),
    _dropped("auth", SessionExpiredError, code="service.auth.error", status="UNAUTHENTICATED"),
    _dropped("rst", ServiceUnavailableError, code="", status="UNAVAILABLE", message="RST_STREAM closed stream"),
    _dropped("cancelled", ServiceUnavailableError, code="", status="CANCELLED", message="by the server"),
    _dropped("end", ServiceUnavailableError, how="end"),
    _dropped("reset", ServiceUnavailableError, how="reset"),
)

STREAMING_BREAKS = (
    _polled("dropped", ServiceUnavailableError, "cometd_drop"),
    _polled("lost", ServiceUnavailableError, "cometd_lose", part=0.5),
    _polled("truncated", ServiceUnavailableError, "cometd_truncate", part=0.5),
    _polled("http_503", ServiceUnavailableError, "cometd_http", status=503),
    _polled("too_busy", ServiceUnavailableError, "cometd_fail"),
    _polled("unknown_client", ServiceUnavailableError, "cometd_fail", error="403::Unknown client"),
    _polled("user_limit", ThrottledError, "cometd_fail", error="403::Organization concurrent user limit exceeded"),
    _polled(
        "daily_limit", QuotaExceededError, "cometd_fail", error="403::Organization total events daily limit exceeded"
    ),
)
