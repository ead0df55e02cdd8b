"""Selection of a request's proxy (the connection's, else the environment's), and diagnosis of an unreachable server."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.redaction import remember_user_info
from airflow_provider_sfstream.salesforce.network.tls import ssl_context

_GRPC_VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")
_GRPC_EXCEPTIONS = ("no_grpc_proxy", "no_proxy")


def proxy_for(url: str, proxies: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy for a request to ``url``; ``None``: no proxy. No error shows its password.

    :param proxies: proxy URL by scheme (``http``, ``https``); with precedence over ``HTTPS_PROXY`` and similar
        variables of the environment, from which ``NO_PROXY`` excludes hosts.
    """
    parts = urlsplit(url)
    if parts.scheme in proxies:
        return checked_proxy(proxies[parts.scheme])
    environment = getproxies()
    proxy = environment.get(parts.scheme) or environment.get("all")
    if not proxy or not parts.hostname or proxy_bypass(parts.netloc):
        return None
    return checked_proxy(proxy if "://" in proxy else f"http://{proxy}")


def checked_proxy(url: object) -> str:
    """Return the URL of a proxy, validated so that all libraries parse it in the same way. The error does not show
    it."""
    text = url if isinstance(url, str) else ""
    remember_user_info(text)
    try:
        parts = urlsplit(text)
        usable = (
            bool(parts.hostname) and (parts.port or 1) > 0 and "@" not in f"{parts.path}{parts.query}{parts.fragment}"
        )
    except ValueError:  # the error quotes a part of the URL as the port
        parts, usable = urlsplit(""), False
    if parts.scheme.startswith("socks"):
        raise _unsupported(
            "The proxy of the connection's proxies or of the environment (HTTPS_PROXY, ALL_PROXY)",
            "in the connection's proxies or in HTTPS_PROXY, or exclude the hosts of Salesforce with NO_PROXY",
        )
    if not usable or parts.scheme not in ("http", "https") or "\\" in text or not text.isprintable():
        raise ConfigurationError(
            "The proxy of the connection's proxies or of the environment (HTTPS_PROXY) is invalid: its URL must be "
            "like http://proxy.example.com:3128. In a user name or password before the host, write characters such as "
            "/ # ? @ as %2F %23 %3F %40. Nothing was sent."
        )
    return text


def check_grpc_proxy(host: str) -> None:
    """Raise if the environment names a SOCKS proxy for gRPC, which would ignore it and connect without a proxy."""
    name, proxy = _first_set(_GRPC_VARIABLES)
    if proxy.lower().startswith("socks") and "://" in proxy:
        remember_user_info(proxy)
        # gRPC compares the ends of host names.
        suffixes = [suffix.strip().lower() for suffix in _first_set(_GRPC_EXCEPTIONS)[1].split(",")]
        if not any(suffix and host.lower().endswith(suffix) for suffix in suffixes):
            raise _unsupported(
                f"The proxy of the environment for gRPC ({name})",
                f"in grpc_proxy, or exclude {host} with no_grpc_proxy",
            )


def _first_set(names: tuple[str, ...]) -> tuple[str, str]:
    return next(((name, os.environ[name]) for name in names if os.environ.get(name)), (names[0], ""))


def _unsupported(proxy: str, where: str) -> ConfigurationError:
    return ConfigurationError(
        f"{proxy} is a SOCKS proxy, which is not supported. Set an HTTP proxy, such as http://proxy.example.com:3128, "
        f"{where}. Nothing was sent."
    )


STEP_TIMEOUT = 5.0
"""Seconds for TCP and for TLS, each."""


def how_far(url: str, ca_pem: str | None, proxies: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a sentence about the reachable part of the path to the server of ``url``. Never raise a network error."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    if proxy_for(url, proxies) is not None:
        return f"Connections to {host}:{port} use a proxy, which was not checked."
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return f"The name {host} could not be resolved ({error.strerror})."
    try:
        connection = socket.create_connection((host, port), STEP_TIMEOUT)
    except OSError as error:
        reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or type(error).__name__
        return f"{host} was resolved, but TCP port {port} was not reached ({reason}): check the firewalls on the way."
    with connection:
        if parts.scheme != "https":
            return f"TCP port {port} of {host} was reached."
        try:
            with ssl_context(ca_pem).wrap_socket(connection, server_hostname=host):
                return f"TCP port {port} of {host} was reached, and TLS."
        except (OSError, ValueError) as error:
            reason = "no answer" if isinstance(error, TimeoutError) else type(error).__name__
            return f"TCP port {port} of {host} was reached, but not TLS ({reason}): check the proxies on the way."
