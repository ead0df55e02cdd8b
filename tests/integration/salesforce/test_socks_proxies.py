"""SOCKS proxies: each client refuses them with an error of this package, before it sends anything."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.hooks.salesforce_allocations import AllocationClient
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken, Session
from airflow_provider_sfstream.salesforce.network.settings import NetworkSettings
from airflow_provider_sfstream.salesforce.rest.record_session import record_session
from tests.support.clients import async_pubsub_client, pubsub_client, streaming_client, token_provider
from tests.support.localorg import LocalOrg

TOPIC = "/event/Order__e"


@pytest.fixture
def proxy(org: LocalOrg) -> Iterator[str]:
    """Listen as a SOCKS proxy, and check after the test that no client has connected."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"socks5h://user:s3cret-word@127.0.0.1:{server.getsockname()[1]}"
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Return a function that sets one proxy variable and removes the others from the environment."""

    def only(name: str, proxy: str) -> None:
        for each in ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy", "no_proxy", "no_grpc_proxy"):
            monkeypatch.delenv(each, raising=False)
            monkeypatch.delenv(each.upper(), raising=False)
        monkeypatch.setenv(name, proxy)

    return only


class Records:
    """Token provider of an org that is reached over TLS."""

    def __init__(self, token: AccessToken) -> None:
        self._token = token

    def token(self) -> AccessToken:
        return self._token

    async def atoken(self) -> AccessToken:
        return self._token

    def invalidate(self, token: AccessToken) -> None:
        """Do nothing: the token is never replaced."""


def refused(action: Callable[[], Any]) -> str:
    with pytest.raises(ConfigurationError, match=r"SOCKS proxy, which is not supported.*Set an HTTP proxy") as caught:
        action()
    assert "s3cret" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["HTTP_PROXY", "ALL_PROXY", "all_proxy"])
def test_login_refuses_a_socks_proxy(org: LocalOrg, proxy: str, only: Callable[[str, str], None], name: str) -> None:
    only(name, proxy)
    refused(token_provider(org).token)


def test_login_ignores_a_socks_proxy_of_other_addresses(
    org: LocalOrg, proxy: str, only: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    only("HTTPS_PROXY", proxy)
    assert token_provider(org).token().org_id == org.org_id, "the login uses plain HTTP"
    only("ALL_PROXY", proxy)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    assert token_provider(org).token().org_id == org.org_id


def test_socks_proxy_of_a_connection_is_refused(proxy: str) -> None:
    refused(lambda: NetworkSettings(proxies={"https": proxy}))


def test_rest_clients_refuse_a_socks_proxy(org: LocalOrg, proxy: str, only: Callable[[str, str], None]) -> None:
    tokens = token_provider(org)
    tokens.token()
    only("HTTP_PROXY", proxy)
    with AllocationClient(tokens) as client:
        refused(client.all)
    only("HTTPS_PROXY", proxy)
    records = Session(Records(AccessToken(tokens.token().value, org.https_instance_url, org.org_id)))
    refused(lambda: record_session(records, NetworkSettings(org.ca_file)))


def test_streaming_client_refuses_a_socks_proxy(org: LocalOrg, proxy: str, only: Callable[[str, str], None]) -> None:
    with streaming_client(org) as client:
        assert client.org_id() == org.org_id
        only("HTTP_PROXY", proxy)
        refused(lambda: client.check(TOPIC))
        refused(lambda: client.schema("any"))


@pytest.mark.parametrize("name", ["grpc_proxy", "https_proxy", "http_proxy"])
def test_pubsub_clients_refuse_a_socks_proxy(
    org: LocalOrg, proxy: str, only: Callable[[str, str], None], name: str
) -> None:
    only(name, proxy)
    assert name in refused(lambda: pubsub_client(org))

    async def look() -> None:
        async with async_pubsub_client(org) as client:
            await client.schema("any")

    refused(lambda: asyncio.run(look()))
