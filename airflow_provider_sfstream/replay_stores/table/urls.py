"""Conversion of a connection's fields to the URL of a database. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import Any

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from airflow_provider_sfstream.exceptions import ConfigurationError

_DRIVERS = {
    "postgres": "postgresql+psycopg2",
    "postgresql": "postgresql+psycopg2",
    "mysql": "mysql+pymysql",
    "sqlite": "sqlite",
}
# The keys of a connection's extra that the driver supports. Airflow's hooks store other settings there.
_OPTIONS = {
    "postgresql+psycopg2": (
        *("application_name", "channel_binding", "connect_timeout", "gssencmode", "options", "passfile", "service"),
        *("keepalives", "keepalives_count", "keepalives_idle", "keepalives_interval", "target_session_attrs"),
        *("sslcert", "sslcrl", "sslkey", "sslmode", "sslrootcert"),
    ),
    "mysql+pymysql": (
        *("charset", "connect_timeout", "read_timeout", "unix_socket", "write_timeout"),
        *("ssl_ca", "ssl_capath", "ssl_cert", "ssl_check_hostname", "ssl_cipher", "ssl_key"),
    ),
}
_SSL_MODES = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")


def sqlalchemy_url(
    conn_type: str,
    host: str | None,
    port: int | None,
    schema: str | None,
    login: str | None,
    password: str | None,
    extra: Mapping[str, Any],
) -> URL:
    """Return the URL of the database that the fields of an Airflow connection describe.

    Printing the URL hides the password.

    :param conn_type: ``postgres``, ``mysql`` or ``sqlite``; or ``generic``, with a URL as its host, for example
        ``postgresql://db.example.com:5432/positions`` or ``sqlite:////srv/positions.db``.
    :param host: the server; for ``sqlite`` the absolute path of the file (``schema`` is used if it is empty).
    :param schema: the database on the server.
    :param extra: the connection's extra; options of the driver (``sslmode``, ``sslrootcert``...) are used. For
        ``mysql`` also ``ssl`` and ``ssl_mode``, as in Airflow's MySQL connections.
    :raises ConfigurationError: if the type is unsupported, a required field is missing, or the TLS settings of the
        extra are invalid. Nothing was contacted.
    """
    if conn_type.lower() == "generic":
        conn_type, host, port, schema = _database_of_url(host, port, schema)
    driver = _DRIVERS.get(conn_type.lower())
    if driver is None:
        raise ConfigurationError(
            f"A connection of type {conn_type!r} cannot store replay positions. "
            "Use one of type postgres, mysql or sqlite. Nothing was read or moved."
        )
    if driver == "sqlite":
        return URL.create(driver, database=_sqlite_file(host, schema))
    if not schema:
        raise ConfigurationError(
            f"The {conn_type} connection of the replay store names no database: fill in its schema field. "
            "Nothing was read or moved."
        )
    options = {name: str(extra[name]) for name in _OPTIONS[driver] if extra.get(name) not in (None, "")}
    if driver == "mysql+pymysql":
        options = {"charset": "utf8mb4", **_mysql_tls(extra), **options}
    return URL.create(driver, login or None, password or None, host or None, port, schema, options)


def _database_of_url(host: str | None, port: int | None, schema: str | None) -> tuple[str, str | None, int | None, str]:
    """Return type, host, port and schema of a connection whose host is the URL of a database."""
    url = None
    with suppress(ArgumentError, ValueError):
        url = make_url(host or "")
    if url is None:
        raise ConfigurationError(
            "The connection of the replay store is of type 'generic', and its host field is not the URL of a database. "
            "Airflow stores this type instead of postgres, mysql or sqlite if the provider of that type is not "
            "installed. Set the host field to a URL such as postgresql://db.example.com:5432/positions, with login and "
            "password in their own fields; or define the connection with AIRFLOW_CONN_...; or install the provider "
            "(for example apache-airflow-providers-postgres) and create the connection again. Nothing was read or "
            "moved."
        )
    if url.username or url.password or url.query:
        raise ConfigurationError(
            "The host field of the replay store's generic connection has a login, a password or options in its URL. "
            "Move them to the fields login, password and extra. Nothing was read or moved."
        )
    if url.get_backend_name() == "sqlite":
        return "sqlite", url.database, None, ""
    return url.get_backend_name(), url.host, url.port or port, url.database or schema or ""


def _mysql_tls(extra: Mapping[str, Any]) -> dict[str, str]:
    """Return the driver's options for ``ssl``, a mapping or its JSON, and ``ssl_mode``, one of MySQL's values."""
    files = extra.get("ssl") or {}
    if isinstance(files, str):
        try:
            files = json.loads(files)
        except (ValueError, RecursionError):
            files = None
    if not isinstance(files, Mapping):
        raise ConfigurationError(
            "The extra field 'ssl' of the replay store's mysql connection is not a mapping like "
            '{"ca": "/path/ca.pem"}. Nothing was read or moved.'
        )
    options = {f"ssl_{name}": str(files[name]) for name in ("ca", "capath", "cert", "cipher", "key") if files.get(name)}
    mode = str(extra.get("ssl_mode") or "PREFERRED").upper()
    trusted = {"ssl_ca", "ssl_capath"} & {*options, *(name for name in extra if extra[name])}
    if mode not in _SSL_MODES or (mode.startswith("VERIFY") and not trusted):
        raise ConfigurationError(
            f"The extra field 'ssl_mode' of the replay store's mysql connection is {mode!r}. Valid values are "
            f"{', '.join(_SSL_MODES)}; the last two also require the certificate of the authority (ssl_ca). "
            "Nothing was read or moved."
        )
    if mode == "DISABLED":
        return {"ssl_disabled": "true"}
    # The driver requires TLS if any TLS option is set; it checks certificate and host name if the CA is set.
    if mode == "VERIFY_CA" or (mode == "REQUIRED" and not trusted):
        options["ssl_check_hostname"] = "false"
    return options


def _sqlite_file(host: str | None, schema: str | None) -> str:
    path = host or schema or ""
    if (host and schema) or not PurePath(path).is_absolute():
        raise ConfigurationError(
            "The sqlite connection of the replay store must have the absolute path of its file, in the host field "
            "only: a relative path would be another file on another worker. Nothing was read or moved."
        )
    return path
