"""Timers of connections to Salesforce's event APIs, as set in an Airflow connection. Does not import gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from airflow_provider_sfstream.arguments import is_seconds
from airflow_provider_sfstream.exceptions import ConfigurationError

SHORTEST, LONGEST = 0.1, 86_400.0


@dataclass(frozen=True)
class Timers:
    """Seconds, each from 0.1 to 86,400.

    :param keepalive_seconds: without a byte from the server, after which the client pings the Pub/Sub API during an
        open call; must be shorter than the idle timeouts of firewalls and load balancers.
    :param keepalive_timeout_seconds: without a response to the ping, after which the connection counts as lost.
    :param connect_timeout_seconds: maximum for an attempt to connect to the Pub/Sub API, including TLS.
    :param reconnect_seconds: maximum between these attempts; the pauses double, starting from 0.1.
    :param call_timeout_seconds: maximum for a call other than a subscription; on the Streaming API for a request, in
        addition to the time for which the server holds it. ``None``: 30, on the Streaming API 10.
    """

    keepalive_seconds: float = 45.0
    keepalive_timeout_seconds: float = 20.0
    connect_timeout_seconds: float = 20.0
    reconnect_seconds: float = 5.0
    call_timeout_seconds: float | None = None

    def __post_init__(self) -> None:
        for name in TIMERS:
            value = getattr(self, name)
            if value is None and name == "call_timeout_seconds":
                continue
            if not is_seconds(value) or not SHORTEST <= value <= LONGEST:
                raise ConfigurationError(
                    f"{name} must be a number of seconds from {SHORTEST} to {LONGEST:.0f}. Nothing was contacted."
                )

    @classmethod
    def from_fields(cls, given: Mapping[str, Any]) -> Self:
        """Return the timers in ``given``, by name, as numbers or as text; ``None`` selects the default."""
        return cls(**{name: _number(value) for name, value in given.items() if value is not None})


TIMERS = tuple(field.name for field in fields(Timers))


def _number(value: Any) -> Any:
    """Return the number in a text, because a connection's form stores text; return other values unchanged."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
