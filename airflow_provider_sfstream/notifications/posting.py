"""Posting a message as JSON, by an Airflow connection of type ``http``."""

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
"""Seconds for each of connecting, writing and reading. A task's slot is held for as long."""
_TRIES = 3
_SECRET = 24
"""Characters from which on a path or a header may be one."""
_NO_HEADERS = {
    *("stream", "cert", "proxies", "proxy", "timeout", "verify", "verify_ssl", "allow_redirects", "max_redirects"),
    *("trust_env", "check_response", "srv_lookup"),
}
"""Keys of the Extra of an ``http`` connection other than headers, as in Airflow's own hook."""


def post(http_conn_id: str, endpoint: str, document: Mapping[str, Any]) -> None:
    """Post ``document`` to where the connection leads; the same fields as for Airflow's ``HttpHook``.

    Airflow's hook would do, but it logs the address, and that of a webhook is its secret. No redirect is followed.

    :param endpoint: path after the connection's host.
    :raises ConfigurationError: if the connection leads nowhere. Nothing was sent.
    :raises NotificationError: if it was not accepted. The address is in no error.
    """
    import httpx

    from airflow_provider_sfstream.salesforce.network.proxies import proxy_for

    connection = BaseHook.get_connection(http_conn_id)
    extra = connection.extra_dejson
    headers = {name: str(value) for name, value in extra.items() if name not in _NO_HEADERS}
    url = _url(connection, endpoint)
    path = url.partition("://")[2].partition("/")[2]
    # A short path or header is a word of many texts, and no secret.
    remember_secrets(connection.password, *(each for each in (path, *headers.values()) if len(each) >= _SECRET))
    login = (connection.login, connection.password or "") if connection.login else None
    proxies = extra.get("proxies") or extra.get("proxy")
    proxy = proxy_for(url, proxies if isinstance(proxies, dict) else {})
    what = f"Airflow connection {http_conn_id!r}: the message was not accepted"
    try:
        transport = httpx.HTTPTransport(verify=_trust(extra), trust_env=False, proxy=proxy, retries=_TRIES - 1)
        with httpx.Client(transport=transport, timeout=TIMEOUT, auth=login, trust_env=False) as client:
            answer = client.post(url, json=dict(document), headers=headers)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as fault:
        # The cause is left out: it holds the request, and with it address and headers.
        raise NotificationError(f"{what} ({type(fault).__name__}: {quoted(str(fault))}). {_REMEDY}") from None
    if not answer.is_success:
        raise NotificationError(f"{what} (HTTP {answer.status_code}, {quoted(answer.text)}). {_REMEDY}")


_REMEDY = "Check host, login and headers of the connection, and the network."


def _trust(extra: Mapping[str, Any]) -> ssl.SSLContext | bool:
    """Return which certificates are trusted: the usual ones, those of a file, or, if somebody wants that, any."""
    from airflow_provider_sfstream.salesforce.network.tls import load_ca, ssl_context

    verify = extra.get("verify", extra.get("verify_ssl", True))
    return False if verify is False else ssl_context(load_ca(verify if isinstance(verify, str) else None))


def _url(connection: Connection, endpoint: str) -> str:
    host = connection.host or ""
    if not host.strip():
        raise ConfigurationError(
            f"Airflow connection {connection.conn_id!r} has no host to post to. Give it one: an address with its "
            "scheme, such as https://hooks.example.com. Nothing was sent."
        )
    base = host if "://" in host else f"{connection.schema or 'http'}://{host}"
    base = f"{base}:{connection.port}" if connection.port else base
    return f"{base.rstrip('/')}/{endpoint.lstrip('/')}" if endpoint else base
