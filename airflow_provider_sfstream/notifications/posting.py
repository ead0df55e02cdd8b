"""HTTP requests with messages as JSON, by an Airflow connection of type ``http``."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_provider_sfstream.exceptions import ConfigurationError, NotificationError
from airflow_provider_sfstream.redaction import quoted, remember_secrets

if TYPE_CHECKING:
    from airflow.sdk import Connection

TIMEOUT = 10.0
"""Seconds for each of connecting, writing and reading. The task occupies its slot meanwhile."""
_TRIES = 3
_SECRET = 24
"""Minimum number of characters of a path or a header that may be a secret."""
_NO_HEADERS = {
    *("stream", "cert", "proxies", "proxy", "timeout", "verify", "verify_ssl", "allow_redirects", "max_redirects"),
    *("trust_env", "check_response", "srv_lookup"),
}
"""Keys of the Extra of an ``http`` connection other than headers, as in Airflow's own hook."""


def post(http_conn_id: str, endpoint: str, document: Mapping[str, Any]) -> None:
    """Post ``document`` to the address of a connection, which has the same fields as for Airflow's ``HttpHook``.

    This function does not use Airflow's hook, which logs the address: the address of a webhook is a secret. It follows
    no redirect.

    :param endpoint: path after the connection's host.
    :raises ConfigurationError: if the connection has no host. Nothing was sent.
    :raises NotificationError: if the message was not accepted. No error contains the address.
    """
    import httpx

    from airflow_provider_sfstream.salesforce.network.proxies import proxy_for

    connection = BaseHook.get_connection(http_conn_id)
    extra = connection.extra_dejson
    headers = {name: str(value) for name, value in extra.items() if name not in _NO_HEADERS}
    url = _url(connection, endpoint)
    path = url.partition("://")[2].partition("/")[2]
    # A short path or header is not a secret, and its redaction would remove ordinary words from texts.
    secrets = [text for text in (path, *headers.values()) if len(text) >= _SECRET]
    remember_secrets(connection.password, *secrets)
    login = (connection.login, connection.password or "") if connection.login else None
    proxies = extra.get("proxies") or extra.get("proxy")
    proxy = proxy_for(url, proxies if isinstance(proxies, dict) else {})
    failure = f"Airflow connection {http_conn_id!r}: the message was not accepted"
    try:
        transport = httpx.HTTPTransport(verify=_trust(extra), trust_env=False, proxy=proxy, retries=_TRIES - 1)
        with httpx.Client(transport=transport, timeout=TIMEOUT, auth=login, trust_env=False) as client:
            response = client.post(url, json=dict(document), headers=headers)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as fault:
        # Without the cause, which contains the request with its address and headers.
        raise NotificationError(f"{failure} ({type(fault).__name__}: {quoted(str(fault))}). {_REMEDY}") from None
    if not response.is_success:
        raise NotificationError(f"{failure} (HTTP {response.status_code}, {quoted(response.text)}). {_REMEDY}")


_REMEDY = "Check host, login and headers of the connection, and the network."


def _trust(extra: Mapping[str, Any]) -> ssl.SSLContext | bool:
    """Return the trusted certificates: the public ones, those of a file, or, with ``verify=False``, any certificate."""
    from airflow_provider_sfstream.salesforce.network.tls import load_ca, ssl_context

    verify = extra.get("verify", extra.get("verify_ssl", True))
    return False if verify is False else ssl_context(load_ca(verify if isinstance(verify, str) else None))


def _url(connection: Connection, endpoint: str) -> str:
    host = connection.host or ""
    if not host.strip():
        raise ConfigurationError(
            f"Airflow connection {connection.conn_id!r} has no host. Set its host to an address with a scheme, such as "
            "https://hooks.example.com. Nothing was sent."
        )
    base = host if "://" in host else f"{connection.schema or 'http'}://{host}"
    base = f"{base}:{connection.port}" if connection.port else base
    return f"{base.rstrip('/')}/{endpoint.lstrip('/')}" if endpoint else base
