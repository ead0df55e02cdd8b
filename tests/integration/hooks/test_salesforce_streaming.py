"""Streaming API hook against a local org: its endpoint, API versions, and code written for aiosfstream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aiosfstream import ReplayOption

from airflow_provider_sfstream.exceptions import ConfigurationError
from tests.support.event_hooks import ACCOUNTS, STREAMING, EventHook
from tests.support.localorg import LocalOrg


@pytest.fixture
def kind() -> EventHook:
    return STREAMING


@pytest.mark.parametrize(
    ("fault", "part"),
    [
        ({"error": "403::Handshake denied", "failure_reason": "503::Server is too busy."}, "unavailable"),
        ({"error": "403::Organization concurrent user limit exceeded"}, "too many clients"),
        ({"error": "400::Unsupported API version."}, "version"),
    ],
)
def test_failing_streaming_endpoint_is_named_in_the_message(
    org: LocalOrg, make_hook: Callable[..., Any], fault: dict[str, Any], part: str
) -> None:
    org.fault("cometd_fail", channel="/meta/handshake", **fault)
    ok, message = make_hook().test_connection(ACCOUNTS)
    assert not ok
    assert message.startswith("Streaming endpoint: "), message
    assert part in message


def test_refusal_by_salesforce_is_quoted(org: LocalOrg, make_hook: Callable[..., Any]) -> None:
    STREAMING.deny(org)
    ok, message = make_hook().test_connection(ACCOUNTS)
    assert not ok
    assert "403::User not enabled for streaming" in message


def test_invalid_fields_are_named_before_any_request(org: LocalOrg, make_hook: Callable[..., Any]) -> None:
    before = len(org.requests())
    for changes, part in [
        ({"version": "36.0"}, "version.*37.0 or above"),
        ({"version": "latest"}, "version"),
        ({"version": 36}, "version"),
        ({"tls_ca": "/no/such/file.pem"}, "tls_ca"),
    ]:
        with pytest.raises(ConfigurationError, match=rf"(?s){part}"):
            make_hook(**changes).get_conn()
        ok, message = make_hook(**changes).test_connection()
        assert not ok
        assert message.startswith("Connection fields: "), message
    assert len(org.requests()) == before


@pytest.mark.parametrize("version", ["58.0", "58", "v58.0", 58, 58.0, "V58"])
def test_api_version_of_the_connection_is_used(org: LocalOrg, make_hook: Callable[..., Any], version: Any) -> None:
    with make_hook(version=version).get_conn() as client:
        assert client.api_version == "58.0"
        client.check(ACCOUNTS)


async def test_code_written_for_aiosfstream_works_with_the_hook(org: LocalOrg, make_hook: Callable[..., Any]) -> None:
    async with make_hook().cometd_client(replay=ReplayOption.ALL_EVENTS) as client:
        await client.subscribe(ACCOUNTS)
        async for message in client:
            assert message["data"]["sobject"]["Name"] == "Acme"
            break
