"""How far the way to a server goes: its name, TCP, TLS. Asked only when the server itself does not answer."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

from airflow_provider_sfstream.salesforce.network.proxies import proxy_for

STEP_TIMEOUT = 5.0
"""Seconds that TCP and TLS may take each."""


NONE: Mapping[str, str] = MappingProxyType({})


def how_far(url: str, context: ssl.SSLContext | None, proxies: Mapping[str, str] = NONE) -> str:
    """Return a sentence on what could be reached of the server of ``url``. Never raises for what the network does.

    :param url: ``https://host:port`` or ``http://host:port``.
    :param context: how to verify TLS; ``None`` for plaintext.
    :param proxies: see :func:`proxy_for`.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    if proxy_for(url, proxies) is not None:
        return f"The way to {host}:{port} goes through a proxy, which was not looked into."
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return f"The name {host} could not be resolved ({error.strerror})."
    try:
        connection = socket.create_connection((host, port), STEP_TIMEOUT)
    except OSError as error:
        reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or type(error).__name__
        return f"{host} was resolved, but TCP port {port} was not reached ({reason}): look at firewalls on the way."
    with connection:
        if context is None:
            return f"TCP port {port} of {host} was reached."
        try:
            with context.wrap_socket(connection, server_hostname=host):
                return f"TCP port {port} of {host} was reached, and TLS."
        except (OSError, ValueError) as error:
            reason = "no answer" if isinstance(error, TimeoutError) else type(error).__name__
            return f"TCP port {port} of {host} was reached, but not TLS ({reason}): look at proxies on the way."
