"""Settings of a connection that its clients share: of the network, and timers of the event APIs. Without gRPC."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from airflow_provider_sfstream.arguments import is_seconds
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.salesforce.network.proxies import checked_proxy, proxy_for
from airflow_provider_sfstream.salesforce.network.tls import checked_origin, load_ca, ssl_context

SHORTEST, LONGEST = 0.1, 86_400.0


@dataclass(frozen=True)
class NetworkSettings:
    """Trusted certificate authority, proxies and encryption of the connections to an org. The repr shows no proxy.

    :param tls_ca: certificate authority to trust instead of the public ones: a file, or PEM text. Stored as PEM text.
    :param proxies: proxy URL by scheme (``http``, ``https``), with precedence over ``HTTPS_PROXY`` of the environment.
        For HTTP requests; gRPC reads its proxy from the environment.
    :param allow_insecure: accept addresses without TLS that are not loopback.
    """

    tls_ca: str | None = None
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    allow_insecure: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "tls_ca", load_ca(self.tls_ca))
        object.__setattr__(self, "proxies", _checked_proxies(self.proxies))

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """The TLS context. The first one of a process for the public authorities takes about 50 ms of CPU time."""
        return ssl_context(self.tls_ca)

    def proxy(self, url: str) -> str | None:
        """Return the URL of the proxy for a request to ``url``; ``None``: no proxy."""
        return proxy_for(url, self.proxies)

    def origin(self, name: str, url: str) -> str:
        """Return scheme, host and port of ``url``, to which credentials may be sent; see :func:`checked_origin`."""
        return checked_origin(name, url, allow_insecure=self.allow_insecure)

    def httpx_options(self, url: str) -> dict[str, Any]:
        """Return the arguments of an httpx client for requests to ``url``.

        Without ``trust_env``, which would send the credentials of a .netrc file in place of the token, and raises httpx
        errors for unsupported proxies, also for those of other hosts.
        """
        return {"verify": self.ssl_context, "proxy": self.proxy(url), "trust_env": False}


def _checked_proxies(proxies: Any) -> dict[str, str]:
    if not isinstance(proxies, Mapping) or not all(
        scheme in ("http", "https") and isinstance(url, str) and "://" in url for scheme, url in proxies.items()
    ):
        raise ConfigurationError(
            "proxies must be a JSON object with a URL for 'http', 'https' or both, for example "
            '{"https": "http://proxy.example.com:3128"}. Nothing was contacted.'
        )
    return {scheme: checked_proxy(url) for scheme, url in proxies.items()}


DEFAULT_NETWORK = NetworkSettings()
"""Public authorities, the environment's proxies, and TLS."""


@dataclass(frozen=True)
class Timers:
    """Timers of connections to the event APIs, in seconds, each from 0.1 to 86,400.

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


TIMERS = tuple(each.name for each in fields(Timers))


def _number(value: Any) -> Any:
    """Return the number in a text, because a connection's form stores text; return other values unchanged."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
