"""Which proxy a request goes through."""

from __future__ import annotations

import pytest

from airflow_provider_sfstream.clients.network.proxies import proxy_for

ORG = "https://acme.my.salesforce.com/cometd/62.0"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_none_by_default() -> None:
    assert proxy_for(ORG, {}) is None


def test_the_connections_own_by_scheme() -> None:
    proxies = {"https": "http://proxy:3128"}
    assert proxy_for(ORG, proxies) == "http://proxy:3128"
    assert proxy_for("http://localhost:1", proxies) is None


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_the_environments(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "proxy:3128")
    assert proxy_for(ORG, {}) == "http://proxy:3128"
    assert proxy_for(ORG, {"https": "http://mine:1"}) == "http://mine:1"


def test_hosts_that_need_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", "example.com,.my.salesforce.com")
    assert proxy_for(ORG, {}) is None
    assert proxy_for("https://login.salesforce.com/x", {}) == "http://proxy:3128"
