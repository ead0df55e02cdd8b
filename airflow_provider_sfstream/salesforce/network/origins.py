"""Where a connection, or a login, says that an org is: checked once, before anything is sent there."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.salesforce.network.tls import is_loopback

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\.?|[0-9a-fA-F:.]+(?:%[A-Za-z0-9]+)?")


def checked_origin(name: str, url: str, *, allow_insecure: bool) -> str:
    """Return scheme, host and port of ``url``, to which credentials may be sent.

    :param name: what the URL is, in messages, which never quote it.
    :param allow_insecure: accept plaintext to an address that is not loopback.
    :raises ConfigurationError: if it is no such URL, has a user name, or would send credentials in plaintext.
    """
    try:
        # urlsplit drops some control characters without a word.
        parts = urlsplit(url if url.isprintable() and " " not in url and "\\" not in url else "")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    if parts.scheme not in ("http", "https") or not _HOST.fullmatch(host) or "@" in parts.netloc:
        raise ConfigurationError(
            f"{name} must be the address of a Salesforce host, such as https://mycompany.my.salesforce.com, without a "
            "user name. Nothing was contacted."
        )
    if parts.scheme == "http" and not allow_insecure and not is_loopback(host):
        raise ConfigurationError(
            f"{name} http://{host} would send credentials unencrypted. Use https://, or set allow_insecure on the "
            "connection if you accept that. Nothing was contacted."
        )
    netloc = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{netloc}{'' if port is None else f':{port}'}"
