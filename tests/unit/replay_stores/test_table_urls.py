"""Database URLs of connections. Unusable URLs are refused before any contact with a database."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import create_engine

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.redaction import redacted
from airflow_provider_sfstream.replay_stores.table import TableReplayStore, sqlalchemy_url
from airflow_provider_sfstream.replay_stores.table.engine import describe


def test_postgres() -> None:
    extra = {"sslmode": "verify-full", "sslrootcert": "/etc/ca.pem", "cursor": "dictcursor", "keepalives": 1}

    url = sqlalchemy_url("postgres", "db.example.com", 5433, "positions", "me", "p@ss/wörd", extra)

    assert url.drivername == "postgresql+psycopg2"
    assert (url.host, url.port, url.database, url.username, url.password) == (
        "db.example.com",
        5433,
        "positions",
        "me",
        "p@ss/wörd",
    )
    assert dict(url.query) == {"sslmode": "verify-full", "sslrootcert": "/etc/ca.pem", "keepalives": "1"}
    assert "p@ss" not in str(url)
    assert "p%40ss" not in str(url)


def test_postgres_with_defaults_of_the_environment() -> None:
    url = sqlalchemy_url("postgresql", "", None, "positions", "", "", {})

    assert url.render_as_string(hide_password=False) == "postgresql+psycopg2:///positions"


def test_mysql() -> None:
    url = sqlalchemy_url("mysql", "db", None, "positions", "me", "secret", {"ssl_ca": "/ca.pem", "cursor": "sscursor"})

    assert url.render_as_string() == "mysql+pymysql://me:***@db/positions?charset=utf8mb4&ssl_ca=%2Fca.pem"


@pytest.mark.parametrize(
    ("extra", "options"),
    [
        ({}, {}),
        ({"ssl": {"ca": "/ca.pem", "key": ""}}, {"ssl_ca": "/ca.pem"}),
        ({"ssl": '{"ca": "/ca.pem", "cert": "/me.pem"}'}, {"ssl_ca": "/ca.pem", "ssl_cert": "/me.pem"}),
        ({"ssl_mode": "PREFERRED"}, {}),
        ({"ssl_mode": "required"}, {"ssl_check_hostname": "false"}),
        ({"ssl_mode": "REQUIRED", "ssl_ca": "/ca.pem"}, {"ssl_ca": "/ca.pem"}),
        ({"ssl_mode": "VERIFY_CA", "ssl_ca": "/ca.pem"}, {"ssl_ca": "/ca.pem", "ssl_check_hostname": "false"}),
        ({"ssl_mode": "VERIFY_IDENTITY", "ssl": {"ca": "/ca.pem"}}, {"ssl_ca": "/ca.pem"}),
        ({"ssl_mode": "DISABLED"}, {"ssl_disabled": "true"}),
    ],
)
def test_mysql_with_tls(extra: dict[str, Any], options: dict[str, str]) -> None:
    url = sqlalchemy_url("mysql", "db", None, "positions", "me", "secret", extra)

    assert dict(url.query) == {"charset": "utf8mb4", **options}


@pytest.mark.parametrize(
    "extra", [{"ssl_mode": "maybe"}, {"ssl_mode": "VERIFY_CA"}, {"ssl": "[1]"}, {"ssl": "/ca.pem"}]
)
def test_unsupported_tls_settings_are_refused(extra: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="extra field 'ssl"):
        sqlalchemy_url("mysql", "db", None, "positions", "me", "secret", extra)


@pytest.mark.parametrize(("host", "schema"), [("/srv/positions.db", None), ("", "/srv/positions.db")])
def test_sqlite(host: str | None, schema: str | None) -> None:
    assert str(sqlalchemy_url("sqlite", host, None, schema, None, None, {})) == "sqlite:////srv/positions.db"


@pytest.mark.parametrize(
    ("host", "means"),
    [
        ("postgresql://db:5433/positions", "postgresql+psycopg2://me:p%40ss@db:5433/positions?sslmode=require"),
        ("postgresql+psycopg2://db/positions", "postgresql+psycopg2://me:p%40ss@db/positions?sslmode=require"),
        ("mysql://db/positions", "mysql+pymysql://me:p%40ss@db/positions?charset=utf8mb4"),
        ("sqlite:////srv/positions.db", "sqlite:////srv/positions.db"),
    ],
)
def test_a_generic_connection_has_a_url_as_its_host(host: str, means: str) -> None:
    url = sqlalchemy_url("generic", host, None, None, "me", "p@ss", {"sslmode": "require"})
    assert url.render_as_string(hide_password=False) == means


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (("http", "db", None, "positions", None, None), "type 'http'"),
        (
            ("generic", "db.example.com", 5432, "positions", "me", "hidden-word"),
            "provider of that type is not installed",
        ),
        (("generic", None, None, None, None, None), "provider of that type is not installed"),
        (("generic", "postgresql://me:hidden-word@db/positions", None, None, None, None), "fields login, password"),
        (("generic", "postgresql://db/positions?password=hidden-word", None, None, None, None), "extra"),
        (("generic", "postgresql://db", None, None, "me", "hidden-word"), "names no database"),
        (("generic", "sqlite:///positions.db", None, None, None, None), "absolute path"),
        (("generic", "oracle://db/positions", None, None, None, None), "type 'oracle'"),
        (("postgres", "db", None, "", "me", "hidden-word"), "names no database"),
        (("sqlite", "positions.db", None, None, None, None), "absolute path"),
        (("sqlite", "relative", None, "positions.db", None, None), "absolute path"),
        (("sqlite", None, None, None, None, None), "absolute path"),
        (("sqlite", ":memory:", None, None, None, None), "absolute path"),
    ],
)
def test_unusable_connections_are_refused(fields: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as raised:
        sqlalchemy_url(*fields, {})
    assert "hidden-word" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite://", "loses every position"),
        ("sqlite:///:memory:", "loses every position"),
        ("me:hidden-word@db", "malformed"),
        ("postgresql+psycopg2://me:x@db:hidden-word/positions", "malformed"),
        ("sqlite+nothing:////srv/positions.db", "driver"),
    ],
)
def test_unusable_urls_are_refused(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as raised:
        TableReplayStore(url)
    assert "hidden-word" not in f"{raised.value}{raised.value.__cause__}"


def test_an_engine_in_memory_is_refused_too() -> None:
    with pytest.raises(ConfigurationError, match="loses every position"):
        TableReplayStore(create_engine("sqlite://"))


def test_a_store_is_described_without_login_and_options() -> None:
    url = sqlalchemy_url("postgres", "db", 5433, "positions", "me", "hidden-word", {"options": "-c hidden"})

    assert describe(url) == "postgresql database positions on db:5433"
    assert repr(TableReplayStore(url)) == "TableReplayStore(postgresql database positions on db:5433)"
    socket = sqlalchemy_url("postgres", None, None, "positions", None, None, {})
    assert describe(socket) == "postgresql database positions on the local socket"


def test_password_of_a_url_is_redacted_from_now_on() -> None:
    password = "hidden-word-of-a-url"
    TableReplayStore(f"postgresql+psycopg2://me:{password}@db/positions").close()
    assert password not in redacted(f"could not log in with {password}")
