"""Event schemas over REST, from a server with scripted responses: errors, missing schemas and repeated requests."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ServiceUnavailableError, SessionExpiredError, ThrottledError
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken
from airflow_provider_sfstream.salesforce.network.settings import NetworkSettings
from airflow_provider_sfstream.salesforce.streaming.async_client import AsyncStreamingClient
from tests.support.http_serving import serving

SCHEMA = '{"type": "record", "name": "Order__e", "fields": []}'


class Rest:
    """Server that responds to each request with the next item of ``answers``, and repeats the last item."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, str]] = []
        self.paths: list[str] = []
        self.tokens: list[str] = []
        rest = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                rest.paths.append(self.path)
                rest.tokens.append(self.headers["Authorization"])
                status, text = rest.answers.pop(0) if len(rest.answers) > 1 else rest.answers[0]
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.handler = Handler
        self.url = ""


@pytest.fixture
def rest() -> Iterator[Rest]:
    rest = Rest()
    with serving(rest.handler) as port:
        rest.url = f"http://127.0.0.1:{port}"
        yield rest


class Logins:
    """Token provider that starts with ``s3cret-1`` and increments the number after each refused token."""

    def __init__(self, url: str) -> None:
        self.url, self.number = url, 1

    def token(self) -> AccessToken:
        return AccessToken(f"s3cret-{self.number}", self.url, "00D000000000001AAA")

    async def atoken(self) -> AccessToken:
        return self.token()

    def invalidate(self, token: AccessToken) -> None:
        if token == self.token():
            self.number += 1


@pytest.fixture
def client(rest: Rest) -> AsyncStreamingClient:
    return client_of(rest.url)


def client_of(url: str, **proxies: str) -> AsyncStreamingClient:
    return AsyncStreamingClient(Logins(url), api_version="62.0", network=NetworkSettings(proxies=proxies))


async def test_schema_request_has_path_and_token(rest: Rest, client: AsyncStreamingClient) -> None:
    rest.answers = [(200, SCHEMA)]
    assert await client.schema("a/b?c") == SCHEMA
    assert rest.paths == ["/services/data/v62.0/event/eventSchema/a%2Fb%3Fc?payloadFormat=COMPACT"]
    assert rest.tokens == ["Bearer s3cret-1"]


@pytest.mark.parametrize(
    "answer", [(403, "[]"), (404, "[]"), (400, "?"), (200, "<html>"), (200, '{"type": "string"}'), (302, "")]
)
async def test_missing_or_invalid_schema_is_none_and_logs_one_warning(
    rest: Rest, client: AsyncStreamingClient, answer: tuple[int, str], caplog: pytest.LogCaptureFixture
) -> None:
    rest.answers = [answer]
    assert [await client.schema("abc") for _ in range(3)] == [None] * 3
    [warning] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "abc" in warning
    assert "read without it" in warning
    assert len(rest.paths) == 1


@pytest.mark.parametrize(("status", "error"), [(503, ServiceUnavailableError), (429, ThrottledError)])
async def test_temporary_fault_raises_and_is_not_cached(
    rest: Rest, client: AsyncStreamingClient, status: int, error: type[Exception]
) -> None:
    rest.answers = [(status, "maintenance"), (200, SCHEMA)]
    with pytest.raises(error, match="schema abc"):
        await client.schema("abc")
    assert await client.schema("abc") == SCHEMA


async def test_refused_token_causes_one_new_login(rest: Rest, client: AsyncStreamingClient) -> None:
    rest.answers = [(401, "[]"), (200, SCHEMA)]
    assert await client.schema("abc") == SCHEMA
    rest.answers = [(401, "[]")]
    with pytest.raises(SessionExpiredError):
        await client.schema("other")
    assert rest.tokens == [f"Bearer s3cret-{number}" for number in (1, 2, 2, 3)]


async def test_no_secret_in_schema_errors() -> None:
    for client in (client_of("http://127.0.0.1:1"), client_of("http://org", http="http://u:s3cret@127.0.0.1:1")):
        with pytest.raises(ServiceUnavailableError, match="schema abc") as caught:
            await client.schema("abc")
        assert "s3cret" not in str(caught.value) + repr(caught.value.__cause__)
        assert caught.value.__suppress_context__
