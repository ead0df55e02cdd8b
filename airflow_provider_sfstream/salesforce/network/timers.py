"""The timers of the way to Salesforce's event APIs, as a connection may set them. Imports no gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any, Self

from airflow_provider_sfstream.exceptions import ConfigurationError

SHORTEST, LONGEST = 0.1, 86_400.0


@dataclass(frozen=True)
class Timers:
    """Seconds, each from 0.1 to 86,400.

    :param keepalive_seconds: without a byte from the server, after which the Pub/Sub API's connection is pinged while a
        call is open; the time after which firewalls and load balancers drop idle connections has to be longer.
    :param keepalive_timeout_seconds: without an answer to such a ping, after which the connection counts as lost.
    :param connect_timeout_seconds: that an attempt to connect to the Pub/Sub API, TLS included, may take.
    :param reconnect_seconds: between such attempts, at most; the pauses double from 0.1 on.
    :param call_timeout_seconds: that a call other than a subscription may take; on the Streaming API a request, beyond
        the time for which the server holds it. ``None``: 30, on the Streaming API 10.
    :raises ConfigurationError: naming the one that is no such number. Nothing was contacted.
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
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not isfinite(value) or not SHORTEST <= value <= LONGEST:
                raise ConfigurationError(
                    f"{name} must be a number of seconds from {SHORTEST} to {LONGEST:.0f}. Nothing was contacted."
                )

    @classmethod
    def from_fields(cls, given: Mapping[str, Any]) -> Self:
        """Return the timers that ``given`` has by their names, as numbers or as text; ``None`` leaves the default.

        :raises ConfigurationError: naming the field that is no number of seconds.
        """
        return cls(**{name: _number(value) for name, value in given.items() if value is not None})


TIMERS = tuple(field.name for field in fields(Timers))


def _number(value: Any) -> Any:
    """Return the number that a text says, for a connection's form stores text; anything else as it is."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
