"""How the Streaming API is reached over HTTP: address, encryption, proxy, cookies, and the errors of all that."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiosfstream.exceptions import TransportError

from airflow_provider_sfstream import __version__
from airflow_provider_sfstream.redaction import redacted
from airflow_provider_sfstream.salesforce.network.origins import checked_origin
from airflow_provider_sfstream.salesforce.network.proxies import checked_proxy, proxy_for
from airflow_provider_sfstream.salesforce.network.tls import is_loopback


class HttpError(TransportError):  # type: ignore[misc]
    """Salesforce, or something on the way to it, answered with an HTTP error instead of Bayeux messages.

    :param status: the HTTP status.
    :param text: the beginning of the body, at most 500 characters.
    """

    def __init__(self, message: str, status: int, text: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.text = text


class NoAnswerError(TransportError):  # type: ignore[misc]
    """Nothing answered: the server was not reached, or was silent for too long."""


@dataclass(frozen=True)
class HttpOptions:
    """What a request needs besides its content.

    :param ssl: TLS context; ``None`` verifies against the usual authorities.
    :param proxy: URL of the proxy; ``None``: the environment's (``HTTPS_PROXY``, ``NO_PROXY``).
    :param allow_insecure: accept plaintext to an address that is not loopback.
    :param timeout: seconds without any answer, or without the next part of one, after which a request has failed.
    """

    ssl: ssl.SSLContext | None = None
    proxy: str | None = field(default=None, repr=False)
    allow_insecure: bool = False
    timeout: float = 10.0

    def request_options(self, url: str) -> dict[str, Any]:
        """Return the keyword arguments of aiohttp's request methods for a request to ``url``."""
        options: dict[str, Any] = {
            "proxy": checked_proxy(self.proxy) if self.proxy else proxy_for(url, {}),
            "timeout": aiohttp.ClientTimeout(total=None, sock_connect=self.timeout),
        }
        return options if self.ssl is None else {**options, "ssl": self.ssl}


def cometd_url(instance_url: str, api_version: str, *, allow_insecure: bool) -> str:
    """Return the URL of an instance's CometD endpoint.

    :raises ConfigurationError: if it is no URL, or would be reached in plaintext and is not this machine.
    """
    return f"{checked_origin('The instance URL', instance_url, allow_insecure=allow_insecure)}/cometd/{api_version}"


def new_session(url: str) -> aiohttp.ClientSession:
    """Return an HTTP session for one CometD session.

    It keeps cookies, which Salesforce routes by, exactly as they came; for an IP address only if that is this machine.
    """
    loopback = is_loopback(urlsplit(url).hostname or "")
    return aiohttp.ClientSession(
        cookie_jar=aiohttp.CookieJar(unsafe=loopback, quote_cookie=False),
        headers={"User-Agent": f"airflow-provider-sfstream/{__version__}"},
        timeout=aiohttp.ClientTimeout(total=None),
    )


def transport_error(error: BaseException) -> TransportError:
    """Return the error for what the HTTP library raised.

    Its own error is not kept as the cause: its repr may show the request's headers. What TLS raised is.
    """
    text = "the server did not answer in time" if isinstance(error, TimeoutError) else str(error)
    unreached = isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError)
    kind = NoAnswerError if unreached or isinstance(error, TimeoutError) else TransportError
    failure = kind(redacted(f"{type(error).__name__}: {text}".rstrip(": ")))
    failure.__cause__ = next((arg for arg in _chain(error) if isinstance(arg, ssl.SSLError)), None)
    return failure


def _chain(error: BaseException) -> Iterator[BaseException]:
    following: BaseException | None = error
    while following is not None:
        yield following
        following = following.__cause__ or following.__context__
