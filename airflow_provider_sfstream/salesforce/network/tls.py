"""TLS of connections: trusted certificate authority, loopback exception, check of URLs that receive credentials."""

from __future__ import annotations

import re
import ssl
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.redaction import quoted_setting

_PEM = "-----BEGIN "


def load_ca(tls_ca: str | None) -> str | None:
    """Return the PEM text of a custom certificate authority, passed as PEM text or as the path of a file.

    ``None`` and the empty text select the public authorities.
    """
    if not tls_ca or not tls_ca.strip():
        return None
    pem = tls_ca
    if _PEM not in tls_ca:
        try:
            pem = Path(tls_ca.strip()).expanduser().read_text(encoding="ascii")
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"tls_ca {quoted_setting(tls_ca.strip())} cannot be read ({type(error).__name__}). Set it to the "
                "path of a PEM file on the worker of the task, or to the PEM text."
            ) from None  # the cause quotes the field, which may be anything
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError(
            "tls_ca contains no readable certificate. It must be PEM, beginning with -----BEGIN CERTIFICATE-----."
        ) from error
    return pem


@lru_cache(maxsize=32)
def ssl_context(ca_pem: str | None) -> ssl.SSLContext:
    """Return a verifying TLS context that trusts ``ca_pem``, or the public authorities for ``None``.

    One for each authority in a process, because reading the public authorities takes about 50 ms of CPU time.
    """
    return ssl.create_default_context(cadata=ca_pem) if ca_pem else httpx.create_ssl_context()


def is_loopback(host: str) -> bool:
    """Return whether ``host`` is this machine: ``localhost`` or an address of the loopback interface."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\.?|[0-9a-fA-F:.]+(?:%[A-Za-z0-9]+)?")


def checked_origin(name: str, url: str, *, allow_insecure: bool) -> str:
    """Return scheme, host and port of ``url``, to which credentials may be sent.

    :param name: name of the URL in messages, which never quote it.
    """
    try:
        # urlsplit silently drops some control characters.
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
