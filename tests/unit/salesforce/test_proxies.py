"""Proxy of a request: connection, environment, and validation."""

from __future__ import annotations

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.salesforce.network.proxies import check_grpc_proxy, checked_proxy, proxy_for

ORG = "https://acme.my.salesforce.com/cometd/62.0"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "grpc_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_no_proxy_is_used_by_default() -> None:
    assert proxy_for(ORG, {}) is None


def test_proxy_of_the_connection_is_chosen_by_scheme() -> None:
    proxies = {"https": "http://proxy:3128"}
    assert proxy_for(ORG, proxies) == "http://proxy:3128"
    assert proxy_for("http://localhost:1", proxies) is None


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_proxy_of_the_environment_is_used_without_one_of_the_connection(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "proxy:3128")
    assert proxy_for(ORG, {}) == "http://proxy:3128"
    assert proxy_for(ORG, {"https": "http://mine:1"}) == "http://mine:1"


def test_hosts_in_no_proxy_use_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", "example.com,.my.salesforce.com")
    assert proxy_for(ORG, {}) is None
    assert proxy_for("https://login.salesforce.com/x", {}) == "http://proxy:3128"


@pytest.mark.parametrize("scheme", ["socks", "socks4", "socks4a", "socks5", "socks5h", "SOCKS5"])
@pytest.mark.parametrize("where", ["connection", "HTTPS_PROXY", "all_proxy"])
def test_a_socks_proxy_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch, where: str, scheme: str) -> None:
    proxy, proxies = f"{scheme}://user:s3cret-word@proxy:1080", {}
    if where == "connection":
        proxies = {"https": proxy}
    else:
        monkeypatch.setenv(where, proxy)
    with pytest.raises(ConfigurationError, match=r"SOCKS proxy, which is not supported.*http://proxy") as caught:
        proxy_for(ORG, proxies)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "proxy",
    ["ftp://proxy:21", "socket://proxy", "file:///proxy", "proxy:3128", "://", "", "https:proxy", None, 5, ["x"]],
)
def test_invalid_http_proxy_url_is_refused(proxy: object) -> None:
    with pytest.raises(ConfigurationError, match="Nothing was sent"):
        checked_proxy(proxy)


@pytest.mark.parametrize("proxy", ["http://proxy:3128", "https://u:p%40x@proxy.example.com", "HTTP://[::1]:3128"])
def test_valid_proxy_url_is_returned_unchanged(proxy: str) -> None:
    assert checked_proxy(proxy) == proxy


@pytest.mark.parametrize("name", ["grpc_proxy", "https_proxy", "http_proxy"])
def test_a_socks_proxy_of_grpc_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "socks5://user:s3cret-word@proxy:1080")
    with pytest.raises(ConfigurationError, match=rf"\({name}\) is a SOCKS proxy.*no_grpc_proxy") as caught:
        check_grpc_proxy("api.pubsub.salesforce.com")
    assert "s3cret" not in str(caught.value)
    monkeypatch.setenv("no_grpc_proxy", "salesforce.com")
    check_grpc_proxy("api.pubsub.salesforce.com")


def test_grpc_reads_its_own_variable_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("grpc_proxy", "http://proxy:3128")
    monkeypatch.setenv("https_proxy", "socks5://proxy:1080")
    check_grpc_proxy("api.pubsub.salesforce.com")
