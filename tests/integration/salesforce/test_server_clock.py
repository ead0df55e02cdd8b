"""Salesforce's time by the ``Date`` header: bounds from a local org, and no bounds from unreliable responses."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler

import pytest

from airflow_provider_sfstream.exceptions import AuthenticationError
from airflow_provider_sfstream.salesforce.auth.credentials import credentials_from
from airflow_provider_sfstream.salesforce.auth.token_provider import OAuthTokenProvider
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken
from airflow_provider_sfstream.salesforce.network.settings import DEFAULT_NETWORK
from airflow_provider_sfstream.salesforce.rest import client as rest_client
from airflow_provider_sfstream.salesforce.rest.client import measured_server_time
from airflow_provider_sfstream.salesforce.server_time import ServerTime
from tests.support.clients import (
    app_fields,
    async_pubsub_client,
    async_streaming_client,
    pubsub_client,
    streaming_client,
)
from tests.support.http_serving import serving
from tests.support.localorg import LocalOrg

TOKEN = "00D000000000001!s3cret-token"
HOUR = timedelta(hours=1)


@dataclass
class HostTokens:
    """Token provider whose token is for the host of a test."""

    instance_url: str

    def token(self) -> AccessToken:
        return AccessToken(TOKEN, self.instance_url, "00D000000000001AAA")

    async def atoken(self) -> AccessToken:
        return self.token()

    def invalidate(self, token: AccessToken) -> None:
        """Do nothing: no test refuses the token."""


def measure(
    provider: OAuthTokenProvider | HostTokens, clock: Callable[[], float] = time.monotonic
) -> ServerTime | None:
    return measured_server_time(provider, DEFAULT_NETWORK, clock)


@contextlib.contextmanager
def host_with(headers: dict[str, str], status: int = 200) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Serve an empty list with only the given headers, and yield the URL and the headers of the requests."""
    requests: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(dict(self.headers))
            self.send_response_only(status)
            for name, value in {**headers, "Content-Length": "2"}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with serving(Handler) as port:
        yield f"http://127.0.0.1:{port}", requests


def http_date(moment: datetime) -> str:
    return format_datetime(moment, usegmt=True)


async def _of_async_pubsub(org: LocalOrg) -> ServerTime | None:
    async with async_pubsub_client(org) as client:
        return await client.server_time(time.monotonic)


async def _of_async_streaming(org: LocalOrg) -> ServerTime | None:
    async with async_streaming_client(org) as client:
        return await client.server_time(time.monotonic)


def _of_pubsub(org: LocalOrg) -> ServerTime | None:
    with pubsub_client(org) as client:
        return client.server_time(time.monotonic)


def _of_streaming(org: LocalOrg) -> ServerTime | None:
    with streaming_client(org) as client:
        return client.server_time(time.monotonic)


CLIENTS: dict[str, Callable[[LocalOrg], ServerTime | None]] = {
    "pubsub": _of_pubsub,
    "streaming": _of_streaming,
    "async pubsub": lambda org: asyncio.run(_of_async_pubsub(org)),
    "async streaming": lambda org: asyncio.run(_of_async_streaming(org)),
}


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_time_of_the_org_is_between_the_measured_bounds(
    org: LocalOrg, client: Callable[[LocalOrg], ServerTime | None]
) -> None:
    measured = client(org)
    assert measured is not None
    reading, now = time.monotonic(), datetime.now(UTC)  # the org runs on this machine
    assert measured.earliest(reading) <= now <= measured.latest(reading)
    width = measured.latest(reading) - measured.earliest(reading)
    assert timedelta(seconds=1) <= width < timedelta(seconds=20)


def test_measurement_has_the_date_header_and_both_clock_readings() -> None:
    moment = datetime(2026, 11, 20, 12, tzinfo=UTC)
    readings = iter([100.0, 101.5])
    with host_with({"Date": http_date(moment)}) as (url, requests):
        measured = measure(HostTokens(url), lambda: next(readings))
    assert measured == ServerTime(moment, 100.0, 101.5)
    (headers,) = requests
    assert "Authorization" not in headers, "the resource is public, so no token is sent"
    assert headers["Cache-Control"] == "no-cache"


UNRELIABLE = {
    "no date": ({}, 200),
    "no time": ({"Date": "soon"}, 200),
    "a date without a time zone": ({"Date": "Fri, 20 Nov 2026 12:00:00 -0000"}, 200),
    "a date beyond all calendars": ({"Date": "Fri, 31 Dec 9999 23:59:59 GMT"}, 200),
    "a date of a cache": ({"Date": http_date(datetime.now(UTC) - HOUR), "Age": "3600"}, 200),
    "a refusal of a proxy": ({"Date": http_date(datetime.now(UTC) + HOUR)}, 407),
    "a login page": ({"Date": http_date(datetime.now(UTC) + HOUR), "Location": "https://portal.example"}, 302),
    "a service that is down": ({"Date": http_date(datetime.now(UTC) + HOUR)}, 503),
}


@pytest.mark.parametrize(("headers", "status"), UNRELIABLE.values(), ids=UNRELIABLE)
def test_response_without_a_reliable_date_logs_a_warning(
    headers: dict[str, str], status: int, caplog: pytest.LogCaptureFixture
) -> None:
    with host_with(headers, status) as (url, _):
        assert measure(HostTokens(url)) is None
    (record,) = [record for record in caplog.records if record.name.endswith("rest.client")]
    assert record.levelno == logging.WARNING
    assert "Salesforce's time could not be measured" in record.getMessage()
    assert "No event is affected" in record.getMessage()
    assert TOKEN not in caplog.text


def test_measurement_of_a_silent_org_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drain waits for the measurement, so it must end soon."""
    monkeypatch.setattr(rest_client, "TIME_TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        assert measure(HostTokens(f"http://127.0.0.1:{silent.getsockname()[1]}")) is None
    assert time.monotonic() - began < 30


def test_measurement_of_an_unreachable_org_logs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # no server listens on the port
        assert measure(HostTokens(f"http://127.0.0.1:{reserved.getsockname()[1]}")) is None
    assert "Salesforce's time could not be measured" in caplog.text
    assert TOKEN not in caplog.text


@pytest.mark.parametrize("age", ["0", ""])
def test_response_with_age_zero_is_used(age: str) -> None:
    moment = datetime(2026, 11, 20, 12, tzinfo=UTC)
    with host_with({"Date": http_date(moment), "Age": age}) as (url, _):
        measured = measure(HostTokens(url))
    assert measured is not None
    assert measured.date == moment


def test_failed_login_during_a_measurement_raises(org: LocalOrg, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "another-consumer-s3cret"
    provider = OAuthTokenProvider(credentials_from({**app_fields(org), "consumer_secret": secret}))
    with pytest.raises(AuthenticationError) as caught:
        measure(provider)
    assert "could not be measured" not in caplog.text
    assert secret not in caplog.text + str(caught.value) + repr(caught.value)


def test_log_of_a_measurement_contains_no_secret(org: LocalOrg, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    provider = OAuthTokenProvider(credentials_from(app_fields(org)))
    assert measure(provider) is not None
    assert provider.token().value not in caplog.text
    assert org.client_secret not in caplog.text
