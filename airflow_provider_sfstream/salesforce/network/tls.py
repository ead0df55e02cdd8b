"""The certificate authority that a connection trusts, and which addresses may do without TLS."""

from __future__ import annotations

import ssl
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path

import httpx

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.redaction import quoted_setting

_PEM = "-----BEGIN "


def load_ca(tls_ca: str | None) -> str | None:
    """Return the PEM text of a custom certificate authority, given as PEM or as the path of a file.

    ``None`` and the empty text mean the usual public ones.

    :raises ConfigurationError: if the file cannot be read, or holds no certificate.
    """
    if not tls_ca or not tls_ca.strip():
        return None
    pem = tls_ca
    if _PEM not in tls_ca:
        try:
            pem = Path(tls_ca.strip()).expanduser().read_text(encoding="ascii")
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"tls_ca {quoted_setting(tls_ca.strip())} cannot be read ({type(error).__name__}). Give the path of a "
                "PEM file that exists where the task runs, or the PEM text itself."
            ) from None  # the cause quotes the field, which may be anything
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError(
            "tls_ca holds no readable certificate. It must be PEM, beginning with -----BEGIN CERTIFICATE-----."
        ) from error
    return pem


@lru_cache(maxsize=32)
def ssl_context(ca_pem: str | None) -> ssl.SSLContext:
    """Return a verifying TLS context that trusts ``ca_pem``, or the usual public authorities for ``None``.

    One for each authority in a process, since reading the usual ones takes some 50 ms of a core.
    """
    return ssl.create_default_context(cadata=ca_pem) if ca_pem else httpx.create_ssl_context()


def is_loopback(host: str) -> bool:
    """Return whether ``host`` is this very machine: ``localhost`` or an address of the loopback interface."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
